// @use lib/conv2d_tile
// The gradient of a convolution with respect to its input: dx[b, c, p] = Σ w[o, c, i, j]·dy[b, o, q]
// over the windows q whose tap (i, j) is pixel p; m = input channel of the group, n = (sample, input
// pixel), k = (output channel, kernel row, kernel column).

alias w_t = f32;
alias dy_t = f32;
alias dx_t = f32;

@group(0) @binding(2) var<storage, read_write> w: array<w_t>;
@group(0) @binding(3) var<storage, read_write> dy: array<dy_t>;
@group(0) @binding(4) var<storage, read_write> dx: array<dx_t>;

fn load_a(m: u32, k: u32, end: u32) -> vec4<tile_t> {
    var quad: vec4<tile_t>;
    // @for j in 4
    {
        let inside = m < CIN && k + $ju < end;
        let i = ((channel_group * COUT + (k + $ju) / AREA) * CIN + m) * AREA + (k + $ju) % AREA;
        quad[$j] = select(tile_t(), tile_t(w[select(0u, i, inside)]), inside);
    }
    // @end
    return quad;
}

fn load_b(k: u32, n: u32, end: u32) -> vec4<tile_t> {
    var quad: vec4<tile_t>;
    // Windows above and left of the first wrap to huge numbers and fail the tests.
    let down = PAD_TOP - ((k % AREA) / KERNEL_COLS) * DILATION_ROWS;
    let right = PAD_LEFT - (k % KERNEL_COLS) * DILATION_COLS;
    let channel = channel_group * COUT + k / AREA;
    if (IN_QUADS) {
        let sample = n / IN_PIXELS;
        let row = (n % IN_PIXELS) / IN_COLS + down;
        let col = n % IN_COLS + right;
        let inside = k < end && sample < dims.batch && row < OUT_ROWS;
        let base = ((sample * GROUPS * COUT + channel) * OUT_ROWS + row) * OUT_COLS + col;
        // @for j in 4
        {
            let met = inside && col + $ju < OUT_COLS;
            quad[$j] = select(tile_t(), tile_t(dy[select(0u, base + $ju, met)]), met);
        }
        // @end
        return quad;
    }
    // @for j in 4
    {
        let at = n + $ju;
        let sample = at / IN_PIXELS;
        let row = (at % IN_PIXELS) / IN_COLS + down;
        let col = at % IN_COLS + right;
        let out_row = row / STRIDE_ROWS;
        let out_col = col / STRIDE_COLS;
        let meets = out_row * STRIDE_ROWS == row && out_col * STRIDE_COLS == col;
        let inside = k < end && sample < dims.batch && meets && out_row < OUT_ROWS && out_col < OUT_COLS;
        let i = ((sample * GROUPS * COUT + channel) * OUT_ROWS + out_row) * OUT_COLS + out_col;
        quad[$j] = select(tile_t(), tile_t(dy[select(0u, i, inside)]), inside);
    }
    // @end
    return quad;
}

fn store(m: vec4<u32>, n: vec4<u32>, values: vec4<f32>) {
    let first = part * dims.batch * GROUPS * CIN * IN_PIXELS;
    let sample = n / IN_PIXELS;
    let at = first + ((sample * GROUPS + channel_group) * CIN + m) * IN_PIXELS + n % IN_PIXELS;
    // @for j in 4
    if (m[$j] < CIN && sample[$j] < dims.batch) {
        dx[at[$j]] = dx_t(values[$j]);
    }
    // @end
}

@compute @workgroup_size(THREADS)
fn grad_input(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let tile = place(group.y * groups.x + group.x);
    if (tile.z == 1u) {
        let terms = part_of(COUT * AREA);
        tile_product(tile.x, tile.y, terms.x, terms.y, local);
    }
}
