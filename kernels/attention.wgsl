// @use lib/attention_tile
// Attention, forward: out = softmax(q·kᵀ·scale)·v by a running softmax (Milakov and Gimelshein 2018;
// Dao et al. 2022); a workgroup owns a tile of queries of one head. qkv [batch, length, 3·width],
// out [batch, length, width], and lse [batch·heads, length], the log of each row's Σ eˢ.

alias qkv_t = f32;
alias out_t = f32;

@group(0) @binding(2) var<storage, read_write> qkv: array<qkv_t>;
@group(0) @binding(3) var<storage, read_write> out: array<out_t>;
@group(0) @binding(4) var<storage, read_write> lse: array<f32>;

// [row, thread across]: each thread's largest score, at the end its sum.
var<workgroup> parts: array<f32, BLOCK * 8u>;

fn largest_part(row: u32) -> f32 {
    var top = parts[row * 8u];
    // @for j in 8
    top = max(top, parts[row * 8u + $ju]);
    // @end
    return top;
}

fn sum_of_parts(row: u32) -> f32 {
    var total = 0.0;
    // @for j in 8
    total += parts[row * 8u + $ju];
    // @end
    return total;
}

@compute @workgroup_size(64)
fn attention(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let p = place_of(group.y * groups.x + group.x);
    if (p.head_index >= dims.heads_total) {
        return;
    }
    let across = local % 8u;
    let down = local / 8u;
    keep_own(p, 0u, local);
    // @for i in MINE
    var top_$i = -3.0e38;
    var total_$i = 0.0;
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
        keep_other(p, key, 1u, local);
        workgroupBarrier();
        // @for i in MINE
        // @for j in MINE
        var s_$i_$j = 0.0;
        // @end
        // @end
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
        var largest_$i = -3.0e38;
        // @for j in MINE
        s_$i_$j = score(p.slope, s_$i_$j, p.first + down + $iu * 8u, key + across + $ju * 8u);
        s_$i_$j = select(-3.0e38, s_$i_$j, is_seen(p.head_index, p.first + down + $iu * 8u, key + across + $ju * 8u));
        largest_$i = max(largest_$i, s_$i_$j);
        // @end
        parts[(down + $iu * 8u) * 8u + across] = largest_$i;
        // @end
        workgroupBarrier();
        keep_other(p, key, 2u, local);
        // @for i in MINE
        {
            let row = down + $iu * 8u;
            let top = max(top_$i, largest_part(row));
            let shrink = exp(max(top_$i - top, -100.0));
            top_$i = top;
            total_$i *= shrink;
            // @for w in OWN
            acc_$i_$w *= shrink;
            // @end
            // @for j in MINE
            {
                let column = across + $ju * 8u;
                let value = select(0.0, exp(s_$i_$j - top), s_$i_$j > -2.0e38);
                total_$i += value;
                weights[row * WEIGHTS + column] = value * kept(p.head_index, p.first + row, key + column);
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
            let v_$u_$w = other[(four * 4u + $uu) * STRIDE + across + $wu * 8u];
            // @for i in MINE
            acc_$i_$w = fma(vec4<f32>(w_$i[$u]), v_$u_$w, acc_$i_$w);
            // @end
            // @end
            // @end
        }
    }
    workgroupBarrier();
    // @for i in MINE
    parts[(down + $iu * 8u) * 8u + across] = total_$i;
    // @end
    workgroupBarrier();
    // @for i in MINE
    {
        let row = p.first + down + $iu * 8u;
        let found = sum_of_parts(down + $iu * 8u);
        // A query that sees nothing has a sum of 0: its result is 0.
        let total = select(1.0, found, found > 0.0);
        if (row < dims.length) {
            // @for w in OWN
            // @for j in 4
            {
                let feature = (across + $wu * 8u) * 4u + $ju;
                if (feature < HEAD) {
                    out[(p.sample * dims.length + row) * dims.width + p.column + feature] = out_t(acc_$i_$w[$j] / total);
                }
            }
            // @end
            // @end
            if (across == 0u) {
                lse[p.head_index * dims.length + row] = select(0.0, top_$i, found > 0.0) + log(total);
            }
        }
    }
    // @end
}
