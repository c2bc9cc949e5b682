// @use lib/reduce
// Softmax over rows of x [rows, cols], a group of LANES threads a row.
//   softmax:      y = e^{x − max} / Σ e^{x − max}                 operands x, y
//                 or 0 in a row of −∞ alone
//   softmax_grad: dx = y ⊙ (dy − Σ y·dy)                          operands y, dy, dx
//   log_softmax:      y = x − max − ln Σ e^{x − max}              operands x, y
//   log_softmax_grad: dx = dy − e^y·Σ dy                          operands y, dy, dx

struct Dims {
    rows: u32,
    cols: u32,
}

alias a_t = f32;
alias b_t = f32;
alias c_t = f32;

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> a: array<a_t>;
@group(0) @binding(3) var<storage, read_write> b: array<b_t>;
@group(0) @binding(4) var<storage, read_write> c: array<c_t>;

@compute @workgroup_size(256)
fn softmax(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = (group.y * groups.x + group.x) * (256u / LANES) + local / LANES;
    let lane = local % LANES;
    let live = row < dims.rows;
    let base = select(0u, row * dims.cols, live);
    var top = -3.0e38;
    for (var j = lane; j < dims.cols; j += LANES) {
        top = max(top, f32(a[base + j]));
    }
    top = workgroup_max(top, local);
    var total = 0.0;
    for (var j = lane; j < dims.cols; j += LANES) {
        total += exp(f32(a[base + j]) - top);
    }
    total = workgroup_sum(total, local);
    let scale = select(1.0 / total, 0.0, total == 0.0);
    if (live) {
        for (var j = lane; j < dims.cols; j += LANES) {
            b[base + j] = b_t(exp(f32(a[base + j]) - top) * scale);
        }
    }
}

@compute @workgroup_size(256)
fn softmax_grad(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = (group.y * groups.x + group.x) * (256u / LANES) + local / LANES;
    let lane = local % LANES;
    let live = row < dims.rows;
    let base = select(0u, row * dims.cols, live);
    var total = 0.0;
    for (var j = lane; j < dims.cols; j += LANES) {
        total += f32(a[base + j]) * f32(b[base + j]);
    }
    let mean = workgroup_sum(total, local);
    if (live) {
        for (var j = lane; j < dims.cols; j += LANES) {
            c[base + j] = c_t(f32(a[base + j]) * (f32(b[base + j]) - mean));
        }
    }
}

@compute @workgroup_size(256)
fn log_softmax(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = (group.y * groups.x + group.x) * (256u / LANES) + local / LANES;
    let lane = local % LANES;
    let live = row < dims.rows;
    let base = select(0u, row * dims.cols, live);
    var top = -3.0e38;
    for (var j = lane; j < dims.cols; j += LANES) {
        top = max(top, f32(a[base + j]));
    }
    top = workgroup_max(top, local);
    var total = 0.0;
    for (var j = lane; j < dims.cols; j += LANES) {
        total += exp(f32(a[base + j]) - top);
    }
    let shift = log(workgroup_sum(total, local));
    if (live) {
        for (var j = lane; j < dims.cols; j += LANES) {
            b[base + j] = b_t(f32(a[base + j]) - top - shift);
        }
    }
}

@compute @workgroup_size(256)
fn log_softmax_grad(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = (group.y * groups.x + group.x) * (256u / LANES) + local / LANES;
    let lane = local % LANES;
    let live = row < dims.rows;
    let base = select(0u, row * dims.cols, live);
    var total = 0.0;
    for (var j = lane; j < dims.cols; j += LANES) {
        total += f32(b[base + j]);
    }
    total = workgroup_sum(total, local);
    if (live) {
        for (var j = lane; j < dims.cols; j += LANES) {
            c[base + j] = c_t(f32(b[base + j]) - exp(f32(a[base + j])) * total);
        }
    }
}
