// @use lib/globals
// Adam and AdamW; one thread an element:
//   d = g·scale (+ λ·p); m += (1 − β₁)(d − m); v = β₂v + (1 − β₂)d²
//   p = p·(1 − lr·λ) − rate·m/(√v/root + ε), the shrinking only where decoupled
// hyper = [lr, rate = lr/(1 − β₁ᵗ), root = √(1 − β₂ᵗ), …]. Nothing changes where a gradient of
// the step is not finite.

struct Dims {
    n: u32,
    rest1: f32,
    beta2: f32,
    rest2: f32,
    eps: f32,
    decay: f32,
    decoupled: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> p: array<f32>;
@group(0) @binding(3) var<storage, read_write> m: array<f32>;
@group(0) @binding(4) var<storage, read_write> v: array<f32>;
@group(0) @binding(5) var<storage, read_write> g: array<f32>;
@group(0) @binding(6) var<storage, read_write> control: array<f32>;

@compute @workgroup_size(256)
fn adam(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    if (i >= dims.n || control[2] > 0.0) {
        return;
    }
    let lr = globals.hyper[0].x;
    let rate = globals.hyper[0].y;
    let root = globals.hyper[0].z;
    let decoupled = dims.decoupled != 0u;
    let old = p[i];
    let d = g[i] * control[0] + select(dims.decay * old, 0.0, decoupled);
    let new_m = m[i] + dims.rest1 * (d - m[i]);
    let new_v = dims.beta2 * v[i] + dims.rest2 * d * d;
    m[i] = new_m;
    v[i] = new_v;
    let shrink = select(1.0, 1.0 - lr * dims.decay, decoupled);
    p[i] = old * shrink - rate * (new_m / (sqrt(new_v) / root + dims.eps));
}
