// @use lib/attention_tile
// Attention, backward with respect to keys and values; a workgroup takes a tile of keys of one
// head and walks over the tiles of queries that see them:
//   dv += (mask ⊙ P)ᵀ·d_out,   dk += dsᵀ·q,   ds = P ⊙ (mask ⊙ (d_out·vᵀ) − delta)·scale.

@group(0) @binding(2) var<storage, read_write> qkv: array<f32>;
@group(0) @binding(3) var<storage, read_write> lse: array<f32>;
@group(0) @binding(4) var<storage, read_write> d_out: array<f32>;
@group(0) @binding(5) var<storage, read_write> delta: array<f32>;
@group(0) @binding(6) var<storage, read_write> d_qkv: array<f32>;

var<workgroup> keys: array<f32, TILE>;
var<workgroup> values: array<f32, TILE>;
// Queries, rows of d_out, queries again.
var<workgroup> others: array<f32, TILE>;
var<workgroup> weights: array<f32, SCORES>;
var<workgroup> d_scores: array<f32, SCORES>;

fn load(p: Place, first: u32, part: u32, e: u32) -> f32 {
    let row = first + e / HEAD;
    if (!p.live || row >= dims.length) {
        return 0.0;
    }
    return qkv[(p.sample * dims.length + row) * 3u * dims.width + part * dims.width + p.column + e % HEAD];
}

@compute @workgroup_size(256)
fn grad_key(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let p = place_of(group.y * groups.x + group.x);
    var d_key: array<f32, OWN>;
    var d_value: array<f32, OWN>;
    for (var e = local; e < TILE; e += THREADS) {
        keys[e] = load(p, p.first, 1u, e);
        values[e] = load(p, p.first, 2u, e);
    }
    var query = 0u;
    if (CAUSAL == 1u) {
        query = p.first;
    }
    for (; query < dims.length; query += BLOCK) {
        workgroupBarrier();
        for (var e = local; e < TILE; e += THREADS) {
            others[e] = load(p, query, 0u, e);
        }
        workgroupBarrier();
        for (var s = local; s < SCORES; s += THREADS) {
            let r = s / BLOCK;
            let c = s % BLOCK;
            var total = 0.0;
            for (var d = 0u; d < HEAD; d++) {
                total += others[r * HEAD + d] * keys[c * HEAD + d];
            }
            var value = 0.0;
            if (p.live && is_seen(query + r, p.first + c)) {
                value = exp(total * dims.scale - lse[p.head_index * dims.length + query + r]);
            }
            weights[s] = value;
        }
        workgroupBarrier();
        for (var e = local; e < TILE; e += THREADS) {
            let row = query + e / HEAD;
            var value = 0.0;
            if (p.live && row < dims.length) {
                value = d_out[(p.sample * dims.length + row) * dims.width + p.column + e % HEAD];
            }
            others[e] = value;
        }
        workgroupBarrier();
        for (var s = local; s < SCORES; s += THREADS) {
            let r = s / BLOCK;
            let c = s % BLOCK;
            var total = 0.0;
            for (var d = 0u; d < HEAD; d++) {
                total += others[r * HEAD + d] * values[c * HEAD + d];
            }
            var row_delta = 0.0;
            if (p.live && query + r < dims.length) {
                row_delta = delta[p.head_index * dims.length + query + r];
            }
            let mask = kept(p.head_index, query + r, p.first + c);
            d_scores[s] = weights[s] * (total * mask - row_delta) * dims.scale;
            weights[s] = weights[s] * mask;
        }
        workgroupBarrier();
        for (var own = 0u; own < OWN; own++) {
            let e = local + own * THREADS;
            if (e < TILE) {
                var total = d_value[own];
                for (var r = 0u; r < BLOCK; r++) {
                    total += weights[r * BLOCK + e / HEAD] * others[r * HEAD + e % HEAD];
                }
                d_value[own] = total;
            }
        }
        workgroupBarrier();
        for (var e = local; e < TILE; e += THREADS) {
            others[e] = load(p, query, 0u, e);
        }
        workgroupBarrier();
        for (var own = 0u; own < OWN; own++) {
            let e = local + own * THREADS;
            if (e < TILE) {
                var total = d_key[own];
                for (var r = 0u; r < BLOCK; r++) {
                    total += d_scores[r * BLOCK + e / HEAD] * others[r * HEAD + e % HEAD];
                }
                d_key[own] = total;
            }
        }
    }
    for (var own = 0u; own < OWN; own++) {
        let e = local + own * THREADS;
        let row = p.first + e / HEAD;
        if (e < TILE && p.live && row < dims.length) {
            let base = (p.sample * dims.length + row) * 3u * dims.width + p.column + e % HEAD;
            d_qkv[base + dims.width] = d_key[own];
            d_qkv[base + 2u * dims.width] = d_value[own];
        }
    }
}
