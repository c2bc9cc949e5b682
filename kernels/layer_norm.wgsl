// @use lib/reduce
// Layer norm of rows of x [rows, cols], a group of LANES threads a row:
//   mean, rstd = 1/√(var + eps) of the row; y = (x − mean)·rstd·gamma + beta
// with mean = 0 where CENTRED is 0; gamma and beta have one element where STEP is 0.

const CENTRED: u32 = 1u;
const STEP: u32 = 1u;

struct Dims {
    rows: u32,
    cols: u32,
    eps: f32,
}

alias x_t = f32;
alias y_t = f32;

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> x: array<x_t>;
@group(0) @binding(3) var<storage, read_write> gamma: array<f32>;
@group(0) @binding(4) var<storage, read_write> beta: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<y_t>;
@group(0) @binding(6) var<storage, read_write> mean_out: array<f32>;
@group(0) @binding(7) var<storage, read_write> rstd_out: array<f32>;

@compute @workgroup_size(256)
fn layer_norm(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = (group.y * groups.x + group.x) * (256u / LANES) + local / LANES;
    let lane = local % LANES;
    let live = row < dims.rows;
    let base = select(0u, row * dims.cols, live);
    let n = f32(dims.cols);
    var mean = 0.0;
    if (CENTRED == 1u) {
        var total = 0.0;
        for (var j = lane; j < dims.cols; j += LANES) {
            total += f32(x[base + j]);
        }
        mean = workgroup_sum(total, local) / n;
    }
    var square = 0.0;
    for (var j = lane; j < dims.cols; j += LANES) {
        let d = f32(x[base + j]) - mean;
        square += d * d;
    }
    let rstd = 1.0 / sqrt(workgroup_sum(square, local) / n + dims.eps);
    if (!live) {
        return;
    }
    for (var j = lane; j < dims.cols; j += LANES) {
        y[base + j] = y_t((f32(x[base + j]) - mean) * rstd * gamma[j * STEP] + beta[j * STEP]);
    }
    if (lane == 0u) {
        mean_out[row] = mean;
        rstd_out[row] = rstd;
    }
}
