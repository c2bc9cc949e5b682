// @use lib/conv2d_tile
// The gradient of a convolution with respect to its weight: dw[o, k] = Σ dy[o, (b, p)]·x̃[k, (b, p)];
// m = output channel of the group, n = (input channel, kernel row, kernel column), summed over
// (sample, output pixel) in `parts` parts: out [parts, groups, cout, taps].

@group(0) @binding(2) var<storage, read_write> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> dy: array<f32>;
@group(0) @binding(4) var<storage, read_write> dw: array<f32>;

fn taps() -> u32 {
    return dims.cin * dims.kernel_rows * dims.kernel_cols;
}

fn load_a(m: u32, k: u32) -> f32 {
    let pixels = dims.out_rows * dims.out_cols;
    if (m >= dims.cout) {
        return 0.0;
    }
    return dy[(((k / pixels) * dims.groups + tile.channel_group) * dims.cout + m) * pixels + k % pixels];
}

fn load_b(k: u32, n: u32) -> f32 {
    let pixels = dims.out_rows * dims.out_cols;
    if (n >= taps()) {
        return 0.0;
    }
    let area = dims.kernel_rows * dims.kernel_cols;
    let row = ((k % pixels) / dims.out_cols) * dims.stride_rows + ((n % area) / dims.kernel_cols) * dims.dilation_rows - dims.pad_top;
    let col = (k % dims.out_cols) * dims.stride_cols + (n % dims.kernel_cols) * dims.dilation_cols - dims.pad_left;
    if (row >= dims.in_rows || col >= dims.in_cols) {
        return 0.0;
    }
    let channel = ((k / pixels) * dims.groups + tile.channel_group) * dims.cin + n / area;
    return x[(channel * dims.in_rows + row) * dims.in_cols + col];
}

fn store(m: u32, n: u32, value: f32) {
    if (m < dims.cout && n < taps() && tile.part < dims.parts) {
        dw[((tile.part * dims.groups + tile.channel_group) * dims.cout + m) * taps() + n] = value;
    }
}

@compute @workgroup_size(256)
fn grad_weight(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    tile = tile_of(group.y * groups.x + group.x, dims.cout, taps());
    let terms = dims.batch * dims.out_rows * dims.out_cols;
    let each = (terms + dims.parts - 1u) / dims.parts;
    tile_product(min(tile.part * each, terms), min((tile.part + 1u) * each, terms), local);
}
