// @use lib/attention_grad_tile
// Attention, backward with respect to queries; a workgroup owns a tile of queries of one head and
// walks over the tiles of keys that they see. P is computed again from the row's log-sum:
//   dq += ds·k,   ds = P ⊙ (mask ⊙ (d_out·vᵀ) − δ)·scale,   δ = Σ d_out ⊙ out (kept for the keys).

alias qkv_t = f32;
alias out_t = f32;
alias d_out_t = f32;
alias d_qkv_t = f32;

@group(0) @binding(2) var<storage, read_write> qkv: array<qkv_t>;
@group(0) @binding(3) var<storage, read_write> out: array<out_t>;
@group(0) @binding(4) var<storage, read_write> lse: array<f32>;
@group(0) @binding(5) var<storage, read_write> d_out: array<d_out_t>;
@group(0) @binding(6) var<storage, read_write> d_qkv: array<d_qkv_t>;
@group(0) @binding(7) var<storage, read_write> delta: array<f32>;

var<workgroup> deltas: array<f32, BLOCK>;

// δ of a row.
fn row_delta(p: Place, row: u32) -> f32 {
    var total = 0.0;
    if (row < dims.length) {
        let base = (p.sample * dims.length + row) * dims.width + p.column;
        for (var d = 0u; d < HEAD; d++) {
            total += f32(out[base + d]) * f32(d_out[base + d]);
        }
        delta[p.head_index * dims.length + row] = total;
    }
    return total;
}

@compute @workgroup_size(64)
fn grad_query(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let p = place_of(group.y * groups.x + group.x);
    if (p.head_index >= dims.heads_total) {
        return;
    }
    let across = local % 8u;
    let down = local / 8u;
    keep_own(p, 0u, local);
    for (var e = local; e < BLOCK * QUADS; e += THREADS) {
        own_too[e / QUADS * STRIDE + e % QUADS] = d_out_quad(p, p.first + e / QUADS, e % QUADS);
    }
    if (local < BLOCK) {
        deltas[local] = row_delta(p, p.first + local);
    }
    // @for i in MINE
    let lse_$i = lse[row_number(p, p.first + down + $iu * 8u)];
    // @for w in OWN
    var acc_$i_$w = vec4<f32>();
    // @end
    // @end
    var last = dims.length;
    if (CAUSAL == 1u) {
        last = min(p.first + BLOCK, dims.length);
    }
    for (var key = first_key(p.first, BLOCK); key < last; key += BLOCK) {
        workgroupBarrier();
        keep_other(p, key, 2u, local);
        workgroupBarrier();
        // @for i in MINE
        // @for j in MINE
        var d_$i_$j = 0.0;
        var s_$i_$j = 0.0;
        // @end
        // @end
        for (var quad = 0u; quad < QUADS; quad++) {
            // @for j in MINE
            let v_$j = other[(across + $ju * 8u) * STRIDE + quad];
            // @end
            // @for i in MINE
            let o_$i = own_too[(down + $iu * 8u) * STRIDE + quad];
            // @for j in MINE
            d_$i_$j += dot(o_$i, v_$j);
            // @end
            // @end
        }
        workgroupBarrier();
        keep_other(p, key, 1u, local);
        workgroupBarrier();
        for (var quad = 0u; quad < QUADS; quad++) {
            // @for j in MINE
            let k_$j = other[(across + $ju * 8u) * STRIDE + quad];
            // @end
            // @for i in MINE
            let q_$i = own[(down + $iu * 8u) * STRIDE + quad];
            // @for j in MINE
            s_$i_$j += dot(q_$i, k_$j);
            // @end
            // @end
        }
        // @for i in MINE
        // @for j in MINE
        {
            let row = down + $iu * 8u;
            let column = across + $ju * 8u;
            let seen = is_seen(p.head_index, p.first + row, key + column);
            let value = select(0.0, exp(score(p.slope, s_$i_$j, p.first + row, key + column) - lse_$i), seen);
            let mask = kept(p.head_index, p.first + row, key + column);
            weights[row * WEIGHTS + column] = value * (d_$i_$j * mask - deltas[row]) * dims.scale;
        }
        // @end
        // @end
        workgroupBarrier();
        for (var four = 0u; four < BLOCK / 4u; four++) {
            // @for i in MINE
            let w_$i = weights_quad(down + $iu * 8u, four);
            // @end
            // @for u in 4
            // @for w in OWN
            let k_$u_$w = other[(four * 4u + $uu) * STRIDE + across + $wu * 8u];
            // @for i in MINE
            acc_$i_$w = fma(vec4<f32>(w_$i[$u]), k_$u_$w, acc_$i_$w);
            // @end
            // @end
            // @end
        }
    }
    // @for i in MINE
    // @for w in OWN
    store_quad(p, p.first + down + $iu * 8u, 0u, across + $wu * 8u, acc_$i_$w);
    // @end
    // @end
}
