// @use lib/reduce
// First pass over all gradients: for each workgroup the sum of squares of the finite elements and
// the count of the others (exponent bits all ones), in parts [groups, 2].

struct Dims {
    n: u32,
    groups: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> g: array<f32>;
@group(0) @binding(3) var<storage, read_write> parts: array<f32>;

@compute @workgroup_size(256)
fn partial(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    var square = 0.0;
    var bad = 0.0;
    for (var i = group.x * 256u + local; i < dims.n; i += dims.groups * 256u) {
        let bits = bitcast<u32>(g[i]);
        if ((bits & 0x7f800000u) == 0x7f800000u) {
            bad += 1.0;
        } else {
            square += g[i] * g[i];
        }
    }
    let square_sum = workgroup_sum(square, local);
    let bad_sum = workgroup_sum(bad, local);
    if (local == 0u) {
        parts[group.x * 2u] = square_sum;
        parts[group.x * 2u + 1u] = bad_sum;
    }
}
