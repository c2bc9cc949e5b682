// running ← (1 − momentum)·running + momentum·new for means, and for variances with the unbiased
// new one; one thread a channel.

struct Dims {
    n: u32,
    momentum: f32,
    unbiased: f32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> running_mean: array<f32>;
@group(0) @binding(3) var<storage, read_write> running_var: array<f32>;
@group(0) @binding(4) var<storage, read_write> mean: array<f32>;
@group(0) @binding(5) var<storage, read_write> variance: array<f32>;

@compute @workgroup_size(64)
fn update_running(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    if (i >= dims.n) {
        return;
    }
    running_mean[i] = running_mean[i] * (1.0 - dims.momentum) + mean[i] * dims.momentum;
    running_var[i] = running_var[i] * (1.0 - dims.momentum) + variance[i] * dims.unbiased * dims.momentum;
}
