// Class indices [outer, inner] as ones and zeros [outer, classes, inner]; one thread an element.
// The ignored index gives zeros, one that is no class NaN.

struct Dims {
    classes: u32,
    inner: u32,
    n: u32,
    ignore_index: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> ids: array<u32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(256)
fn one_hot(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    if (i >= dims.n) {
        return;
    }
    let row = i / dims.inner;
    let id = ids[row / dims.classes * dims.inner + i % dims.inner];
    if (id == dims.ignore_index) {
        out[i] = 0.0;
    } else if (id >= dims.classes) {
        out[i] = bitcast<f32>(0x7fc00000u | (id & 0u));
    } else {
        out[i] = select(0.0, 1.0, id == row % dims.classes);
    }
}
