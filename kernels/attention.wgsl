// @use lib/attention_tile
// Attention, forward: out = softmax(q·kᵀ·scale)·v by a running softmax; a workgroup takes a tile
// of queries of one head. qkv [batch, length, 3·width], out [batch, length, width], and
// lse [batch·heads, length], the log of each row's Σ e^s.

@group(0) @binding(2) var<storage, read_write> qkv: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;
@group(0) @binding(4) var<storage, read_write> lse: array<f32>;

var<workgroup> queries: array<f32, TILE>;
// Keys, then values.
var<workgroup> others: array<f32, TILE>;
var<workgroup> scores: array<f32, SCORES>;
var<workgroup> row_top: array<f32, BLOCK>;
var<workgroup> row_total: array<f32, BLOCK>;
var<workgroup> row_shrink: array<f32, BLOCK>;

fn load(p: Place, first: u32, part: u32, e: u32) -> f32 {
    let row = first + e / HEAD;
    if (!p.live || row >= dims.length) {
        return 0.0;
    }
    return qkv[(p.sample * dims.length + row) * 3u * dims.width + part * dims.width + p.column + e % HEAD];
}

@compute @workgroup_size(256)
fn attention(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let p = place_of(group.y * groups.x + group.x);
    var acc: array<f32, OWN>;
    for (var e = local; e < TILE; e += THREADS) {
        queries[e] = load(p, p.first, 0u, e);
    }
    if (local < BLOCK) {
        row_top[local] = -3.0e38;
        row_total[local] = 0.0;
    }
    var last = dims.length;
    if (CAUSAL == 1u) {
        last = min(p.first + BLOCK, dims.length);
    }
    for (var key = 0u; key < last; key += BLOCK) {
        workgroupBarrier();
        for (var e = local; e < TILE; e += THREADS) {
            others[e] = load(p, key, 1u, e);
        }
        workgroupBarrier();
        for (var s = local; s < SCORES; s += THREADS) {
            let r = s / BLOCK;
            let c = s % BLOCK;
            var total = 0.0;
            for (var d = 0u; d < HEAD; d++) {
                total += queries[r * HEAD + d] * others[c * HEAD + d];
            }
            scores[s] = select(-3.0e38, total * dims.scale, is_seen(p.first + r, key + c));
        }
        workgroupBarrier();
        for (var e = local; e < TILE; e += THREADS) {
            others[e] = load(p, key, 2u, e);
        }
        if (local < BLOCK) {
            var top = row_top[local];
            for (var c = 0u; c < BLOCK; c++) {
                top = max(top, scores[local * BLOCK + c]);
            }
            let shrink = exp(max(row_top[local] - top, -100.0));
            var total = row_total[local] * shrink;
            for (var c = 0u; c < BLOCK; c++) {
                let s = scores[local * BLOCK + c];
                var value = 0.0;
                if (s > -2.0e38) {
                    value = exp(s - top);
                }
                total += value;
                scores[local * BLOCK + c] = value * kept(p.head_index, p.first + local, key + c);
            }
            row_top[local] = top;
            row_total[local] = total;
            row_shrink[local] = shrink;
        }
        workgroupBarrier();
        for (var own = 0u; own < OWN; own++) {
            let e = local + own * THREADS;
            if (e < TILE) {
                let r = e / HEAD;
                var total = acc[own] * row_shrink[r];
                for (var c = 0u; c < BLOCK; c++) {
                    total += scores[r * BLOCK + c] * others[c * HEAD + e % HEAD];
                }
                acc[own] = total;
            }
        }
    }
    workgroupBarrier();
    for (var own = 0u; own < OWN; own++) {
        let e = local + own * THREADS;
        let row = p.first + e / HEAD;
        if (e < TILE && p.live && row < dims.length) {
            out[(p.sample * dims.length + row) * dims.width + p.column + e % HEAD] = acc[own] / row_total[e / HEAD];
        }
    }
    if (local < BLOCK && p.live && p.first + local < dims.length) {
        lse[p.head_index * dims.length + p.first + local] = row_top[local] + log(row_total[local]);
    }
}
