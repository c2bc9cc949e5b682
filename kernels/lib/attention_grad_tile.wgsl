// @use lib/attention_tile
// What the backward kernels of attention share beyond the forward one.

// A second tile of the workgroup's own rows.
var<workgroup> own_too: array<vec4<f32>, TILE>;

// A quad of features of a row of the cotangent, [batch, length, width]; 0 outside.
fn d_out_quad(p: Place, row: u32, quad: u32) -> vec4<f32> {
    let base = (p.sample * dims.length + min(row, dims.length - 1u)) * dims.width + p.column;
    var values: vec4<f32>;
    // @for j in 4
    values[$j] = select(0.0, f32(d_out[base + select(0u, quad * 4u + $ju, in_head(quad * 4u + $ju))]), in_head(quad * 4u + $ju));
    // @end
    return select(vec4<f32>(), values, row < dims.length);
}

// Where log Σ eˢ and δ of a query's row lie.
fn row_number(p: Place, row: u32) -> u32 {
    return p.head_index * dims.length + min(row, dims.length - 1u);
}

fn store_quad(p: Place, row: u32, part: u32, quad: u32, values: vec4<f32>) {
    let base = (p.sample * dims.length + row) * 3u * dims.width + part * dims.width + p.column + quad * 4u;
    // @for j in 4
    if (row < dims.length && quad * 4u + $ju < HEAD) {
        d_qkv[base + $ju] = d_qkv_t(values[$j]);
    }
    // @end
}
