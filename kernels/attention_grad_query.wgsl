// @use lib/attention_tile
// Attention, backward with respect to the queries; a workgroup takes a tile of queries of one
// head. First delta = Σ d_out·out of each row (kept for the keys' pass), then over tiles of keys
//   ds = P ⊙ (mask ⊙ (d_out·vᵀ) − delta)·scale,   dq += ds·k,   P = e^{q·kᵀ·scale − lse}.

@group(0) @binding(2) var<storage, read_write> qkv: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;
@group(0) @binding(4) var<storage, read_write> lse: array<f32>;
@group(0) @binding(5) var<storage, read_write> d_out: array<f32>;
@group(0) @binding(6) var<storage, read_write> d_qkv: array<f32>;
@group(0) @binding(7) var<storage, read_write> delta: array<f32>;

var<workgroup> queries: array<f32, TILE>;
var<workgroup> d_outs: array<f32, TILE>;
// Keys, values, keys again.
var<workgroup> others: array<f32, TILE>;
var<workgroup> scores: array<f32, SCORES>;
var<workgroup> deltas: array<f32, BLOCK>;
var<workgroup> lses: array<f32, BLOCK>;

fn load(p: Place, first: u32, part: u32, e: u32) -> f32 {
    let row = first + e / HEAD;
    if (!p.live || row >= dims.length) {
        return 0.0;
    }
    return qkv[(p.sample * dims.length + row) * 3u * dims.width + part * dims.width + p.column + e % HEAD];
}

@compute @workgroup_size(256)
fn grad_query(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let p = place_of(group.y * groups.x + group.x);
    var acc: array<f32, OWN>;
    for (var e = local; e < TILE; e += THREADS) {
        queries[e] = load(p, p.first, 0u, e);
        let row = p.first + e / HEAD;
        var value = 0.0;
        if (p.live && row < dims.length) {
            value = d_out[(p.sample * dims.length + row) * dims.width + p.column + e % HEAD];
        }
        d_outs[e] = value;
    }
    workgroupBarrier();
    if (local < BLOCK) {
        let row = p.first + local;
        var total = 0.0;
        var log_sum = 0.0;
        if (p.live && row < dims.length) {
            let base = (p.sample * dims.length + row) * dims.width + p.column;
            for (var d = 0u; d < HEAD; d++) {
                total += d_outs[local * HEAD + d] * out[base + d];
            }
            log_sum = lse[p.head_index * dims.length + row];
            delta[p.head_index * dims.length + row] = total;
        }
        deltas[local] = total;
        lses[local] = log_sum;
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
            var value = 0.0;
            if (is_seen(p.first + r, key + c)) {
                value = exp(total * dims.scale - lses[r]);
            }
            scores[s] = value;
        }
        workgroupBarrier();
        for (var e = local; e < TILE; e += THREADS) {
            others[e] = load(p, key, 2u, e);
        }
        workgroupBarrier();
        for (var s = local; s < SCORES; s += THREADS) {
            let r = s / BLOCK;
            let c = s % BLOCK;
            var total = 0.0;
            for (var d = 0u; d < HEAD; d++) {
                total += d_outs[r * HEAD + d] * others[c * HEAD + d];
            }
            let d_p = total * kept(p.head_index, p.first + r, key + c);
            scores[s] = scores[s] * (d_p - deltas[r]) * dims.scale;
        }
        workgroupBarrier();
        for (var e = local; e < TILE; e += THREADS) {
            others[e] = load(p, key, 1u, e);
        }
        workgroupBarrier();
        for (var own = 0u; own < OWN; own++) {
            let e = local + own * THREADS;
            if (e < TILE) {
                var total = acc[own];
                for (var c = 0u; c < BLOCK; c++) {
                    total += scores[(e / HEAD) * BLOCK + c] * others[c * HEAD + e % HEAD];
                }
                acc[own] = total;
            }
        }
    }
    for (var own = 0u; own < OWN; own++) {
        let e = local + own * THREADS;
        let row = p.first + e / HEAD;
        if (e < TILE && p.live && row < dims.length) {
            d_qkv[(p.sample * dims.length + row) * 3u * dims.width + p.column + e % HEAD] = acc[own];
        }
    }
}
