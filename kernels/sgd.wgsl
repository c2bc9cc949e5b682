// @use lib/globals
// p ← p − lr·(g·scale + λ·p); one thread an element. Nothing changes where a gradient of the step
// is not finite. control = [scale, norm, non-finite count, …], lr = hyper[0].

struct Dims {
    n: u32,
    decay: f32,
    momentum: f32,
    nesterov: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> p: array<f32>;
@group(0) @binding(3) var<storage, read_write> g: array<f32>;
@group(0) @binding(4) var<storage, read_write> control: array<f32>;

@compute @workgroup_size(256)
fn sgd(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    if (i >= dims.n || control[2] > 0.0) {
        return;
    }
    p[i] -= globals.hyper[0].x * (g[i] * control[0] + dims.decay * p[i]);
}
