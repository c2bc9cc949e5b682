// @use lib/pool2d_window
// Average pooling of planes, one thread an output; and its gradient, one thread an input pixel
// that sums the shares of every window holding it.

alias input_t = f32;
alias out_t = f32;

@group(0) @binding(2) var<storage, read_write> input: array<input_t>;
@group(0) @binding(3) var<storage, read_write> out: array<out_t>;

fn divisor(o_row: u32, o_col: u32) -> f32 {
    if (dims.count_include_pad != 0u && ADAPTIVE == 0u) {
        let rows = min(dims.kernel_rows, dims.in_rows + 2u * dims.pad_rows - o_row * dims.stride_rows);
        let cols = min(dims.kernel_cols, dims.in_cols + 2u * dims.pad_cols - o_col * dims.stride_cols);
        return f32(rows * cols);
    }
    let rows = window_rows(o_row);
    let cols = window_cols(o_col);
    return f32((rows.y - rows.x) * (cols.y - cols.x));
}

@compute @workgroup_size(256)
fn avg_pool(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    let outs = dims.out_rows * dims.out_cols;
    if (i >= dims.planes * outs) {
        return;
    }
    let base = (i / outs) * dims.in_rows * dims.in_cols;
    let o_row = (i % outs) / dims.out_cols;
    let o_col = i % dims.out_cols;
    let rows = window_rows(o_row);
    let cols = window_cols(o_col);
    var total = 0.0;
    for (var row = rows.x; row < rows.y; row++) {
        for (var col = cols.x; col < cols.y; col++) {
            total += f32(input[base + row * dims.in_cols + col]);
        }
    }
    out[i] = out_t(total / divisor(o_row, o_col));
}

@compute @workgroup_size(256)
fn avg_pool_grad(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    let ins = dims.in_rows * dims.in_cols;
    if (i >= dims.planes * ins) {
        return;
    }
    let plane = i / ins;
    let rows = holder_rows((i % ins) / dims.in_cols);
    let cols = holder_cols(i % dims.in_cols);
    var total = 0.0;
    for (var row = rows.x; row < rows.y; row++) {
        for (var col = cols.x; col < cols.y; col++) {
            total += f32(input[(plane * dims.out_rows + row) * dims.out_cols + col]) / divisor(row, col);
        }
    }
    out[i] = out_t(total);
}
