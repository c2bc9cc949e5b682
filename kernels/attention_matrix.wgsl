// @use lib/attention_matrix
// Attention on matrix units, forward: the first walk over the keys finds log Σ eˢ of each row, the
// second adds P·v with P = e^(s − log Σ eˢ), at most 1 and so safe in half precision. Operands and
// results as in attention.wgsl.

alias out_t = f32;

@group(0) @binding(2) var<storage, read_write> qkv: array<f16>;
@group(0) @binding(3) var<storage, read_write> out: array<out_t>;
@group(0) @binding(4) var<storage, read_write> lse: array<f32>;

@compute @workgroup_size(128)
fn attention(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
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
    // @for d in FEATURES
    let q_$r_$d = coopLoadT<left_part>(&qkv[q_row_$r + $du * SIDE], stride);
    // @end
    // @end
    var last = dims.length;
    if (CAUSAL == 1u) {
        last = min(first + 128u, dims.length);
    }
    var top = -3.0e38;
    var total = 0.0;
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
        var largest = top;
        for (var i = 0u; i < 32u; i++) {
            let c = (i + lane) % 32u;
            let s = scores[p.scores + lane * SCORES + c] * dims.scale;
            largest = max(largest, select(-3.0e38, s, is_seen(row, key + c)));
        }
        total *= exp(max(top - largest, -100.0));
        top = largest;
        for (var i = 0u; i < 32u; i++) {
            let c = (i + lane) % 32u;
            let s = scores[p.scores + lane * SCORES + c] * dims.scale;
            total += select(0.0, exp(s - top), is_seen(row, key + c));
        }
        workgroupBarrier();
    }
    let log_sum = top + log(total);
    if (row < dims.length) {
        lse[row_number(p, row)] = log_sum;
    }
    // @for r in STRIPS
    // @for d in FEATURES
    var o_$r_$d: sum_part;
    // @end
    // @end
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
        for (var i = 0u; i < 32u; i++) {
            let c = (i + lane) % 32u;
            let s = scores[p.scores + lane * SCORES + c] * dims.scale;
            let value = select(0.0, exp(s - log_sum), is_seen(row, key + c));
            weights[p.weights + lane * WEIGHTS + c] = f16(value * kept(p.head_index, row, key + c));
        }
        workgroupBarrier();
        // @for c in STRIPS
        {
            let v_row = qkv_at(p, key + $cu * SIDE, 2u);
            // @for r in STRIPS
            let w_$r = coopLoadT<left_part>(&weights[p.weights + $ru * SIDE * WEIGHTS + $cu * SIDE], WEIGHTS);
            // @end
            // @for d in FEATURES
            {
                let v = coopLoadT<right_part>(&qkv[v_row + $du * SIDE], stride);
                // @for r in STRIPS
                o_$r_$d = coopMultiplyAdd(w_$r, v, o_$r_$d);
                // @end
            }
            // @end
        }
        // @end
    }
    // @for d in FEATURES
    workgroupBarrier();
    // @for r in STRIPS
    coopStoreT(o_$r_$d, &scores[p.scores + $ru * SIDE * SCORES], SCORES);
    // @end
    workgroupBarrier();
    for (var e = lane; e < 32u * SIDE; e += 32u) {
        if (p.own + e / SIDE < dims.length) {
            out[out_at(p, 0u) + (p.own + e / SIDE) * dims.width + $du * SIDE + e % SIDE] = out_t(scores[p.scores + e / SIDE * SCORES + e % SIDE]);
        }
    }
    // @end
}
