// Samples that have the steps below their length only.

@group(0) @binding(7) var<storage, read_write> lengths: array<f32>;

fn is_padded(sample: u32) -> bool {
    return f32(dims.step) >= lengths[sample];
}
