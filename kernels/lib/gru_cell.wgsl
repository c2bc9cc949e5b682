// @use lib/math
// The cell of a gru: keeps r, z, the part of s for n, and n.

fn cell(sample: u32, unit: u32, sums: vec4<f32>) -> f32 {
    let at = row_of(sample, dims.step) * 3u * dims.hidden + unit;
    let r = safe_sigmoid(sums[0] + f32(x[at]));
    let z = safe_sigmoid(sums[1] + f32(x[at + dims.hidden]));
    let n = safe_tanh(f32(x[at + 2u * dims.hidden]) + r * sums[2]);
    var h = (1.0 - z) * n;
    if (dims.before != NONE) {
        h += z * state_at(row_of(sample, dims.before) * dims.hidden + unit);
    }
    let to = row_of(sample, dims.step) * 4u * dims.hidden + unit;
    kept[to] = r;
    kept[to + dims.hidden] = z;
    kept[to + 2u * dims.hidden] = sums[2];
    kept[to + 3u * dims.hidden] = n;
    return h;
}

// A step beyond the sample's length: what is kept gives no gradient.
fn rest(sample: u32, unit: u32) {
    let to = row_of(sample, dims.step) * 4u * dims.hidden + unit;
    kept[to] = 0.0;
    kept[to + dims.hidden] = 0.0;
    kept[to + 2u * dims.hidden] = 0.0;
    kept[to + 3u * dims.hidden] = 1.0;
}
