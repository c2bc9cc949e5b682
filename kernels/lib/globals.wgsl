// Scalars of the micro-step: the twin of device::Globals.

struct Globals {
    step: u32,
    micro: u32,
    seed: vec2<u32>,
    hyper: array<vec4<f32>, 2>,
    pad: vec4<u32>,
}

@group(0) @binding(1) var<uniform> globals: Globals;
