// @use lib/globals
// sums ← g in the first micro-batch of a window, sums + g in the others; one thread an element.

struct Dims {
    n: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> sums: array<f32>;
@group(0) @binding(3) var<storage, read_write> g: array<f32>;

@compute @workgroup_size(256)
fn accumulate(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    if (i >= dims.n) {
        return;
    }
    if (globals.micro == 0u) {
        sums[i] = g[i];
    } else {
        sums[i] = sums[i] + g[i];
    }
}
