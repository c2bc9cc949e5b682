// The gradients of layer norm with respect to gamma and beta, first pass: sums over `chunk` rows
// of dy·x̂ and dy, for 64 columns a workgroup, four rows at a time, into
// parts [parts, 2, cols].

struct Dims {
    rows: u32,
    cols: u32,
    chunk: u32,
    parts: u32,
}

alias x_t = f32;
alias dy_t = f32;

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> x: array<x_t>;
@group(0) @binding(3) var<storage, read_write> mean: array<f32>;
@group(0) @binding(4) var<storage, read_write> rstd: array<f32>;
@group(0) @binding(5) var<storage, read_write> dy: array<dy_t>;
@group(0) @binding(6) var<storage, read_write> parts: array<f32>;

var<workgroup> gamma_cells: array<f32, 256>;
var<workgroup> beta_cells: array<f32, 256>;

@compute @workgroup_size(256)
fn partial(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let index = group.y * groups.x + group.x;
    let strips = (dims.cols + 63u) / 64u;
    let part = index / strips;
    let column = (index % strips) * 64u + local % 64u;
    let live = part < dims.parts && column < dims.cols;
    var d_gamma = 0.0;
    var d_beta = 0.0;
    if (live) {
        let last = min((part + 1u) * dims.chunk, dims.rows);
        for (var row = part * dims.chunk + local / 64u; row < last; row += 4u) {
            let at = row * dims.cols + column;
            d_gamma += f32(dy[at]) * ((f32(x[at]) - mean[row]) * rstd[row]);
            d_beta += f32(dy[at]);
        }
    }
    gamma_cells[local] = d_gamma;
    beta_cells[local] = d_beta;
    workgroupBarrier();
    if (local < 64u && live) {
        let base = part * 2u * dims.cols + column;
        parts[base] = (gamma_cells[local] + gamma_cells[local + 64u]) + (gamma_cells[local + 128u] + gamma_cells[local + 192u]);
        parts[base + dims.cols] = (beta_cells[local] + beta_cells[local + 64u]) + (beta_cells[local + 128u] + beta_cells[local + 192u]);
    }
}
