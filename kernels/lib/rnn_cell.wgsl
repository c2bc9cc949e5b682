// @use lib/math
// The cell of an rnn: keeps the slope of its activation.

// 1 where the activation is max(·, 0), 0 where it is tanh.
const RELU: u32 = 0u;

fn cell(sample: u32, unit: u32, sums: vec4<f32>) -> f32 {
    let at = row_of(sample, dims.step) * dims.hidden + unit;
    let s = sums[0] + f32(x[at]);
    if (RELU == 1u) {
        kept[at] = select(0.0, 1.0, s > 0.0);
        return safe_max(s, 0.0);
    }
    let h = safe_tanh(s);
    kept[at] = 1.0 - h * h;
    return h;
}

// A step beyond the sample's length: what is kept gives no gradient.
fn rest(sample: u32, unit: u32) {
    kept[row_of(sample, dims.step) * dims.hidden + unit] = 0.0;
}
