// Cross-entropy of logits [outer, classes, inner] against targets [outer, inner] with a weight for
// each class; one thread a place.
//   loss = (1 − ε)·wₜ·(log Σ eˣ − xₜ) + ε/C · Σ wⱼ·(log Σ eˣ − xⱼ); weight wₜ; correct 1 where t is
//   the first largest. All three are 0 where the target is ignored; the loss is NaN where the
//   target is no class.
//   dx = (p·((1 − ε)·wₜ + ε/C·Σ w) − ε/C·wⱼ − (1 − ε)·wₜ·[j = t]) · d_loss, or 0 where it is
//   ignored.

struct Dims {
    outer: u32,
    classes: u32,
    inner: u32,
    ignore_index: u32,
    smoothing: f32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> logits: array<f32>;
@group(0) @binding(3) var<storage, read_write> targets: array<u32>;
@group(0) @binding(4) var<storage, read_write> weights: array<f32>;
@group(0) @binding(5) var<storage, read_write> loss: array<f32>;
@group(0) @binding(6) var<storage, read_write> weight: array<f32>;
@group(0) @binding(7) var<storage, read_write> correct: array<f32>;
@group(0) @binding(5) var<storage, read_write> d_loss: array<f32>;
@group(0) @binding(6) var<storage, read_write> dx: array<f32>;

fn base_of(place: u32) -> u32 {
    return place / dims.inner * dims.classes * dims.inner + place % dims.inner;
}

// The first class of the largest logit.
fn best_of(base: u32) -> u32 {
    var best = 0u;
    for (var c = 1u; c < dims.classes; c++) {
        if (logits[base + c * dims.inner] > logits[base + best * dims.inner]) {
            best = c;
        }
    }
    return best;
}

fn log_total_of(base: u32, top: f32) -> f32 {
    var total = 0.0;
    for (var c = 0u; c < dims.classes; c++) {
        total += exp(logits[base + c * dims.inner] - top);
    }
    return top + log(total);
}

@compute @workgroup_size(64)
fn class_cross_entropy(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let place = (group.y * groups.x + group.x) * 64u + local;
    if (place >= dims.outer * dims.inner) {
        return;
    }
    let label = targets[place];
    if (label == dims.ignore_index || label >= dims.classes) {
        loss[place] = select(bitcast<f32>(0x7fc00000u | (label & 0u)), 0.0, label == dims.ignore_index);
        weight[place] = 0.0;
        correct[place] = 0.0;
        return;
    }
    let base = base_of(place);
    let best = best_of(base);
    let log_total = log_total_of(base, logits[base + best * dims.inner]);
    var spread = 0.0;
    for (var c = 0u; c < dims.classes; c++) {
        spread += weights[c] * (log_total - logits[base + c * dims.inner]);
    }
    let hit = weights[label] * (log_total - logits[base + label * dims.inner]);
    loss[place] = hit + dims.smoothing * (spread / f32(dims.classes) - hit);
    weight[place] = weights[label];
    correct[place] = select(0.0, 1.0, best == label);
}

@compute @workgroup_size(64)
fn class_cross_entropy_grad(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let place = (group.y * groups.x + group.x) * 64u + local;
    if (place >= dims.outer * dims.inner) {
        return;
    }
    let base = base_of(place);
    let label = targets[place];
    let counted = label != dims.ignore_index && label < dims.classes;
    let d = select(0.0, d_loss[place], counted);
    let hit = select(0.0, (1.0 - dims.smoothing) * weights[min(label, dims.classes - 1u)], counted);
    let spread = dims.smoothing / f32(dims.classes);
    var all = 0.0;
    for (var c = 0u; c < dims.classes; c++) {
        all += weights[c];
    }
    let log_total = log_total_of(base, logits[base + best_of(base) * dims.inner]);
    for (var c = 0u; c < dims.classes; c++) {
        let at = base + c * dims.inner;
        let share = exp(logits[at] - log_total);
        let own = select(0.0, hit, c == label);
        dx[at] = (share * (hit + spread * all) - spread * weights[c] - own) * d;
    }
}
