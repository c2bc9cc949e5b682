// @use lib/attention_matrix
// Attention on matrix units, forward: the first walk over the keys finds log Σ eˢ of each row, the
// second adds P·v with P = e^(s − log Σ eˢ), at most 1 and so safe in half precision. Operands and
// results as in attention.wgsl.

alias out_t = f32;

@group(0) @binding(2) var<storage, read_write> qkv: array<cell_t>;
@group(0) @binding(3) var<storage, read_write> out: array<out_t>;
@group(0) @binding(4) var<storage, read_write> lse: array<f32>;

@compute @workgroup_size(THREADS)
fn attention(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
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
    // @for d in FEATURES
    let q_$r_$d = coopLoadT<left_part>(&qkv[(q_row_$r + $du * SIDE) / CELL], stride / CELL);
    // @end
    // @end
    var last = dims.length;
    if (CAUSAL == 1u) {
        last = min(first + ROWS, dims.length);
    }
    let start = first_key(first, 32u);
    var top = -3.0e38;
    var total = 0.0;
    // @for q in QUADS
    var one_$q = block_quad(p, start, 1u, local + $qu * THREADS);
    // @end
    for (var key = start; key < last; key += 32u) {
        workgroupBarrier();
        // @for q in QUADS
        keep_one(one_$q, local + $qu * THREADS);
        // @end
        workgroupBarrier();
        // @for q in QUADS
        one_$q = block_quad(p, key + 32u, 1u, local + $qu * THREADS);
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
        var largest = top;
        // @for i in 32
        let c_$i = ($iu + lane) % 32u;
        let s_$i = select(-3.0e38, score(p.slope, scores[p.scores + lane * SCORES + c_$i], row, key + c_$i), is_seen(p.head_index, row, key + c_$i));
        largest = max(largest, s_$i);
        // @end
        total *= exp(max(top - largest, -100.0));
        top = largest;
        // @for i in 32
        total += select(0.0, exp(s_$i - top), s_$i > -2.0e38);
        // @end
    }
    // A query that sees nothing has a sum of 0: its result is 0.
    let log_sum = select(0.0, top, total > 0.0) + log(select(1.0, total, total > 0.0));
    if (row < dims.length) {
        lse[row_number(p, row)] = log_sum;
    }
    // @for r in STRIPS
    // @for d in FEATURES
    var o_$r_$d: sum_part;
    // @end
    // @end
    // @for q in QUADS
    one_$q = block_quad(p, start, 1u, local + $qu * THREADS);
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
        weights[p.weights + lane * WEIGHTS + c_$i] = f16(p_$i * kept_by(bits, c_$i));
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
                o_$r_$d = coopMultiplyAdd(w_$r, other, o_$r_$d);
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
            out[out_at(p, p.own + e / SIDE) + $du * SIDE + e % SIDE] = out_t(scores[p.scores + e / SIDE * SCORES + e % SIDE]);
        }
    }
    // @end
}
