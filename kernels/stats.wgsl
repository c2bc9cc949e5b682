// @use lib/reduce
// Sums of up to three vectors, one workgroup each: out[first + w] = Σ of vector w.

struct Dims {
    first: u32,
    n0: u32,
    n1: u32,
    n2: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> v0: array<f32>;
@group(0) @binding(3) var<storage, read_write> v1: array<f32>;
@group(0) @binding(4) var<storage, read_write> v2: array<f32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(256)
fn stats(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    var total = 0.0;
    if (group.x == 0u) {
        for (var i = local; i < dims.n0; i += 256u) {
            total += v0[i];
        }
    } else if (group.x == 1u) {
        for (var i = local; i < dims.n1; i += 256u) {
            total += v1[i];
        }
    } else {
        for (var i = local; i < dims.n2; i += 256u) {
            total += v2[i];
        }
    }
    let sum = workgroup_sum(total, local);
    if (local == 0u) {
        out[dims.first + group.x] = sum;
    }
}
