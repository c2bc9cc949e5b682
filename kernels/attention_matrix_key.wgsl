// @use lib/attention_matrix
// Attention on matrix units, backward with respect to keys and values: as attention_grad_key.wgsl.
// Scores are transposed: a thread has a key's row, its columns are queries.

alias d_qkv_t = f32;

@group(0) @binding(2) var<storage, read_write> qkv: array<f16>;
@group(0) @binding(3) var<storage, read_write> lse: array<f32>;
@group(0) @binding(4) var<storage, read_write> d_out: array<f16>;
@group(0) @binding(5) var<storage, read_write> delta: array<f32>;
@group(0) @binding(6) var<storage, read_write> d_qkv: array<d_qkv_t>;

@compute @workgroup_size(128)
fn grad_key(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let tile = group.y * groups.x + group.x;
    let head_index = tile / tiles();
    let first = (tile % tiles()) * 128u;
    if (head_index >= dims.heads_total) {
        return;
    }
    let p = place_of(head_index, first, local);
    let lane = local % 32u;
    let row = p.own + lane;
    let stride = 3u * dims.width;
    // @for r in STRIPS
    let k_row_$r = qkv_at(p, p.own + $ru * SIDE, 1u);
    let v_row_$r = qkv_at(p, p.own + $ru * SIDE, 2u);
    // @for d in FEATURES
    var dk_$r_$d: sum_part;
    var dv_$r_$d: sum_part;
    // @end
    // @end
    var query = 0u;
    if (CAUSAL == 1u) {
        query = first;
    }
    for (; query < dims.length; query += 32u) {
        // @for c in STRIPS
        {
            let q_row = qkv_at(p, query + $cu * SIDE, 0u);
            // @for r in STRIPS
            var s_$r: sum_part;
            // @end
            // @for d in FEATURES
            {
                let q = coopLoad<right_part>(&qkv[q_row + $du * SIDE], stride);
                // @for r in STRIPS
                s_$r = coopMultiplyAdd(coopLoadT<left_part>(&qkv[k_row_$r + $du * SIDE], stride), q, s_$r);
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
        let c_$i = ($iu + lane) % 32u;
        let at_$i = row_number(p, query + c_$i);
        let p_$i = select(0.0, exp(scores[p.scores + lane * SCORES + c_$i] * dims.scale - lse[at_$i]), is_seen(query + c_$i, row));
        weights[p.weights + lane * WEIGHTS + c_$i] = f16(p_$i * kept(p.head_index, query + c_$i, row));
        // @end
        workgroupBarrier();
        // @for c in STRIPS
        {
            let o_row = out_at(p, query + $cu * SIDE);
            // @for r in STRIPS
            let w_$r = coopLoadT<left_part>(&weights[p.weights + $ru * SIDE * WEIGHTS + $cu * SIDE], WEIGHTS);
            var s_$r: sum_part;
            // @end
            // @for d in FEATURES
            {
                let o = coopLoadT<right_part>(&d_out[o_row + $du * SIDE], dims.width);
                let across = coopLoad<right_part>(&d_out[o_row + $du * SIDE], dims.width);
                // @for r in STRIPS
                dv_$r_$d = coopMultiplyAdd(w_$r, o, dv_$r_$d);
                s_$r = coopMultiplyAdd(coopLoadT<left_part>(&qkv[v_row_$r + $du * SIDE], stride), across, s_$r);
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
            let change = scores[p.scores + lane * SCORES + c_$i] * kept(p.head_index, query + c_$i, row) - delta[at_$i];
            weights[p.weights + lane * WEIGHTS + c_$i] = f16(p_$i * change * dims.scale);
        }
        // @end
        workgroupBarrier();
        // @for c in STRIPS
        {
            let q_row = qkv_at(p, query + $cu * SIDE, 0u);
            // @for r in STRIPS
            let w_$r = coopLoadT<left_part>(&weights[p.weights + $ru * SIDE * WEIGHTS + $cu * SIDE], WEIGHTS);
            // @end
            // @for d in FEATURES
            {
                let q = coopLoadT<right_part>(&qkv[q_row + $du * SIDE], stride);
                // @for r in STRIPS
                dk_$r_$d = coopMultiplyAdd(w_$r, q, dk_$r_$d);
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
            let to = qkv_at(p, 0u, 1u) + (p.own + e / SIDE) * stride + $du * SIDE + e % SIDE;
            d_qkv[to] = d_qkv_t(scores[p.scores + e / SIDE * SCORES + e % SIDE]);
            d_qkv[to + dims.width] = d_qkv_t(scores[p.scores + e / SIDE * SCORES + SIDE + e % SIDE]);
        }
    }
    // @end
}
