// Another extent of an axis, one thread an element of the result; and the gradient, one thread an
// element of the operand, which adds its shares of the result's cotangents in order. The operand is
// [outer, len, inner], the result [outer, size, inner]; element i of the result lies at
// max(i·step + shift, 0) / unit.

struct Dims {
    outer: u32,
    len: u32,
    inner: u32,
    size: u32,
    step: u32,
    shift: i32,
    unit: u32,
    linear: u32,
}

alias input_t = f32;
alias out_t = f32;

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> input: array<input_t>;
@group(0) @binding(3) var<storage, read_write> out: array<out_t>;

fn place(i: u32) -> u32 {
    return u32(max(i32(i * dims.step) + dims.shift, 0));
}

// The share of the element after the one at a place.
fn share(place: u32) -> f32 {
    return select(0.0, f32(place % dims.unit) / f32(dims.unit), dims.linear == 1u);
}

@compute @workgroup_size(256)
fn resize(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    let line = i / dims.inner / dims.size;
    if (line >= dims.outer) {
        return;
    }
    let at = place(i / dims.inner % dims.size);
    let far = share(at);
    let first = at / dims.unit;
    let second = min(first + 1u, dims.len - 1u);
    let base = line * dims.len * dims.inner + i % dims.inner;
    out[i] = out_t(f32(input[base + first * dims.inner]) * (1.0 - far) + f32(input[base + second * dims.inner]) * far);
}

@compute @workgroup_size(256)
fn resize_grad(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    let line = i / dims.inner / dims.len;
    if (line >= dims.outer) {
        return;
    }
    let tap = i / dims.inner % dims.len;
    // A range that holds every element of the result that this one is part of.
    var first = 0u;
    var end = dims.size;
    if (dims.step > 0u) {
        let last = max(i32((tap + 1u) * dims.unit) - dims.shift, 0);
        end = min(u32(last) / dims.step + 1u, dims.size);
        if (tap > 1u) {
            first = u32(max(i32((tap - 1u) * dims.unit) - dims.shift, 0)) / dims.step;
        }
    }
    let base = line * dims.size * dims.inner + i % dims.inner;
    var total = 0.0;
    for (var j = first; j < end; j++) {
        let at = place(j);
        let near = at / dims.unit;
        let far = share(at);
        let whole = select(0.0, 1.0 - far, near == tap) + select(0.0, far, min(near + 1u, dims.len - 1u) == tap);
        total += f32(input[base + j * dims.inner]) * whole;
    }
    out[i] = out_t(total);
}
