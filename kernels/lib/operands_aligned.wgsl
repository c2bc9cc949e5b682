// Quads of the operands A and B where all rows begin at multiples of four: see lib/operands.

alias a_t = f32;
alias b_t = f32;

@group(0) @binding(2) var<storage, read_write> a: array<vec4<a_t>>;
@group(0) @binding(3) var<storage, read_write> b: array<vec4<b_t>>;

fn a_quad(i: u32, left: u32) -> vec4<tile_t> {
    return select(vec4<tile_t>(), vec4<tile_t>(a[i / 4u]), WHOLE == 1u || left > 0u);
}

fn b_quad(i: u32, left: u32) -> vec4<tile_t> {
    return select(vec4<tile_t>(), vec4<tile_t>(b[i / 4u]), WHOLE == 1u || left > 0u);
}
