// @use lib/math
// The largest element over the middle of x [outer, reduce, inner] and its first index; a NaN is the
// largest.
//   rows:    inner = 1; one workgroup a row
//   columns: one thread a result
//   grad:    dx[o, r, i] = dy[o, i] where r is the index, else 0; one thread an element.
//            Operands dx, dy, index

struct Dims {
    outer: u32,
    reduce: u32,
    inner: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> top: array<f32>;
// As a number.
@group(0) @binding(4) var<storage, read_write> index: array<f32>;

var<workgroup> cells: array<f32, 256>;
var<workgroup> places: array<u32, 256>;

fn larger(a: f32, b: f32) -> bool {
    return a > b || (is_nan(a) && !is_nan(b));
}

@compute @workgroup_size(256)
fn rows(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = group.y * groups.x + group.x;
    let live = row < dims.outer;
    let base = select(0u, row * dims.reduce, live);
    // Threads beyond the row's end hold its last element: it never wins over itself.
    var best = min(local, dims.reduce - 1u);
    for (var r = local + 256u; r < dims.reduce; r += 256u) {
        if (larger(x[base + r], x[base + best])) {
            best = r;
        }
    }
    cells[local] = x[base + best];
    places[local] = best;
    workgroupBarrier();
    for (var width = 128u; width > 0u; width >>= 1u) {
        if (local < width) {
            let a = cells[local];
            let b = cells[local + width];
            let tie = !larger(a, b) && !larger(b, a);
            if (larger(b, a) || (tie && places[local + width] < places[local])) {
                cells[local] = b;
                places[local] = places[local + width];
            }
        }
        workgroupBarrier();
    }
    if (live && local == 0u) {
        top[row] = cells[0];
        index[row] = f32(places[0]);
    }
}

@compute @workgroup_size(256)
fn columns(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let o = (group.y * groups.x + group.x) * 256u + local;
    if (o >= dims.outer * dims.inner) {
        return;
    }
    let base = (o / dims.inner) * dims.reduce * dims.inner + o % dims.inner;
    var best = 0u;
    var found = x[base];
    for (var r = 1u; r < dims.reduce; r++) {
        let value = x[base + r * dims.inner];
        if (larger(value, found)) {
            found = value;
            best = r;
        }
    }
    top[o] = found;
    index[o] = f32(best);
}

@compute @workgroup_size(256)
fn grad(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    if (i >= dims.outer * dims.reduce * dims.inner) {
        return;
    }
    let row = i / dims.inner;
    let o = (row / dims.reduce) * dims.inner + i % dims.inner;
    x[i] = select(0.0, top[o], u32(index[o]) == row % dims.reduce);
}
