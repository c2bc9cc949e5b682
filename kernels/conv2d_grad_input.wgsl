// @use lib/conv2d_tile
// The gradient of a convolution with respect to its input: dx[b, c, p] = Σ w[o, c, i, j]·dy[b, o, q]
// over the windows q whose tap (i, j) is pixel p; m = input channel of the group, n = (sample, input
// pixel), k = (output channel, kernel row, kernel column).

@group(0) @binding(2) var<storage, read_write> w: array<f32>;
@group(0) @binding(3) var<storage, read_write> dy: array<f32>;
@group(0) @binding(4) var<storage, read_write> dx: array<f32>;

fn load_a(m: u32, k: u32) -> f32 {
    if (m >= dims.cin) {
        return 0.0;
    }
    let area = dims.kernel_rows * dims.kernel_cols;
    return w[((tile.channel_group * dims.cout + k / area) * dims.cin + m) * area + k % area];
}

fn load_b(k: u32, n: u32) -> f32 {
    let pixels = dims.in_rows * dims.in_cols;
    if (n >= dims.batch * pixels) {
        return 0.0;
    }
    let area = dims.kernel_rows * dims.kernel_cols;
    // Windows above and left of the first wrap to huge numbers and fail the tests.
    let row = (n % pixels) / dims.in_cols + dims.pad_top - ((k % area) / dims.kernel_cols) * dims.dilation_rows;
    let col = n % dims.in_cols + dims.pad_left - (k % dims.kernel_cols) * dims.dilation_cols;
    let out_row = row / dims.stride_rows;
    let out_col = col / dims.stride_cols;
    if (out_row * dims.stride_rows != row || out_col * dims.stride_cols != col || out_row >= dims.out_rows || out_col >= dims.out_cols) {
        return 0.0;
    }
    let channel = ((n / pixels) * dims.groups + tile.channel_group) * dims.cout + k / area;
    return dy[(channel * dims.out_rows + out_row) * dims.out_cols + out_col];
}

fn store(m: u32, n: u32, value: f32) {
    let pixels = dims.in_rows * dims.in_cols;
    if (m < dims.cin && n < dims.batch * pixels && tile.channel_group < dims.groups && tile.part == 0u) {
        dx[(((n / pixels) * dims.groups + tile.channel_group) * dims.cin + m) * pixels + n % pixels] = value;
    }
}

@compute @workgroup_size(256)
fn grad_input(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    tile = tile_of(group.y * groups.x + group.x, dims.cin, dims.batch * dims.in_rows * dims.in_cols);
    tile_product(0u, dims.cout * dims.kernel_rows * dims.kernel_cols, local);
}
