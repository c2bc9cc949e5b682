// Sums over the middle of [outer, reduce, inner].
//   rows:    inner = 1; out[o] = Σ_r x[o, r]; one workgroup a row
//   columns: out[o, p, i] = Σ x[o, r, i] over part p's `chunk` rows; a workgroup takes 64 columns
//            of one part, four rows at a time
// Every sum has a fixed order: strided partial sums of each thread, then a tree.

struct Dims {
    outer: u32,
    reduce: u32,
    inner: u32,
    chunk: u32,
    parts: u32,
}

alias x_t = f32;
alias out_t = f32;

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> x: array<x_t>;
@group(0) @binding(3) var<storage, read_write> out: array<out_t>;

var<workgroup> partial: array<f32, 256>;

@compute @workgroup_size(256)
fn rows(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = group.y * groups.x + group.x;
    var total = 0.0;
    if (row < dims.outer) {
        for (var r = local; r < dims.reduce; r += 256u) {
            total += f32(x[row * dims.reduce + r]);
        }
    }
    partial[local] = total;
    workgroupBarrier();
    for (var width = 128u; width > 0u; width >>= 1u) {
        if (local < width) {
            partial[local] += partial[local + width];
        }
        workgroupBarrier();
    }
    if (local == 0u && row < dims.outer) {
        out[row] = out_t(partial[0]);
    }
}

@compute @workgroup_size(256)
fn columns(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let index = group.y * groups.x + group.x;
    let strips = (dims.inner + 63u) / 64u;
    let strip = index % strips;
    let part = (index / strips) % dims.parts;
    let outer = index / strips / dims.parts;
    let column = strip * 64u + local % 64u;
    let lane = local / 64u;
    let first = part * dims.chunk;
    let last = min(first + dims.chunk, dims.reduce);
    var total = 0.0;
    if (outer < dims.outer && column < dims.inner) {
        for (var r = first + lane; r < last; r += 4u) {
            total += f32(x[(outer * dims.reduce + r) * dims.inner + column]);
        }
    }
    partial[local] = total;
    workgroupBarrier();
    if (lane == 0u && outer < dims.outer && column < dims.inner) {
        let sum = (partial[local] + partial[local + 64u]) + (partial[local + 128u] + partial[local + 192u]);
        out[(outer * dims.parts + part) * dims.inner + column] = out_t(sum);
    }
}
