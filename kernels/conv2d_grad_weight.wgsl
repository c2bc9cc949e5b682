// @use lib/conv2d_tile
// The gradient of a convolution with respect to its weight: dw[o, k] = Σ dy[o, (b, p)]·x̃[k, (b, p)];
// m = output channel of the group, n = (input channel, kernel row, kernel column), summed over
// (sample, output pixel) in parts: out [parts, groups, cout, taps].

alias x_t = f32;
alias dy_t = f32;
alias dw_t = f32;

@group(0) @binding(2) var<storage, read_write> x: array<x_t>;
@group(0) @binding(3) var<storage, read_write> dy: array<dy_t>;
@group(0) @binding(4) var<storage, read_write> dw: array<dw_t>;

fn load_a(m: u32, k: u32, end: u32) -> vec4<tile_t> {
    var quad: vec4<tile_t>;
    if (OUT_PIXELS % 4u == 0u) {
        let inside = m < COUT && k < end;
        let base = ((k / OUT_PIXELS * GROUPS + channel_group) * COUT + m) * OUT_PIXELS + k % OUT_PIXELS;
        // @for j in 4
        quad[$j] = select(tile_t(), tile_t(dy[select(0u, base + $ju, inside)]), inside);
        // @end
        return quad;
    }
    // @for j in 4
    {
        let inside = m < COUT && k + $ju < end;
        let sample = (k + $ju) / OUT_PIXELS;
        let i = ((sample * GROUPS + channel_group) * COUT + m) * OUT_PIXELS + (k + $ju) % OUT_PIXELS;
        quad[$j] = select(tile_t(), tile_t(dy[select(0u, i, inside)]), inside);
    }
    // @end
    return quad;
}

fn load_b(k: u32, n: u32, end: u32) -> vec4<tile_t> {
    var quad: vec4<tile_t>;
    let down = ((n % AREA) / KERNEL_COLS) * DILATION_ROWS - PAD_TOP;
    let right = (n % KERNEL_COLS) * DILATION_COLS - PAD_LEFT;
    let channel = channel_group * CIN + n / AREA;
    if (OUT_QUADS) {
        let row = (k % OUT_PIXELS) / OUT_COLS * STRIDE_ROWS + down;
        let col = k % OUT_COLS + right;
        let inside = n < TAPS && k < end && row < IN_ROWS;
        let base = ((k / OUT_PIXELS * GROUPS * CIN + channel) * IN_ROWS + row) * IN_COLS + col;
        // @for j in 4
        {
            let met = inside && col + $ju < IN_COLS;
            quad[$j] = select(tile_t(), tile_t(x[select(0u, base + $ju, met)]), met);
        }
        // @end
        return quad;
    }
    // @for j in 4
    {
        let at = k + $ju;
        let row = (at % OUT_PIXELS) / OUT_COLS * STRIDE_ROWS + down;
        let col = at % OUT_COLS * STRIDE_COLS + right;
        let inside = n < TAPS && at < end && row < IN_ROWS && col < IN_COLS;
        let i = ((at / OUT_PIXELS * GROUPS * CIN + channel) * IN_ROWS + row) * IN_COLS + col;
        quad[$j] = select(tile_t(), tile_t(x[select(0u, i, inside)]), inside);
    }
    // @end
    return quad;
}

fn store(m: vec4<u32>, n: vec4<u32>, values: vec4<f32>) {
    let at = ((part * GROUPS + channel_group) * COUT + m) * TAPS + n;
    // @for j in 4
    if (m[$j] < COUT && n[$j] < TAPS) {
        dw[at[$j]] = dw_t(values[$j]);
    }
    // @end
}

@compute @workgroup_size(THREADS)
fn grad_weight(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let tile = place(group.y * groups.x + group.x);
    if (tile.z == 1u) {
        let terms = part_of(dims.batch * OUT_PIXELS);
        tile_product(tile.x, tile.y, terms.x, terms.y, local);
    }
}
