// Quads of the operands A and B: the elements i..i + 4, zero from `left` elements on. This is the
// form for any extents; where all rows begin at multiples of four, a form that reads whole quads
// stands in its place.

alias a_t = f32;
alias b_t = f32;

@group(0) @binding(2) var<storage, read_write> a: array<a_t>;
@group(0) @binding(3) var<storage, read_write> b: array<b_t>;

fn a_quad(i: u32, left: u32) -> vec4<tile_t> {
    var quad: vec4<tile_t>;
    // @for j in 4
    quad[$j] = select(tile_t(), tile_t(a[i + select(0u, $ju, $ju < left)]), $ju < left);
    // @end
    return quad;
}

fn b_quad(i: u32, left: u32) -> vec4<tile_t> {
    var quad: vec4<tile_t>;
    // @for j in 4
    quad[$j] = select(tile_t(), tile_t(b[i + select(0u, $ju, $ju < left)]), $ju < left);
    // @end
    return quad;
}
