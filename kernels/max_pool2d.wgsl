// @use lib/math
// @use lib/pool2d_window
// Max pooling of x [planes, in_rows, in_cols] to y [planes, out_rows, out_cols], one thread an
// output; and its gradient, one thread an input pixel that looks at every window holding it and
// takes the window's cotangent where it is the window's first largest element.

alias x_t = f32;
alias out_t = f32;
alias dy_t = f32;

@group(0) @binding(2) var<storage, read_write> x: array<x_t>;
// y in max_pool, dx in max_pool_grad.
@group(0) @binding(3) var<storage, read_write> out: array<out_t>;
@group(0) @binding(4) var<storage, read_write> dy: array<dy_t>;

// Index within the plane of a window's first largest element; a NaN is the largest.
fn argmax(base: u32, o_row: u32, o_col: u32) -> u32 {
    let rows = window_rows(o_row);
    let cols = window_cols(o_col);
    var best = rows.x * dims.in_cols + cols.x;
    var top = f32(x[base + best]);
    for (var row = rows.x; row < rows.y; row += dims.step_rows) {
        for (var col = cols.x; col < cols.y; col += dims.step_cols) {
            let at = row * dims.in_cols + col;
            if (f32(x[base + at]) > top || (is_nan(f32(x[base + at])) && !is_nan(top))) {
                top = f32(x[base + at]);
                best = at;
            }
        }
    }
    return best;
}

@compute @workgroup_size(256)
fn max_pool(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    let outs = dims.out_rows * dims.out_cols;
    if (i >= dims.planes * outs) {
        return;
    }
    let base = (i / outs) * dims.in_rows * dims.in_cols;
    out[i] = out_t(f32(x[base + argmax(base, (i % outs) / dims.out_cols, i % dims.out_cols)]));
}

@compute @workgroup_size(256)
fn max_pool_grad(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
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
            if (argmax(plane * ins, row, col) == i % ins) {
                total += f32(dy[(plane * dims.out_rows + row) * dims.out_cols + col]);
            }
        }
    }
    out[i] = out_t(total);
}
