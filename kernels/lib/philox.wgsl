// @use lib/globals
// Philox4x32-10 (Salmon et al. 2011): the twin of src/ops/philox.rs, equal in bits.

// High word of a 32x32-bit product, from 16-bit halves.
fn mul_high(a: u32, b: u32) -> u32 {
    let a0 = a & 0xffffu;
    let a1 = a >> 16u;
    let b0 = b & 0xffffu;
    let b1 = b >> 16u;
    let low = a0 * b0;
    let middle = a1 * b0 + (low >> 16u);
    let cross = a0 * b1 + (middle & 0xffffu);
    return a1 * b1 + (middle >> 16u) + (cross >> 16u);
}

fn philox_block(counter: vec4<u32>, key: vec2<u32>) -> vec4<u32> {
    var c = counter;
    var k = key;
    for (var round = 0u; round < 10u; round++) {
        let high = vec2<u32>(mul_high(0xD2511F53u, c.x), mul_high(0xCD9E8D57u, c.z));
        let low = vec2<u32>(0xD2511F53u * c.x, 0xCD9E8D57u * c.z);
        c = vec4<u32>(high.y ^ c.y ^ k.x, low.y, high.x ^ c.w ^ k.y, low.x);
        k += vec2<u32>(0x9E3779B9u, 0xBB67AE85u);
    }
    return c;
}

// The uniform number in [0, 1) of one element of a stream in this micro-step.
fn philox_uniform(stream: u32, element: u32) -> f32 {
    let words = philox_block(vec4<u32>(element / 4u, stream, globals.step, globals.micro), globals.seed);
    return f32(words[element % 4u] >> 8u) * (1.0 / 16777216.0);
}
