// @use lib/epilogue
// Adds the parts of split sums in order: [parts, outputs] -> [outputs].

struct Dims {
    outputs: u32,
    parts: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> sums: array<f32>;

@compute @workgroup_size(256)
fn finish(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    if (i >= dims.outputs) {
        return;
    }
    var total = sums[i];
    for (var part = 1u; part < dims.parts; part++) {
        total += sums[part * dims.outputs + i];
    }
    epilogue(i, total);
}
