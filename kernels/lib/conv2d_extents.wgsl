// The extents of a convolution. They are constants, so that the compiler unrolls the windows and turns
// divisions into products.

const GROUPS: u32 = 1u;
const IN_ROWS: u32 = 1u;
const IN_COLS: u32 = 1u;
const OUT_ROWS: u32 = 1u;
const OUT_COLS: u32 = 1u;
const KERNEL_ROWS: u32 = 1u;
const KERNEL_COLS: u32 = 1u;
const STRIDE_ROWS: u32 = 1u;
const STRIDE_COLS: u32 = 1u;
const PAD_TOP: u32 = 0u;
const PAD_LEFT: u32 = 0u;
const DILATION_ROWS: u32 = 1u;
const DILATION_COLS: u32 = 1u;

const IN_PIXELS: u32 = IN_ROWS * IN_COLS;
const OUT_PIXELS: u32 = OUT_ROWS * OUT_COLS;
