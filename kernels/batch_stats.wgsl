// @use lib/reduce
// Mean and biased variance of each channel of x [batch, channels, pixels], one workgroup a
// channel; two passes, so that the variance does not cancel.

struct Dims {
    batch: u32,
    channels: u32,
    pixels: u32,
}

alias x_t = f32;

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> x: array<x_t>;
@group(0) @binding(3) var<storage, read_write> mean_out: array<f32>;
@group(0) @binding(4) var<storage, read_write> var_out: array<f32>;

@compute @workgroup_size(256)
fn batch_stats(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let channel = group.y * groups.x + group.x;
    let live = channel < dims.channels;
    let c = select(0u, channel, live);
    let count = dims.batch * dims.pixels;
    var total = 0.0;
    for (var i = local; i < count; i += 256u) {
        total += f32(x[((i / dims.pixels) * dims.channels + c) * dims.pixels + i % dims.pixels]);
    }
    let mean = workgroup_sum(total, local) / f32(count);
    var square = 0.0;
    for (var i = local; i < count; i += 256u) {
        let d = f32(x[((i / dims.pixels) * dims.channels + c) * dims.pixels + i % dims.pixels]) - mean;
        square += d * d;
    }
    let variance = workgroup_sum(square, local) / f32(count);
    if (live && local == 0u) {
        mean_out[channel] = mean;
        var_out[channel] = variance;
    }
}
