// @use lib/cross_entropy_row
// Cross-entropy of logits [rows, cols] against targets [rows]; a group of LANES threads a row.
//   loss = (1 − ε)·(log Σ eˣ − xₜ) + ε·(log Σ eˣ − mean x); weight 1; correct 1 where t is the
//   first largest. All three are 0 where the target is ignored; the loss is NaN where the target
//   is no class.

@group(0) @binding(4) var<storage, read_write> loss: array<f32>;
@group(0) @binding(5) var<storage, read_write> weight: array<f32>;
@group(0) @binding(6) var<storage, read_write> correct: array<f32>;

@compute @workgroup_size(256)
fn cross_entropy(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = (group.y * groups.x + group.x) * (256u / LANES) + local / LANES;
    let lane = local % LANES;
    let live = row < dims.rows;
    let base = select(0u, row * dims.cols, live);
    let top = row_max(base, local);
    let log_total = row_log_total(base, top, local);
    // The first index of the largest logit: the smallest of the indices where it stands. Indices
    // below 2^24 are exact in f32.
    var first = 3.0e38;
    var total = 0.0;
    for (var j = lane; j < dims.cols; j += LANES) {
        let x = f32(logits[base + j]);
        total += x;
        if (x == top) {
            first = min(first, f32(j));
        }
    }
    let mean = workgroup_sum(total, local) / f32(dims.cols);
    let best = -workgroup_max(-first, local);
    if (lane != 0u || !live) {
        return;
    }
    let label = targets[row];
    if (label == dims.ignore_index) {
        loss[row] = 0.0;
        weight[row] = 0.0;
        correct[row] = 0.0;
        return;
    }
    weight[row] = 1.0;
    if (label >= dims.cols) {
        loss[row] = bitcast<f32>(0x7fc00000u | (label & 0u));
        correct[row] = 0.0;
        return;
    }
    let hit = log_total - f32(logits[base + label]);
    loss[row] = hit + dims.smoothing * ((log_total - mean) - hit);
    correct[row] = select(0.0, 1.0, u32(best) == label);
}
