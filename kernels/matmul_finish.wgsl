// @use lib/epilogue
// Adds the parts of split sums in order: [parts, outputs] -> [outputs].

struct Dims {
    outputs: u32,
    parts: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> sums: array<f32>;

@compute @workgroup_size(64)
fn finish(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    // A workgroup has 256 outputs, a thread four of them, 64 apart.
    let i = (group.y * groups.x + group.x) * 256u + local + vec4<u32>(0u, 64u, 128u, 192u);
    let live = i < vec4<u32>(dims.outputs);
    let at = select(vec4<u32>(), i, live);
    var total = vec4<f32>();
    for (var part = 0u; part < dims.parts; part++) {
        let source = part * dims.outputs + at;
        total += vec4<f32>(sums[source.x], sums[source.y], sums[source.z], sums[source.w]);
    }
    epilogue(at, live, total);
}
