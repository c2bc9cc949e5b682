// @use lib/math
// The cell of an lstm: keeps i, f, g, o and c.

fn cell(sample: u32, unit: u32, sums: vec4<f32>) -> f32 {
    let at = row_of(sample, dims.step) * 4u * dims.hidden + unit;
    let i = safe_sigmoid(sums[0] + f32(x[at]));
    let f = safe_sigmoid(sums[1] + f32(x[at + dims.hidden]));
    let g = safe_tanh(sums[2] + f32(x[at + 2u * dims.hidden]));
    let o = safe_sigmoid(sums[3] + f32(x[at + 3u * dims.hidden]));
    var c = i * g;
    if (dims.before != NONE) {
        c += f * kept[(row_of(sample, dims.before) * 5u + 4u) * dims.hidden + unit];
    }
    let to = row_of(sample, dims.step) * 5u * dims.hidden + unit;
    kept[to] = i;
    kept[to + dims.hidden] = f;
    kept[to + 2u * dims.hidden] = g;
    kept[to + 3u * dims.hidden] = o;
    kept[to + 4u * dims.hidden] = c;
    return o * safe_tanh(c);
}

// A step beyond the sample's length: what is kept gives no gradient.
fn rest(sample: u32, unit: u32) {
    let to = row_of(sample, dims.step) * 5u * dims.hidden + unit;
    kept[to] = 0.0;
    kept[to + dims.hidden] = 0.0;
    kept[to + 2u * dims.hidden] = 0.0;
    kept[to + 3u * dims.hidden] = 0.0;
    kept[to + 4u * dims.hidden] = 0.0;
}
