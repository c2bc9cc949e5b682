// Quads of the weight and of the state that steps hand on: the elements i..i + 4, zero from `left`
// elements on. This is the form for any hidden size; where it is a multiple of four, a form that
// reads and writes whole quads stands in its place.

@group(0) @binding(3) var<storage, read_write> weight: array<f32>;
@group(0) @binding(4) var<storage, read_write> state: array<f32>;

fn weight_quad(i: u32, left: u32) -> vec4<f32> {
    var quad = vec4<f32>(weight[i], 0.0, 0.0, 0.0);
    // @for j in 4
    if ($ju < left) {
        quad[$j] = weight[i + $ju];
    }
    // @end
    return quad;
}

fn state_quad(i: u32, left: u32) -> vec4<f32> {
    var quad = vec4<f32>(state[i], 0.0, 0.0, 0.0);
    // @for j in 4
    if ($ju < left) {
        quad[$j] = state[i + $ju];
    }
    // @end
    return quad;
}

fn state_at(i: u32) -> f32 {
    return state[i];
}

fn store_state(i: u32, left: u32, quad: vec4<f32>) {
    // @for j in 4
    if ($ju < left) {
        state[i + $ju] = quad[$j];
    }
    // @end
}
