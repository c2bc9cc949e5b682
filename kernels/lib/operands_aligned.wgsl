// Quads of the operands A and B where all rows begin at multiples of four: see lib/operands.

@group(0) @binding(2) var<storage, read_write> a: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> b: array<vec4<f32>>;

fn a_quad(i: u32, left: u32) -> vec4<f32> {
    return a[i / 4u];
}

fn b_quad(i: u32, left: u32) -> vec4<f32> {
    return b[i / 4u];
}
