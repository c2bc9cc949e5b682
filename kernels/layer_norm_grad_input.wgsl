// @use lib/reduce
// The gradient of layer norm with respect to x [rows, cols], a group of LANES threads a row:
//   dx = rstd·(g − mean g − x̂·mean(g·x̂)),  g = dy·gamma,  x̂ = (x − mean)·rstd
// without mean g where CENTRED is 0; gamma has one element where STEP is 0.

const CENTRED: u32 = 1u;
const STEP: u32 = 1u;

struct Dims {
    rows: u32,
    cols: u32,
}

alias x_t = f32;
alias dy_t = f32;
alias dx_t = f32;

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> x: array<x_t>;
@group(0) @binding(3) var<storage, read_write> gamma: array<f32>;
@group(0) @binding(4) var<storage, read_write> mean: array<f32>;
@group(0) @binding(5) var<storage, read_write> rstd: array<f32>;
@group(0) @binding(6) var<storage, read_write> dy: array<dy_t>;
@group(0) @binding(7) var<storage, read_write> dx: array<dx_t>;

@compute @workgroup_size(256)
fn grad_input(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = (group.y * groups.x + group.x) * (256u / LANES) + local / LANES;
    let lane = local % LANES;
    let live = row < dims.rows;
    let base = select(0u, row * dims.cols, live);
    let mu = mean[select(0u, row, live)];
    let r = rstd[select(0u, row, live)];
    var g_total = 0.0;
    var gx_total = 0.0;
    for (var j = lane; j < dims.cols; j += LANES) {
        let g = f32(dy[base + j]) * gamma[j * STEP];
        g_total += g;
        gx_total += g * ((f32(x[base + j]) - mu) * r);
    }
    let n = f32(dims.cols);
    var g_mean = 0.0;
    if (CENTRED == 1u) {
        g_mean = workgroup_sum(g_total, local) / n;
    }
    let gx_mean = workgroup_sum(gx_total, local) / n;
    if (!live) {
        return;
    }
    for (var j = lane; j < dims.cols; j += LANES) {
        dx[base + j] = dx_t(r * (f32(dy[base + j]) * gamma[j * STEP] - g_mean - (f32(x[base + j]) - mu) * r * gx_mean));
    }
}
