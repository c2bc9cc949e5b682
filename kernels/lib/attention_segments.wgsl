// Attention within segments: each position [batch, length] has a number, and a query sees the keys of
// its own. Keys below zero are padding, which nothing sees; what queries there see is of no use to
// anyone: all keys that are not padding.

const SEGMENTS: u32 = 5u;

@group(0) @binding(SEGMENTS) var<storage, read_write> segments: array<f32>;

fn in_segment(head_index: u32, q: u32, k: u32) -> bool {
    let first = head_index / dims.heads * dims.length;
    let own = segments[first + min(q, dims.length - 1u)];
    let other = segments[first + min(k, dims.length - 1u)];
    return other >= 0.0 && (own < 0.0 || own == other);
}
