// @use lib/reduce
// Σ dy and Σ dy·x̂ of each channel, x̂ = (x − mean)/√(var + eps); one workgroup a channel.

struct Dims {
    batch: u32,
    channels: u32,
    pixels: u32,
    eps: f32,
}

alias x_t = f32;
alias dy_t = f32;

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> x: array<x_t>;
@group(0) @binding(3) var<storage, read_write> mean: array<f32>;
@group(0) @binding(4) var<storage, read_write> variance: array<f32>;
@group(0) @binding(5) var<storage, read_write> dy: array<dy_t>;
@group(0) @binding(6) var<storage, read_write> sums: array<f32>;
@group(0) @binding(7) var<storage, read_write> along: array<f32>;

@compute @workgroup_size(256)
fn grad_stats(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let channel = group.y * groups.x + group.x;
    let live = channel < dims.channels;
    let c = select(0u, channel, live);
    let mu = mean[c];
    let r = 1.0 / sqrt(variance[c] + dims.eps);
    let count = dims.batch * dims.pixels;
    var sum = 0.0;
    var product = 0.0;
    for (var i = local; i < count; i += 256u) {
        let at = ((i / dims.pixels) * dims.channels + c) * dims.pixels + i % dims.pixels;
        sum += f32(dy[at]);
        product += f32(dy[at]) * ((f32(x[at]) - mu) * r);
    }
    let sum_all = workgroup_sum(sum, local);
    let product_all = workgroup_sum(product, local);
    if (live && local == 0u) {
        sums[channel] = sum_all;
        along[channel] = product_all;
    }
}
