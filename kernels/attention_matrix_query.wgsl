// @use lib/attention_matrix
// Attention on matrix units, backward with respect to queries: as attention_grad_query.wgsl.

alias out_t = f32;
alias d_qkv_t = f32;

@group(0) @binding(2) var<storage, read_write> qkv: array<cell_t>;
@group(0) @binding(3) var<storage, read_write> out: array<out_t>;
@group(0) @binding(4) var<storage, read_write> lse: array<f32>;
@group(0) @binding(5) var<storage, read_write> d_out: array<cell_t>;
@group(0) @binding(6) var<storage, read_write> d_qkv: array<d_qkv_t>;
@group(0) @binding(7) var<storage, read_write> delta: array<f32>;

// δ of a row.
fn row_delta(p: Place, row: u32) -> f32 {
    let base = out_at(p, row_at(row));
    var total = 0.0;
    for (var d = 0u; d < HEAD; d += 4u) {
        let at = base + d;
        let cotangent = vec4<f32>(quad_of(d_out[at / CELL], d_out[(at + 1u) / CELL], d_out[(at + 2u) / CELL], d_out[(at + 3u) / CELL]));
        total += dot(vec4<f32>(f32(out[at]), f32(out[at + 1u]), f32(out[at + 2u]), f32(out[at + 3u])), cotangent);
    }
    return total;
}

@compute @workgroup_size(THREADS)
fn grad_query(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let tile = group.y * groups.x + group.x;
    let head_index = tile / tiles();
    let first = (tile % tiles()) * ROWS;
    if (head_index >= dims.heads_total) {
        return;
    }
    let p = place_of(head_index, first, local);
    let lane = local % 32u;
    let row = p.own + lane;
    let stride = 3u * dims.width;
    // @for r in STRIPS
    let q_row_$r = qkv_at(p, strip(p.own + $ru * SIDE), 0u);
    let o_row_$r = out_at(p, strip(p.own + $ru * SIDE));
    // @for d in FEATURES
    let q_$r_$d = coopLoadT<left_part>(&qkv[(q_row_$r + $du * SIDE) / CELL], stride / CELL);
    let o_$r_$d = coopLoadT<left_part>(&d_out[(o_row_$r + $du * SIDE) / CELL], dims.width / CELL);
    var dq_$r_$d: sum_part;
    // @end
    // @end
    let own_delta = row_delta(p, row);
    if (row < dims.length) {
        delta[row_number(p, row)] = own_delta;
    }
    let log_sum = lse[row_number(p, row)];
    var last = dims.length;
    if (CAUSAL == 1u) {
        last = min(first + ROWS, dims.length);
    }
    let start = first_key(first, 32u);
    // @for q in QUADS
    var one_$q = block_quad(p, start, 1u, local + $qu * THREADS);
    var two_$q = block_quad(p, start, 2u, local + $qu * THREADS);
    // @end
    for (var key = start; key < last; key += 32u) {
        workgroupBarrier();
        // @for q in QUADS
        keep_one(one_$q, local + $qu * THREADS);
        keep_two(two_$q, local + $qu * THREADS);
        // @end
        workgroupBarrier();
        // @for q in QUADS
        one_$q = block_quad(p, key + 32u, 1u, local + $qu * THREADS);
        two_$q = block_quad(p, key + 32u, 2u, local + $qu * THREADS);
        // @end
        // @for c in STRIPS
        {
            // @for r in STRIPS
            var s_$r: sum_part;
            // @end
            // @for d in FEATURES
            {
                let other = one_across($cu * SIDE, $du * SIDE);
                // @for r in STRIPS
                s_$r = coopMultiplyAdd(q_$r_$d, other, s_$r);
                // @end
            }
            // @end
            // @for r in STRIPS
            coopStoreT(s_$r, &scores[p.scores + $ru * SIDE * SCORES + $cu * SIDE], SCORES);
            // @end
        }
        // @end
        workgroupBarrier();
        let bits = kept_keys(p.head_index, row, key);
        // @for i in 32
        let c_$i = ($iu + lane) % 32u;
        let p_$i = select(0.0, exp(score(p.slope, scores[p.scores + lane * SCORES + c_$i], row, key + c_$i) - log_sum), is_seen(p.head_index, row, key + c_$i));
        // @end
        workgroupBarrier();
        // @for c in STRIPS
        {
            // @for r in STRIPS
            var s_$r: sum_part;
            // @end
            // @for d in FEATURES
            {
                let other = two_across($cu * SIDE, $du * SIDE);
                // @for r in STRIPS
                s_$r = coopMultiplyAdd(o_$r_$d, other, s_$r);
                // @end
            }
            // @end
            // @for r in STRIPS
            coopStoreT(s_$r, &scores[p.scores + $ru * SIDE * SCORES + $cu * SIDE], SCORES);
            // @end
        }
        // @end
        workgroupBarrier();
        // @for i in 32
        {
            let change = scores[p.scores + lane * SCORES + c_$i] * kept_by(bits, c_$i) - own_delta;
            weights[p.weights + lane * WEIGHTS + c_$i] = f16(p_$i * change * dims.scale);
        }
        // @end
        workgroupBarrier();
        // @for c in STRIPS
        {
            // @for r in STRIPS
            let w_$r = weights_at(p, $ru * SIDE, $cu * SIDE);
            // @end
            // @for d in FEATURES
            {
                let other = one_at($cu * SIDE, $du * SIDE);
                // @for r in STRIPS
                dq_$r_$d = coopMultiplyAdd(w_$r, other, dq_$r_$d);
                // @end
            }
            // @end
        }
        // @end
    }
    // @for d in FEATURES
    workgroupBarrier();
    // @for r in STRIPS
    coopStoreT(dq_$r_$d, &scores[p.scores + $ru * SIDE * SCORES], SCORES);
    // @end
    workgroupBarrier();
    for (var e = lane; e < 32u * SIDE; e += 32u) {
        if (p.own + e / SIDE < dims.length) {
            d_qkv[qkv_at(p, p.own + e / SIDE, 0u) + $du * SIDE + e % SIDE] = d_qkv_t(scores[p.scores + e / SIDE * SCORES + e % SIDE]);
        }
    }
    // @end
}
