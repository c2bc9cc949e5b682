// @use lib/attention_matrix
// Attention on matrix units, backward with respect to keys and values: as attention_grad_key.wgsl.
// Scores are transposed: a thread has a key's row, its columns are queries.

alias d_qkv_t = f32;

@group(0) @binding(2) var<storage, read_write> qkv: array<cell_t>;
@group(0) @binding(3) var<storage, read_write> lse: array<f32>;
@group(0) @binding(4) var<storage, read_write> d_out: array<cell_t>;
@group(0) @binding(5) var<storage, read_write> delta: array<f32>;
@group(0) @binding(6) var<storage, read_write> d_qkv: array<d_qkv_t>;

fn d_out_block(p: Place, first: u32, quad: u32) -> vec4<f16> {
    let at = out_at(p, row_at(first + row_of(quad))) + feature_of(quad);
    return quad_of(d_out[at / CELL], d_out[(at + 1u) / CELL], d_out[(at + 2u) / CELL], d_out[(at + 3u) / CELL]);
}

@compute @workgroup_size(THREADS)
fn grad_key(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
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
    let k_row_$r = qkv_at(p, strip(p.own + $ru * SIDE), 1u);
    let v_row_$r = qkv_at(p, strip(p.own + $ru * SIDE), 2u);
    // @for d in FEATURES
    let k_$r_$d = coopLoadT<left_part>(&qkv[(k_row_$r + $du * SIDE) / CELL], stride / CELL);
    let v_$r_$d = coopLoadT<left_part>(&qkv[(v_row_$r + $du * SIDE) / CELL], stride / CELL);
    var dk_$r_$d: sum_part;
    var dv_$r_$d: sum_part;
    // @end
    // @end
    var query = 0u;
    var last = dims.length;
    if (CAUSAL == 1u) {
        query = first;
        last = min(dims.length, first + ROWS + dims.window);
    }
    // @for q in QUADS
    var one_$q = block_quad(p, query, 0u, local + $qu * THREADS);
    var two_$q = d_out_block(p, query, local + $qu * THREADS);
    // @end
    for (; query < last; query += 32u) {
        workgroupBarrier();
        // @for q in QUADS
        keep_one(one_$q, local + $qu * THREADS);
        keep_two(two_$q, local + $qu * THREADS);
        // @end
        workgroupBarrier();
        // @for q in QUADS
        one_$q = block_quad(p, query + 32u, 0u, local + $qu * THREADS);
        two_$q = d_out_block(p, query + 32u, local + $qu * THREADS);
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
                s_$r = coopMultiplyAdd(k_$r_$d, other, s_$r);
                // @end
            }
            // @end
            // @for r in STRIPS
            coopStoreT(s_$r, &scores[p.scores + $ru * SIDE * SCORES + $cu * SIDE], SCORES);
            // @end
        }
        // @end
        workgroupBarrier();
        let bits = kept_queries(p.head_index, query, row);
        // @for i in 32
        let c_$i = ($iu + lane) % 32u;
        let p_$i = f16(select(0.0, exp(score(p.slope, scores[p.scores + lane * SCORES + c_$i], query + c_$i, row) - lse[row_number(p, query + c_$i)]), is_seen(p.head_index, query + c_$i, row)));
        weights[p.weights + lane * WEIGHTS + c_$i] = f16(f32(p_$i) * kept_by(bits, c_$i));
        // @end
        workgroupBarrier();
        // @for c in STRIPS
        {
            // @for r in STRIPS
            let w_$r = weights_at(p, $ru * SIDE, $cu * SIDE);
            // @end
            // @for d in FEATURES
            {
                let other = two_at($cu * SIDE, $du * SIDE);
                // @for r in STRIPS
                dv_$r_$d = coopMultiplyAdd(w_$r, other, dv_$r_$d);
                // @end
            }
            // @end
        }
        // @end
        // @for c in STRIPS
        {
            // @for r in STRIPS
            var s_$r: sum_part;
            // @end
            // @for d in FEATURES
            {
                let other = two_across($cu * SIDE, $du * SIDE);
                // @for r in STRIPS
                s_$r = coopMultiplyAdd(v_$r_$d, other, s_$r);
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
            let change = scores[p.scores + lane * SCORES + c_$i] * kept_by(bits, c_$i) - delta[row_number(p, query + c_$i)];
            weights[p.weights + lane * WEIGHTS + c_$i] = f16(f32(p_$i) * change * dims.scale);
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
                dk_$r_$d = coopMultiplyAdd(w_$r, other, dk_$r_$d);
                // @end
            }
            // @end
        }
        // @end
    }
    // @for d in FEATURES
    workgroupBarrier();
    // @for r in STRIPS
    coopStoreT(dk_$r_$d, &scores[p.scores + $ru * SIDE * SCORES], SCORES);
    coopStoreT(dv_$r_$d, &scores[p.scores + $ru * SIDE * SCORES + SIDE], SCORES);
    // @end
    workgroupBarrier();
    for (var e = lane; e < 32u * SIDE; e += 32u) {
        if (p.own + e / SIDE < dims.length) {
            let to = qkv_at(p, p.own + e / SIDE, 1u) + $du * SIDE + e % SIDE;
            d_qkv[to] = d_qkv_t(scores[p.scores + e / SIDE * SCORES + e % SIDE]);
            d_qkv[to + dims.width] = d_qkv_t(scores[p.scores + e / SIDE * SCORES + SIDE + e % SIDE]);
        }
    }
    // @end
}
