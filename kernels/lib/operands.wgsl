// Quads of the operands A and B: the elements i..i + 4, zero from `left` elements on. This is the
// form for any extents; where all rows begin at multiples of four, a form that reads whole quads
// stands in its place.

alias a_t = f32;
alias b_t = f32;

@group(0) @binding(2) var<storage, read_write> a: array<a_t>;
@group(0) @binding(3) var<storage, read_write> b: array<b_t>;

fn a_quad(i: u32, left: u32) -> vec4<f32> {
    var quad = vec4<f32>(f32(a[i]), 0.0, 0.0, 0.0);
    // @for j in 4
    if ($ju < left) {
        quad[$j] = f32(a[i + $ju]);
    }
    // @end
    return quad;
}

fn b_quad(i: u32, left: u32) -> vec4<f32> {
    var quad = vec4<f32>(f32(b[i]), 0.0, 0.0, 0.0);
    // @for j in 4
    if ($ju < left) {
        quad[$j] = f32(b[i + $ju]);
    }
    // @end
    return quad;
}
