// Connectionist temporal classification: the loss of logits x [batch, time, classes] against labels
// [batch, labels] over the number of labels, and its gradient dx; one workgroup a sample.
//   States are the labels with blanks around them, s = 0 … 2·labels. In a sample's scratch: paths
//   [time, states], first the forward variables, then the log of all paths through a state; the
//   backward variables [2, states] of two steps; log Σ eˣ [time]. NEVER stands for log 0.
//   dx = (p − Σ over the states of a class of e^(paths + loss)) / labels.

struct Dims {
    batch: u32,
    time: u32,
    classes: u32,
    labels: u32,
    blank: u32,
    zero_infinity: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> labels: array<u32>;
@group(0) @binding(4) var<storage, read_write> scratch: array<f32>;
@group(0) @binding(5) var<storage, read_write> loss: array<f32>;
@group(0) @binding(6) var<storage, read_write> dx: array<f32>;

const NEVER: f32 = -1.0e30;

fn log_sum(a: f32, b: f32, c: f32) -> f32 {
    let top = max(a, max(b, c));
    if (top < NEVER / 2.0) {
        return NEVER;
    }
    return top + log(exp(a - top) + exp(b - top) + exp(c - top));
}

fn class_of(first: u32, s: u32) -> u32 {
    if (s % 2u == 0u) {
        return dims.blank;
    }
    return min(labels[first + s / 2u], dims.classes - 1u);
}

// Whether a path may go from state s to the next but one.
fn skips(first: u32, s: u32, states: u32) -> bool {
    return s % 2u == 1u && s + 2u < states && class_of(first, s) != class_of(first, s + 2u);
}

@compute @workgroup_size(64)
fn ctc(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let index = group.y * groups.x + group.x;
    let live = index < dims.batch;
    let n = min(index, dims.batch - 1u);
    let first = n * dims.labels;
    let wide = 2u * dims.labels + 1u;
    let paths = n * (dims.time * wide + 2u * wide + dims.time + 1u);
    let back = paths + dims.time * wide;
    let totals = back + 2u * wide;
    let logits = n * dims.time * dims.classes;
    // The labels end at the first blank or negative number, one that is no class spoils the sample.
    var count = 0u;
    var known = true;
    for (var i = 0u; i < dims.labels; i++) {
        let label = labels[first + i];
        if (label == dims.blank || label > 0x7fffffffu) {
            break;
        }
        known = known && label < dims.classes;
        count++;
    }
    let states = select(0u, 2u * count + 1u, live);
    let steps = select(0u, dims.time, live);
    for (var t = local; t < steps; t += 64u) {
        let base = logits + t * dims.classes;
        var top = -3.0e38;
        for (var c = 0u; c < dims.classes; c++) {
            top = max(top, x[base + c]);
        }
        var total = 0.0;
        for (var c = 0u; c < dims.classes; c++) {
            total += exp(x[base + c] - top);
        }
        scratch[totals + t] = top + log(total);
    }
    storageBarrier();
    workgroupBarrier();
    for (var t = 0u; t < dims.time; t++) {
        for (var s = local; s < states; s += 64u) {
            var sum = NEVER;
            if (t > 0u) {
                let before = paths + (t - 1u) * wide + s;
                var one = NEVER;
                var two = NEVER;
                if (s >= 1u) {
                    one = scratch[before - 1u];
                }
                if (s >= 2u && skips(first, s - 2u, states)) {
                    two = scratch[before - 2u];
                }
                sum = log_sum(scratch[before], one, two);
            } else if (s < 2u) {
                sum = 0.0;
            }
            let log_p = x[logits + t * dims.classes + class_of(first, s)] - scratch[totals + t];
            scratch[paths + t * wide + s] = max(sum + log_p, NEVER);
        }
        storageBarrier();
        workgroupBarrier();
    }
    let last = paths + (dims.time - 1u) * wide + 2u * count;
    var before_last = NEVER;
    if (count > 0u) {
        before_last = scratch[last - 1u];
    }
    let total_loss = -log_sum(scratch[last], before_last, NEVER);
    // All have read the last step before its paths are added to.
    storageBarrier();
    workgroupBarrier();
    for (var i = 0u; i < dims.time; i++) {
        let t = dims.time - 1u - i;
        let now = back + (t % 2u) * wide;
        let next = back + ((t + 1u) % 2u) * wide;
        for (var s = local; s < states; s += 64u) {
            var sum = NEVER;
            if (i > 0u) {
                var one = NEVER;
                var two = NEVER;
                if (s + 1u < states) {
                    one = scratch[next + s + 1u];
                }
                if (skips(first, s, states)) {
                    two = scratch[next + s + 2u];
                }
                sum = log_sum(scratch[next + s], one, two);
            } else if (s + 2u >= states) {
                sum = 0.0;
            }
            let log_p = x[logits + t * dims.classes + class_of(first, s)] - scratch[totals + t];
            scratch[now + s] = max(sum + log_p, NEVER);
            scratch[paths + t * wide + s] += sum;
        }
        storageBarrier();
        workgroupBarrier();
    }
    let fits = known && total_loss < -NEVER / 2.0;
    let scale = 1.0 / f32(max(count, 1u));
    if (local == 0u && live) {
        let infinite = bitcast<f32>(0x7f800000u | (count & 0u));
        let unfit = select(select(infinite, 0.0, dims.zero_infinity == 1u), bitcast<f32>(0x7fc00000u | (count & 0u)), !known);
        loss[n] = select(unfit, total_loss * scale, fits);
    }
    for (var i = local; i < steps * dims.classes; i += 64u) {
        if (!fits) {
            dx[logits + i] = 0.0;
            continue;
        }
        let t = i / dims.classes;
        let own = i % dims.classes;
        var share = exp(x[logits + i] - scratch[totals + t]);
        for (var s = 0u; s < states; s++) {
            if (class_of(first, s) == own) {
                share -= exp(scratch[paths + t * wide + s] + total_loss);
            }
        }
        dx[logits + i] = share * scale;
    }
}
