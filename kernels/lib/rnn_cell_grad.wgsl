// The gradient of an rnn's cell: by the slope that was kept.

fn cell_grad(sample: u32, unit: u32, dh: f32) -> vec4<f32> {
    return vec4<f32>(dh * kept[row_of(sample, dims.step) * dims.hidden + unit], 0.0, 0.0, 0.0);
}
