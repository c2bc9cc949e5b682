// Padding along an axis, one thread an element of the result; and its gradient for the modes that
// repeat elements, one thread an element of the operand, which adds the cotangents of its copies
// in their order. The operand is [outer, len, inner], the result [outer, total, inner].

struct Dims {
    outer: u32,
    len: u32,
    inner: u32,
    before: u32,
    total: u32,
    // 0 a constant, 1 reflect, 2 replicate, 3 circular.
    mode: u32,
    value: f32,
}

alias input_t = f32;
alias out_t = f32;

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> input: array<input_t>;
@group(0) @binding(3) var<storage, read_write> out: array<out_t>;

// The operand's index that stands at `at` of the result; negative for the constant.
fn source(at: u32) -> i32 {
    let len = i32(dims.len);
    let i = i32(at) - i32(dims.before);
    if (i >= 0 && i < len) {
        return i;
    }
    switch dims.mode {
        case 0u: { return -1; }
        case 1u: { return select(2 * (len - 1) - i, -i, i < 0); }
        case 2u: { return clamp(i, 0, len - 1); }
        default: { return select(i - len, i + len, i < 0); }
    }
}

@compute @workgroup_size(256)
fn pad(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    if (i >= dims.outer * dims.total * dims.inner) {
        return;
    }
    let line = i / dims.inner / dims.total;
    let origin = source((i / dims.inner) % dims.total);
    let at = (line * dims.len + u32(max(origin, 0))) * dims.inner + i % dims.inner;
    out[i] = out_t(select(f32(input[at]), dims.value, origin < 0));
}

@compute @workgroup_size(256)
fn pad_grad(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    if (i >= dims.outer * dims.len * dims.inner) {
        return;
    }
    let line = i / dims.inner / dims.len;
    let at = (i / dims.inner) % dims.len;
    let first = line * dims.total * dims.inner + i % dims.inner;
    var total = f32(input[first + (at + dims.before) * dims.inner]);
    for (var j = 0u; j < dims.before; j++) {
        if (source(j) == i32(at)) {
            total += f32(input[first + j * dims.inner]);
        }
    }
    for (var j = dims.before + dims.len; j < dims.total; j++) {
        if (source(j) == i32(at)) {
            total += f32(input[first + j * dims.inner]);
        }
    }
    out[i] = out_t(total);
}
