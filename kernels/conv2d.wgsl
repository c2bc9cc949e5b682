// @use lib/conv2d_tile
// Convolution: y[b, o, p] = Σ_k w[o, k]·x̃[k, (b, p)]; m = output channel of the group, n = (sample,
// output pixel), k = (input channel, kernel row, kernel column).

alias x_t = f32;
alias w_t = f32;
alias y_t = f32;

@group(0) @binding(2) var<storage, read_write> x: array<x_t>;
@group(0) @binding(3) var<storage, read_write> w: array<w_t>;
@group(0) @binding(4) var<storage, read_write> y: array<y_t>;

fn load_a(m: u32, k: u32, end: u32) -> vec4<tile_t> {
    let base = (channel_group * COUT + min(m, COUT - 1u)) * TAPS;
    var quad: vec4<tile_t>;
    // @for j in 4
    quad[$j] = select(tile_t(), tile_t(w[base + min(k + $ju, TAPS - 1u)]), k + $ju < end);
    // @end
    return select(vec4<tile_t>(), quad, m < COUT);
}

fn load_b(k: u32, n: u32, end: u32) -> vec4<tile_t> {
    var quad: vec4<tile_t>;
    // Rows above and columns left of the image wrap to huge numbers and fail the test.
    let down = ((k % AREA) / KERNEL_COLS) * DILATION_ROWS - PAD_TOP;
    let right = (k % KERNEL_COLS) * DILATION_COLS - PAD_LEFT;
    let channel = channel_group * CIN + k / AREA;
    if (OUT_QUADS) {
        let sample = n / OUT_PIXELS;
        let row = (n % OUT_PIXELS) / OUT_COLS * STRIDE_ROWS + down;
        let col = n % OUT_COLS + right;
        let inside = k < end && sample < dims.batch && row < IN_ROWS;
        let base = ((sample * GROUPS * CIN + channel) * IN_ROWS + row) * IN_COLS + col;
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
        let at = n + $ju;
        let sample = at / OUT_PIXELS;
        let row = (at % OUT_PIXELS) / OUT_COLS * STRIDE_ROWS + down;
        let col = at % OUT_COLS * STRIDE_COLS + right;
        let inside = k < end && sample < dims.batch && row < IN_ROWS && col < IN_COLS;
        let i = ((sample * GROUPS * CIN + channel) * IN_ROWS + row) * IN_COLS + col;
        quad[$j] = select(tile_t(), tile_t(x[select(0u, i, inside)]), inside);
    }
    // @end
    return quad;
}

fn store(m: vec4<u32>, n: vec4<u32>, values: vec4<f32>) {
    let first = part * dims.batch * GROUPS * COUT * OUT_PIXELS;
    let sample = n / OUT_PIXELS;
    let at = first + ((sample * GROUPS + channel_group) * COUT + m) * OUT_PIXELS + n % OUT_PIXELS;
    // @for j in 4
    if (m[$j] < COUT && sample[$j] < dims.batch) {
        y[at[$j]] = y_t(values[$j]);
    }
    // @end
}

@compute @workgroup_size(THREADS)
fn conv2d(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let tile = place(group.y * groups.x + group.x);
    if (tile.z == 1u) {
        let terms = part_of(TAPS);
        tile_product(tile.x, tile.y, terms.x, terms.y, local);
    }
}
