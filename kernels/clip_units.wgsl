// @use lib/reduce
// Adaptive gradient clipping; one workgroup a unit of `len` elements from `offset` on:
//   most = factor · max(‖p‖, eps) · weight; g ← g · most/‖g‖ where ‖g‖ > most.

struct Dims {
    offset: u32,
    units: u32,
    len: u32,
    weight_index: u32,
    factor: f32,
    eps: f32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> g: array<f32>;
@group(0) @binding(3) var<storage, read_write> p: array<f32>;
@group(0) @binding(4) var<storage, read_write> stats: array<f32>;

@compute @workgroup_size(256)
fn clip_units(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let unit = group.y * groups.x + group.x;
    if (unit >= dims.units) {
        return;
    }
    let start = dims.offset + unit * dims.len;
    var of_g = 0.0;
    var of_p = 0.0;
    for (var i = local; i < dims.len; i += 256u) {
        of_g += g[start + i] * g[start + i];
        of_p += p[start + i] * p[start + i];
    }
    let norm = sqrt(workgroup_sum(of_g, local));
    let most = max(sqrt(workgroup_sum(of_p, local)), dims.eps) * dims.factor * stats[dims.weight_index];
    if (norm > most && most > 0.0) {
        let scale = most / norm;
        for (var i = local; i < dims.len; i += 256u) {
            g[start + i] *= scale;
        }
    }
}
