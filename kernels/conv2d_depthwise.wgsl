// @use lib/reduce
// @use lib/conv2d_extents
// Convolutions whose groups have one input channel and MULTIPLIER output channels each, read where
// they lie: one thread an output; one thread an input pixel for the input's gradient; and one
// workgroup a row of a kernel, and a part of the sums, for the weight's.

const MULTIPLIER: u32 = 1u;
const CHANNELS: u32 = GROUPS * MULTIPLIER;
const TAPS: u32 = KERNEL_ROWS * KERNEL_COLS;

struct Dims {
    batch: u32,
    // Parts of the weight's sums.
    parts: u32,
}

alias left_t = f32;
alias right_t = f32;
alias out_t = f32;

@group(0) @binding(0) var<uniform> dims: Dims;
// Forward x, w and y; for the input's gradient w, dy and dx; for the weight's x, dy and dw.
@group(0) @binding(2) var<storage, read_write> left: array<left_t>;
@group(0) @binding(3) var<storage, read_write> right: array<right_t>;
@group(0) @binding(4) var<storage, read_write> out: array<out_t>;

// x[plane, row, col] of `left`, zero outside. Rows above and columns left of the image are huge
// numbers.
fn pixel(plane: u32, row: u32, col: u32) -> f32 {
    let inside = row < IN_ROWS && col < IN_COLS;
    return select(0.0, f32(left[select(0u, plane * IN_PIXELS + row * IN_COLS + col, inside)]), inside);
}

@compute @workgroup_size(256)
fn conv2d(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let at = (group.y * groups.x + group.x) * 256u + local;
    let plane = at / OUT_PIXELS;
    if (plane >= dims.batch * CHANNELS) {
        return;
    }
    let weight = plane % CHANNELS * TAPS;
    let top = at % OUT_PIXELS / OUT_COLS * STRIDE_ROWS - PAD_TOP;
    let first = at % OUT_COLS * STRIDE_COLS - PAD_LEFT;
    var total = 0.0;
    for (var i = 0u; i < KERNEL_ROWS; i++) {
        for (var j = 0u; j < KERNEL_COLS; j++) {
            let x = pixel(plane / MULTIPLIER, top + i * DILATION_ROWS, first + j * DILATION_COLS);
            total = fma(f32(right[weight + i * KERNEL_COLS + j]), x, total);
        }
    }
    out[at] = out_t(total);
}

@compute @workgroup_size(256)
fn grad_input(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let at = (group.y * groups.x + group.x) * 256u + local;
    let plane = at / IN_PIXELS;
    if (plane >= dims.batch * GROUPS) {
        return;
    }
    let row = at % IN_PIXELS / IN_COLS + PAD_TOP;
    let col = at % IN_COLS + PAD_LEFT;
    var total = 0.0;
    for (var m = 0u; m < MULTIPLIER; m++) {
        let weight = (plane % GROUPS * MULTIPLIER + m) * TAPS;
        let base = (plane * MULTIPLIER + m) * OUT_PIXELS;
        for (var i = 0u; i < KERNEL_ROWS; i++) {
            // Windows above and left of the first are huge numbers and fail the tests.
            let down = row - i * DILATION_ROWS;
            let out_row = down / STRIDE_ROWS;
            for (var j = 0u; j < KERNEL_COLS; j++) {
                let across = col - j * DILATION_COLS;
                let out_col = across / STRIDE_COLS;
                let meets = out_row * STRIDE_ROWS == down && out_col * STRIDE_COLS == across;
                let inside = meets && out_row < OUT_ROWS && out_col < OUT_COLS;
                let dy = f32(right[select(0u, base + out_row * OUT_COLS + out_col, inside)]);
                total += select(0.0, f32(left[weight + i * KERNEL_COLS + j]) * dy, inside);
            }
        }
    }
    out[at] = out_t(total);
}

@compute @workgroup_size(256)
fn grad_weight(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let index = group.y * groups.x + group.x;
    let i = index % KERNEL_ROWS;
    let channel = index / KERNEL_ROWS % CHANNELS;
    let part = index / KERNEL_ROWS / CHANNELS;
    let terms = dims.batch * OUT_PIXELS;
    let each = (terms + dims.parts - 1u) / dims.parts;
    // @for j in KERNEL_COLS
    var acc_$j = 0.0;
    // @end
    for (var t = part * each + local; t < min((part + 1u) * each, terms); t += 256u) {
        let plane = t / OUT_PIXELS * CHANNELS + channel;
        let dy = f32(right[plane * OUT_PIXELS + t % OUT_PIXELS]);
        let row = t % OUT_PIXELS / OUT_COLS * STRIDE_ROWS + i * DILATION_ROWS - PAD_TOP;
        let first = t % OUT_COLS * STRIDE_COLS - PAD_LEFT;
        // @for j in KERNEL_COLS
        acc_$j = fma(dy, pixel(plane / MULTIPLIER, row, first + $ju * DILATION_COLS), acc_$j);
        // @end
    }
    // @for j in KERNEL_COLS
    {
        let total = workgroup_sum(acc_$j, local);
        if (local == 0u && part < dims.parts) {
            out[((part * CHANNELS + channel) * KERNEL_ROWS + i) * KERNEL_COLS + $ju] = out_t(total);
        }
    }
    // @end
}
