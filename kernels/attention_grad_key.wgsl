// @use lib/attention_grad_tile
// Attention, backward with respect to keys and values; a workgroup owns a tile of keys of one head
// and walks over the tiles of queries that see them:
//   dv += (mask ⊙ P)ᵀ·d_out,   dk += dsᵀ·q,   ds = P ⊙ (mask ⊙ (d_out·vᵀ) − δ)·scale.

alias qkv_t = f32;
alias d_out_t = f32;
alias d_qkv_t = f32;

@group(0) @binding(2) var<storage, read_write> qkv: array<qkv_t>;
@group(0) @binding(3) var<storage, read_write> lse: array<f32>;
@group(0) @binding(4) var<storage, read_write> d_out: array<d_out_t>;
@group(0) @binding(5) var<storage, read_write> delta: array<f32>;
@group(0) @binding(6) var<storage, read_write> d_qkv: array<d_qkv_t>;

@compute @workgroup_size(64)
fn grad_key(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let p = place_of(group.y * groups.x + group.x);
    if (p.head_index >= dims.heads_total) {
        return;
    }
    let across = local % 8u;
    let down = local / 8u;
    keep_own(p, 1u, local);
    for (var e = local; e < BLOCK * QUADS; e += THREADS) {
        own_too[e / QUADS * STRIDE + e % QUADS] = qkv_quad(p, p.first + e / QUADS, 2u, e % QUADS);
    }
    // @for i in MINE
    // @for w in OWN
    var d_key_$i_$w = vec4<f32>();
    var d_value_$i_$w = vec4<f32>();
    // @end
    // @end
    var query = 0u;
    var last = dims.length;
    if (CAUSAL == 1u) {
        query = p.first;
        last = min(dims.length, p.first + BLOCK + dims.window);
    }
    for (; query < last; query += BLOCK) {
        workgroupBarrier();
        keep_other(p, query, 0u, local);
        workgroupBarrier();
        // @for i in MINE
        // @for j in MINE
        var s_$i_$j = 0.0;
        var d_$i_$j = 0.0;
        // @end
        // @end
        for (var quad = 0u; quad < QUADS; quad++) {
            // @for j in MINE
            let q_$j = other[(across + $ju * 8u) * STRIDE + quad];
            // @end
            // @for i in MINE
            let k_$i = own[(down + $iu * 8u) * STRIDE + quad];
            // @for j in MINE
            s_$i_$j += dot(k_$i, q_$j);
            // @end
            // @end
        }
        workgroupBarrier();
        for (var e = local; e < BLOCK * QUADS; e += THREADS) {
            other[e / QUADS * STRIDE + e % QUADS] = d_out_quad(p, query + e / QUADS, e % QUADS);
        }
        workgroupBarrier();
        for (var quad = 0u; quad < QUADS; quad++) {
            // @for j in MINE
            let o_$j = other[(across + $ju * 8u) * STRIDE + quad];
            // @end
            // @for i in MINE
            let v_$i = own_too[(down + $iu * 8u) * STRIDE + quad];
            // @for j in MINE
            d_$i_$j += dot(v_$i, o_$j);
            // @end
            // @end
        }
        // s becomes P, then d becomes ds.
        // @for j in MINE
        {
            let column = across + $ju * 8u;
            let log_sum = lse[row_number(p, query + column)];
            let row_delta = delta[row_number(p, query + column)];
            // @for i in MINE
            {
                let row = down + $iu * 8u;
                let seen = is_seen(p.head_index, query + column, p.first + row);
                let value = select(0.0, exp(score(p.slope, s_$i_$j, query + column, p.first + row) - log_sum), seen);
                let mask = kept(p.head_index, query + column, p.first + row);
                weights[row * WEIGHTS + column] = value * mask;
                d_$i_$j = value * (d_$i_$j * mask - row_delta) * dims.scale;
            }
            // @end
        }
        // @end
        workgroupBarrier();
        for (var four = 0u; four < BLOCK / 4u; four++) {
            // @for i in MINE
            let w_$i = weights_quad(down + $iu * 8u, four);
            // @end
            // @for u in 4
            // @for w in OWN
            let o_$u_$w = other[(four * 4u + $uu) * STRIDE + across + $wu * 8u];
            // @for i in MINE
            d_value_$i_$w = fma(vec4<f32>(w_$i[$u]), o_$u_$w, d_value_$i_$w);
            // @end
            // @end
            // @end
        }
        workgroupBarrier();
        // @for i in MINE
        // @for j in MINE
        weights[(down + $iu * 8u) * WEIGHTS + across + $ju * 8u] = d_$i_$j;
        // @end
        // @end
        keep_other(p, query, 0u, local);
        workgroupBarrier();
        for (var four = 0u; four < BLOCK / 4u; four++) {
            // @for i in MINE
            let w_$i = weights_quad(down + $iu * 8u, four);
            // @end
            // @for u in 4
            // @for w in OWN
            let q_$u_$w = other[(four * 4u + $uu) * STRIDE + across + $wu * 8u];
            // @for i in MINE
            d_key_$i_$w = fma(vec4<f32>(w_$i[$u]), q_$u_$w, d_key_$i_$w);
            // @end
            // @end
            // @end
        }
    }
    // @for i in MINE
    // @for w in OWN
    store_quad(p, p.first + down + $iu * 8u, 1u, across + $wu * 8u, d_key_$i_$w);
    store_quad(p, p.first + down + $iu * 8u, 2u, across + $wu * 8u, d_value_$i_$w);
    // @end
    // @end
}
