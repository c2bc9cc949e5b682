// @use lib/tile
// @use lib/conv2d_extents
// Where a convolution's workgroup works.

// Channels of one group.
const CIN: u32 = 1u;
const COUT: u32 = 1u;

const AREA: u32 = KERNEL_ROWS * KERNEL_COLS;
const TAPS: u32 = CIN * AREA;

struct Dims {
    batch: u32,
    // Parts that the sums are split into, each with its results after those of the part before.
    parts: u32,
    // Tiles along m and along n.
    tiles_m: u32,
    tiles_n: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;

var<private> channel_group: u32;
var<private> part: u32;

// Whether four neighbouring pixels from a multiple of four on lie in one row, of the output and of
// the input.
const OUT_QUADS: bool = OUT_COLS % 4u == 0u && STRIDE_COLS == 1u;
const IN_QUADS: bool = IN_COLS % 4u == 0u && STRIDE_ROWS == 1u && STRIDE_COLS == 1u;

// First and one past the last of a part's terms; each part begins at a whole step.
fn part_of(terms: u32) -> vec2<u32> {
    let each = ((terms + dims.parts - 1u) / dims.parts + DEPTH - 1u) / DEPTH * DEPTH;
    return vec2<u32>(min(part * each, terms), min((part + 1u) * each, terms));
}

// First row and column of a workgroup's tile; sets the group of channels and the part. False where
// there is no such tile.
fn place(index: u32) -> vec3<u32> {
    let rest = index / (dims.tiles_m * dims.tiles_n);
    channel_group = rest % GROUPS;
    part = rest / GROUPS;
    let tile = vec2<u32>((index % dims.tiles_m) * ROWS, ((index / dims.tiles_m) % dims.tiles_n) * COLS);
    return vec3<u32>(tile, select(0u, 1u, part < dims.parts));
}
