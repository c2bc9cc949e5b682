// The gradient of a gru's cell; `carry` [batch, hidden] is what goes to h of the step before
// beside the product.

@group(0) @binding(6) var<storage, read_write> carry: array<f32>;
@group(0) @binding(7) var<storage, read_write> h: array<f32>;
@group(0) @binding(8) var<storage, read_write> d_x: array<f32>;

fn cell_grad(sample: u32, unit: u32, product: f32) -> vec4<f32> {
    let at = row_of(sample, dims.step) * 4u * dims.hidden + unit;
    let r = kept[at];
    let z = kept[at + dims.hidden];
    let s = kept[at + 2u * dims.hidden];
    let n = kept[at + 3u * dims.hidden];
    var before = 0.0;
    if (dims.before != NONE) {
        before = h[row_of(sample, dims.before) * dims.hidden + unit];
    }
    var dh = product;
    if (dims.after != NONE) {
        dh += carry[sample * dims.hidden + unit];
    }
    carry[sample * dims.hidden + unit] = dh * z;
    let d_n = dh * (1.0 - z) * (1.0 - n * n);
    let d_r = d_n * s * r * (1.0 - r);
    let d_z = dh * (before - n) * z * (1.0 - z);
    let to = row_of(sample, dims.step) * 3u * dims.hidden + unit;
    d_x[to] = d_r;
    d_x[to + dims.hidden] = d_z;
    d_x[to + 2u * dims.hidden] = d_n;
    return vec4<f32>(d_r, d_z, d_n * r, 0.0);
}
