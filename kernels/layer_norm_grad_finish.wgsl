// The gradients of layer norm with respect to gamma and beta, second pass: the sum over the parts
// [parts, 2, cols] of the first, one thread a column.

struct Dims {
    rows: u32,
    cols: u32,
    chunk: u32,
    parts: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> parts: array<f32>;
@group(0) @binding(3) var<storage, read_write> d_gamma: array<f32>;
@group(0) @binding(4) var<storage, read_write> d_beta: array<f32>;

@compute @workgroup_size(64)
fn finish(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let column = (group.y * groups.x + group.x) * 64u + local;
    if (column >= dims.cols) {
        return;
    }
    var gamma_total = 0.0;
    var beta_total = 0.0;
    for (var part = 0u; part < dims.parts; part++) {
        gamma_total += parts[part * 2u * dims.cols + column];
        beta_total += parts[part * 2u * dims.cols + dims.cols + column];
    }
    d_gamma[column] = gamma_total;
    d_beta[column] = beta_total;
}
