// @use lib/recurrent
// @use lib/lstm_cell_grad
// One step back of a recurrent cell: dh = d_h + d_s·W for the d_s of the step after,
// [batch, time, GATES * hidden], and W [GATES * hidden, hidden]; then d_s of this step by the
// cell's gradient, which is a library of its own. A workgroup has 16 samples and 16 units; of each
// slice of 16 threads, a thread sums for the samples down, down + 4, … and a quad of units.

// Terms of the sums in workgroup memory at once, as quads.
const DEPTH: u32 = 32u;
const ROWS: u32 = 16u;
const WEIGHTS: u32 = ROWS * DEPTH;

alias d_h_t = f32;

@group(0) @binding(2) var<storage, read_write> d_h: array<d_h_t>;
@group(0) @binding(5) var<storage, read_write> kept: array<f32>;

fn fetch_state(first: u32, term: u32, e: u32) -> vec4<f32> {
    let terms = GATES * dims.hidden;
    let sample = first + e / DEPTH;
    let k = term + (e % DEPTH) * 4u;
    if (sample >= dims.batch || k >= terms) {
        return vec4<f32>();
    }
    return state_quad(row_of(sample, dims.after) * terms + k, terms - k);
}

fn fetch_weight(first: u32, term: u32, e: u32) -> vec4<f32> {
    let k = term + e / 4u;
    let unit = first + e % 4u * 4u;
    if (k >= GATES * dims.hidden || unit >= dims.hidden) {
        return vec4<f32>();
    }
    return weight_quad(k * dims.hidden + unit, dims.hidden - unit);
}

@compute @workgroup_size(256)
fn recurrent_grad(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let first_sample = group.y * ROWS;
    let first_unit = group.x * 16u;
    let slice = local / 16u;
    let across = local % 4u;
    let down = local % 16u / 4u;
    // @for i in 4
    var acc_$i = vec4<f32>();
    // @end
    if (dims.after != NONE) {
        // @for i in 2
        var state_$i = fetch_state(first_sample, 0u, local + $iu * 256u);
        var weight_$i = fetch_weight(first_unit, 0u, local + $iu * 256u);
        // @end
        for (var term = 0u; term < GATES * dims.hidden; term += DEPTH * 4u) {
            // @for i in 2
            {
                let e = local + $iu * 256u;
                tile[e ^ (e / DEPTH % 4u * 2u)] = state_$i;
                tile[WEIGHTS + (e ^ (e / 16u % 2u * 4u))] = weight_$i;
            }
            // @end
            workgroupBarrier();
            // @for i in 2
            state_$i = fetch_state(first_sample, term + DEPTH * 4u, local + $iu * 256u);
            weight_$i = fetch_weight(first_unit, term + DEPTH * 4u, local + $iu * 256u);
            // @end
            // @for t in 2
            {
                let quad = slice + $tu * 16u;
                // @for i in 4
                let d_$i = tile[(down + $iu * 4u) * DEPTH + (quad ^ (down * 2u))];
                // @end
                // @for j in 4
                let w_$j = tile[WEIGHTS + ((quad * 4u + $ju) ^ (quad % 2u)) * 4u + across];
                // @for i in 4
                acc_$i = fma(vec4<f32>(d_$i[$j]), w_$j, acc_$i);
                // @end
                // @end
            }
            // @end
            workgroupBarrier();
        }
    }
    // @for i in 4
    tile[slice * 64u + (down + $iu * 4u) * 4u + across] = acc_$i;
    // @end
    workgroupBarrier();
    var dh = 0.0;
    for (var s = 0u; s < 16u; s++) {
        dh += tile[s * 64u + local / 4u][local % 4u];
    }
    workgroupBarrier();
    let sample = first_sample + local / 16u;
    let unit = first_unit + local % 16u;
    var d_s = vec4<f32>();
    if (sample < dims.batch && unit < dims.hidden) {
        d_s = cell_grad(sample, unit, dh + f32(d_h[row_of(sample, dims.step) * dims.hidden + unit]));
    }
    // A quad's parts are written in turns: a write to a part may touch all of it.
    // @for j in 4
    if (local % 4u == $ju) {
        // @for g in GATES
        tile[$gu * 64u + local / 4u][$j] = d_s[$g];
        // @end
    }
    workgroupBarrier();
    // @end
    let gate = local / 64u;
    let quad_sample = first_sample + local % 64u / 4u;
    let quad_unit = first_unit + local % 4u * 4u;
    if (gate < GATES && quad_sample < dims.batch && quad_unit < dims.hidden) {
        let to = (row_of(quad_sample, dims.step) * GATES + gate) * dims.hidden + quad_unit;
        store_state(to, dims.hidden - quad_unit, tile[local]);
    }
}
