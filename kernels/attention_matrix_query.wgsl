// @use lib/attention_matrix
// Attention on matrix units, backward with respect to queries: as attention_grad_query.wgsl.

alias out_t = f32;
alias d_qkv_t = f32;

@group(0) @binding(2) var<storage, read_write> qkv: array<f16>;
@group(0) @binding(3) var<storage, read_write> out: array<out_t>;
@group(0) @binding(4) var<storage, read_write> lse: array<f32>;
@group(0) @binding(5) var<storage, read_write> d_out: array<f16>;
@group(0) @binding(6) var<storage, read_write> d_qkv: array<d_qkv_t>;
@group(0) @binding(7) var<storage, read_write> delta: array<f32>;

// δ of a row.
fn row_delta(p: Place, row: u32) -> f32 {
    let base = (p.sample * dims.length + min(row, dims.length - 1u)) * dims.width + p.column;
    var total = 0.0;
    for (var d = 0u; d < HEAD; d++) {
        total += f32(out[base + d]) * f32(d_out[base + d]);
    }
    return total;
}

@compute @workgroup_size(128)
fn grad_query(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
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
    let q_row_$r = qkv_at(p, p.own + $ru * SIDE, 0u);
    let o_row_$r = out_at(p, p.own + $ru * SIDE);
    // @for d in FEATURES
    let q_$r_$d = coopLoadT<left_part>(&qkv[q_row_$r + $du * SIDE], stride);
    let o_$r_$d = coopLoadT<left_part>(&d_out[o_row_$r + $du * SIDE], dims.width);
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
        last = min(first + 128u, dims.length);
    }
    for (var key = 0u; key < last; key += 32u) {
        // @for c in STRIPS
        {
            let k_row = qkv_at(p, key + $cu * SIDE, 1u);
            // @for r in STRIPS
            var s_$r: sum_part;
            // @end
            // @for d in FEATURES
            {
                let k = coopLoad<right_part>(&qkv[k_row + $du * SIDE], stride);
                // @for r in STRIPS
                s_$r = coopMultiplyAdd(q_$r_$d, k, s_$r);
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
        let p_$i = select(0.0, exp(scores[p.scores + lane * SCORES + c_$i] * dims.scale - log_sum), is_seen(row, key + c_$i));
        // @end
        workgroupBarrier();
        // @for c in STRIPS
        {
            let v_row = qkv_at(p, key + $cu * SIDE, 2u);
            // @for r in STRIPS
            var s_$r: sum_part;
            // @end
            // @for d in FEATURES
            {
                let v = coopLoad<right_part>(&qkv[v_row + $du * SIDE], stride);
                // @for r in STRIPS
                s_$r = coopMultiplyAdd(o_$r_$d, v, s_$r);
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
            let change = scores[p.scores + lane * SCORES + c_$i] * kept(p.head_index, row, key + c_$i) - own_delta;
            weights[p.weights + lane * WEIGHTS + c_$i] = f16(p_$i * change * dims.scale);
        }
        // @end
        workgroupBarrier();
        // @for c in STRIPS
        {
            let k_row = qkv_at(p, key + $cu * SIDE, 1u);
            // @for r in STRIPS
            let w_$r = coopLoadT<left_part>(&weights[p.weights + $ru * SIDE * WEIGHTS + $cu * SIDE], WEIGHTS);
            // @end
            // @for d in FEATURES
            {
                let k = coopLoadT<right_part>(&qkv[k_row + $du * SIDE], stride);
                // @for r in STRIPS
                dq_$r_$d = coopMultiplyAdd(w_$r, k, dq_$r_$d);
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
            d_qkv[qkv_at(p, 0u, 0u) + (p.own + e / SIDE) * stride + $du * SIDE + e % SIDE] = d_qkv_t(scores[p.scores + e / SIDE * SCORES + e % SIDE]);
        }
    }
    // @end
}
