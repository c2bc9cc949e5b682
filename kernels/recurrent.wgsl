// @use lib/recurrent
// @use lib/recurrent_whole
// @use lib/lstm_cell
// One step of a recurrent cell: s = h·Wᵀ for the h of the step before, [batch, time, hidden], and
// W [GATES * hidden, hidden]; then h of this step by the cell, which is a library of its own. A
// workgroup has 32 samples and all gates of 8 units; of each slice of 64 threads, a thread sums for
// the samples down, down + 8, … and one unit.

// Terms of the sums in workgroup memory at once, as quads.
const DEPTH: u32 = 16u;
const ROWS: u32 = 32u;
const WEIGHTS: u32 = ROWS * DEPTH;

alias x_t = f32;

@group(0) @binding(2) var<storage, read_write> x: array<x_t>;
@group(0) @binding(5) var<storage, read_write> kept: array<f32>;
@group(0) @binding(6) var<storage, read_write> bias: array<f32>;

fn fetch_state(first: u32, term: u32, e: u32) -> vec4<f32> {
    let sample = first + e / DEPTH;
    let k = term + (e % DEPTH) * 4u;
    if (sample >= dims.batch || k >= dims.hidden) {
        return vec4<f32>();
    }
    return state_quad(row_of(sample, dims.before) * dims.hidden + k, dims.hidden - k);
}

fn fetch_weight(first: u32, term: u32, e: u32) -> vec4<f32> {
    let gate = e / (8u * DEPTH);
    let unit = first + e / DEPTH % 8u;
    let k = term + (e % DEPTH) * 4u;
    if (gate >= GATES || unit >= dims.hidden || k >= dims.hidden) {
        return vec4<f32>();
    }
    return weight_quad((gate * dims.hidden + unit) * dims.hidden + k, dims.hidden - k);
}

// Where a quad lies in a row of the tile.
fn place(e: u32) -> u32 {
    return e ^ (e / DEPTH % 8u);
}

@compute @workgroup_size(256)
fn recurrent(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let first_sample = group.y * ROWS;
    let first_unit = group.x * 8u;
    let slice = local / 64u;
    let across = local % 8u;
    let down = local % 64u / 8u;
    // @for i in 4
    var acc_$i = vec4<f32>();
    // @end
    if (dims.before != NONE) {
        // @for i in 2
        var state_$i = fetch_state(first_sample, 0u, local + $iu * 256u);
        var weight_$i = fetch_weight(first_unit, 0u, local + $iu * 256u);
        // @end
        for (var term = 0u; term < dims.hidden; term += DEPTH * 4u) {
            // @for i in 2
            tile[place(local + $iu * 256u)] = state_$i;
            tile[WEIGHTS + place(local + $iu * 256u)] = weight_$i;
            // @end
            workgroupBarrier();
            // @for i in 2
            state_$i = fetch_state(first_sample, term + DEPTH * 4u, local + $iu * 256u);
            weight_$i = fetch_weight(first_unit, term + DEPTH * 4u, local + $iu * 256u);
            // @end
            // @for t in 4
            {
                let quad = slice + $tu * 4u;
                // @for i in 4
                let h_$i = tile[(down + $iu * 8u) * DEPTH + (quad ^ down)];
                // @end
                // @for g in GATES
                let w_$g = tile[WEIGHTS + ($gu * 8u + across) * DEPTH + (quad ^ across)];
                // @for i in 4
                // @for j in 4
                acc_$i[$g] = fma(h_$i[$j], w_$g[$j], acc_$i[$g]);
                // @end
                // @end
                // @end
            }
            // @end
            workgroupBarrier();
        }
    }
    // @for i in 4
    tile[slice * 256u + (down + $iu * 8u) * 8u + across] = acc_$i;
    // @end
    workgroupBarrier();
    var sums = tile[local];
    for (var s = 1u; s < 4u; s++) {
        sums += tile[s * 256u + local];
    }
    workgroupBarrier();
    let sample = first_sample + local / 8u;
    let unit = first_unit + local % 8u;
    var h = 0.0;
    if (sample < dims.batch && unit < dims.hidden) {
        // @for g in GATES
        sums[$g] += bias[$gu * dims.hidden + unit];
        // @end
        if (is_padded(sample)) {
            rest(sample, unit);
        } else {
            h = cell(sample, unit, sums);
        }
    }
    // A quad's parts are written in turns: a write to a part may touch all of it.
    // @for j in 4
    if (local % 4u == $ju) {
        tile[local / 4u][$j] = h;
    }
    workgroupBarrier();
    // @end
    let quad_sample = first_sample + local / 2u;
    let quad_unit = first_unit + local % 2u * 4u;
    if (local < 64u && quad_sample < dims.batch && quad_unit < dims.hidden) {
        store_state(row_of(quad_sample, dims.step) * dims.hidden + quad_unit, dims.hidden - quad_unit, tile[local]);
    }
}
