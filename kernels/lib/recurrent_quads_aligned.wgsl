// Quads of the weight and of the state where the hidden size is a multiple of four: see
// lib/recurrent_quads.

@group(0) @binding(3) var<storage, read_write> weight: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> state: array<vec4<f32>>;

fn weight_quad(i: u32, left: u32) -> vec4<f32> {
    return weight[i / 4u];
}

fn state_quad(i: u32, left: u32) -> vec4<f32> {
    return state[i / 4u];
}

fn state_at(i: u32) -> f32 {
    return state[i / 4u][i % 4u];
}

fn store_state(i: u32, left: u32, quad: vec4<f32>) {
    state[i / 4u] = quad;
}
