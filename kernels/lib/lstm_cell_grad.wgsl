// @use lib/math
// The gradient of an lstm's cell; `carry` [batch, hidden] is the cotangent of c.

@group(0) @binding(6) var<storage, read_write> carry: array<f32>;

fn cell_grad(sample: u32, unit: u32, dh: f32) -> vec4<f32> {
    let at = row_of(sample, dims.step) * 5u * dims.hidden + unit;
    let i = kept[at];
    let f = kept[at + dims.hidden];
    let g = kept[at + 2u * dims.hidden];
    let o = kept[at + 3u * dims.hidden];
    let t = safe_tanh(kept[at + 4u * dims.hidden]);
    var before = 0.0;
    if (dims.before != NONE) {
        before = kept[(row_of(sample, dims.before) * 5u + 4u) * dims.hidden + unit];
    }
    var dc = dh * o * (1.0 - t * t);
    if (dims.after != NONE) {
        dc += carry[sample * dims.hidden + unit];
    }
    carry[sample * dims.hidden + unit] = dc * f;
    return vec4<f32>(
        dc * g * i * (1.0 - i),
        dc * before * f * (1.0 - f),
        dc * i * (1.0 - g * g),
        dh * t * o * (1.0 - o),
    );
}
