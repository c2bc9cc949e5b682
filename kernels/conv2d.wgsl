// @use lib/conv2d_tile
// Convolution: y[b, o, p] = Σ_k w[o, k]·x̃[k, (b, p)]; m = output channel of the group, n = (sample,
// output pixel), k = (input channel, kernel row, kernel column).

@group(0) @binding(2) var<storage, read_write> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> w: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

fn taps() -> u32 {
    return dims.cin * dims.kernel_rows * dims.kernel_cols;
}

fn load_a(m: u32, k: u32) -> f32 {
    if (m >= dims.cout) {
        return 0.0;
    }
    return w[(tile.channel_group * dims.cout + m) * taps() + k];
}

fn load_b(k: u32, n: u32) -> f32 {
    let pixels = dims.out_rows * dims.out_cols;
    if (n >= dims.batch * pixels) {
        return 0.0;
    }
    let sample = n / pixels;
    let out_row = (n % pixels) / dims.out_cols;
    let out_col = n % dims.out_cols;
    let area = dims.kernel_rows * dims.kernel_cols;
    let channel = k / area;
    // Rows above and columns left of the image wrap to huge numbers and fail the test.
    let row = out_row * dims.stride_rows + ((k % area) / dims.kernel_cols) * dims.dilation_rows - dims.pad_top;
    let col = out_col * dims.stride_cols + (k % dims.kernel_cols) * dims.dilation_cols - dims.pad_left;
    if (row >= dims.in_rows || col >= dims.in_cols) {
        return 0.0;
    }
    return x[(((sample * dims.groups + tile.channel_group) * dims.cin + channel) * dims.in_rows + row) * dims.in_cols + col];
}

fn store(m: u32, n: u32, value: f32) {
    let pixels = dims.out_rows * dims.out_cols;
    if (m < dims.cout && n < dims.batch * pixels && tile.channel_group < dims.groups && tile.part == 0u) {
        y[(((n / pixels) * dims.groups + tile.channel_group) * dims.cout + m) * pixels + n % pixels] = value;
    }
}

@compute @workgroup_size(256)
fn conv2d(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    tile = tile_of(group.y * groups.x + group.x, dims.cout, dims.batch * dims.out_rows * dims.out_cols);
    tile_product(0u, taps(), local);
}
