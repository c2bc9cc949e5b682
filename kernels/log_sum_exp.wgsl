// @use lib/reduce
// y = log Σ eˣ over the middle axis of x [outer, terms, inner]; y [outer, inner].
//   rows: inner is 1, one workgroup a row. columns: one thread a place, so that neighbouring
//   threads read neighbouring elements.

struct Dims {
    outer: u32,
    terms: u32,
    inner: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(256)
fn rows(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = group.y * groups.x + group.x;
    let live = row < dims.outer;
    let base = select(0u, row * dims.terms, live);
    var top = -3.0e38;
    for (var k = local; k < dims.terms; k += 256u) {
        top = max(top, x[base + k]);
    }
    top = workgroup_max(top, local);
    var total = 0.0;
    for (var k = local; k < dims.terms; k += 256u) {
        total += exp(x[base + k] - top);
    }
    total = workgroup_sum(total, local);
    if (local == 0u && live) {
        y[row] = top + log(total);
    }
}

@compute @workgroup_size(256)
fn columns(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let place = (group.y * groups.x + group.x) * 256u + local;
    if (place >= dims.outer * dims.inner) {
        return;
    }
    let base = place / dims.inner * dims.terms * dims.inner + place % dims.inner;
    var top = -3.0e38;
    for (var k = 0u; k < dims.terms; k++) {
        top = max(top, x[base + k * dims.inner]);
    }
    var total = 0.0;
    for (var k = 0u; k < dims.terms; k++) {
        total += exp(x[base + k * dims.inner] - top);
    }
    y[place] = top + log(total);
}
