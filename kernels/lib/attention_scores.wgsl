// @use lib/philox
// @use lib/attention_open
// What a query sees, and what becomes of its scores: common to all attention kernels.

// 1 where a query sees only keys up to its own position.
const CAUSAL: u32 = 1u;
// 1 where elements of P are dropped.
const DROPOUT: u32 = 0u;
// 1 where scores fall with the distance, in each head by a slope of its own.
const ALIBI: u32 = 0u;

struct Dims {
    // Samples times heads.
    heads_total: u32,
    length: u32,
    width: u32,
    heads: u32,
    scale: f32,
    dropout: f32,
    stream: u32,
    // Keys that a query sees where CAUSAL is 1: its own and those before.
    window: u32,
    // The largest power of two that is at most `heads`.
    slopes: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;

// Whether the score of a query and a key counts.
fn is_seen(head_index: u32, q: u32, k: u32) -> bool {
    return q < dims.length && k < dims.length && (CAUSAL == 0u || (k <= q && q - k < dims.window)) && in_segment(head_index, q, k);
}

// The first key that queries from `first` on see, as a multiple of `block`.
fn first_key(first: u32, block: u32) -> u32 {
    if (CAUSAL == 0u || first < dims.window) {
        return 0u;
    }
    return (first + 1u - dims.window) / block * block;
}

// A head's slope (Press et al. 2022): 2^(−8·(h + 1)/n) for the first n heads, n a power of two, and
// every other slope of 2·n heads for the rest.
fn slope_of(head: u32) -> f32 {
    if (ALIBI == 0u) {
        return 0.0;
    }
    let n = f32(dims.slopes);
    let h = f32(head);
    return exp2(select(-8.0 * (h + 1.0) / n, -4.0 * (2.0 * (h - n) + 1.0) / n, head >= dims.slopes));
}

// The score of a query and a key by their product.
fn score(slope: f32, product: f32, q: u32, k: u32) -> f32 {
    if (ALIBI == 0u) {
        return product * dims.scale;
    }
    return product * dims.scale - slope * abs(f32(q) - f32(k));
}

// What P's element is multiplied with: 0 or 1/(1 − p).
fn kept(head_index: u32, q: u32, k: u32) -> f32 {
    if (DROPOUT == 0u) {
        return 1.0;
    }
    let draw = philox_uniform(dims.stream, (head_index * dims.length + q) * dims.length + k);
    return select(0.0, 1.0 / (1.0 - dims.dropout), draw >= dims.dropout);
}

// The same for 32 queries from q on, or 32 keys from k on: bit i is 1 where the i-th is kept. A loop,
// because many copies of the generator in one kernel take too many registers.
fn kept_queries(head_index: u32, q: u32, k: u32) -> u32 {
    var bits = 0u;
    if (DROPOUT == 1u) {
        for (var i = 0u; i < 32u; i++) {
            bits |= select(0u, 1u << i, kept(head_index, q + i, k) > 0.0);
        }
    }
    return bits;
}

fn kept_keys(head_index: u32, q: u32, k: u32) -> u32 {
    var bits = 0u;
    if (DROPOUT == 1u) {
        for (var i = 0u; i < 32u; i++) {
            bits |= select(0u, 1u << i, kept(head_index, q, k + i) > 0.0);
        }
    }
    return bits;
}

// What element i of them is multiplied with.
fn kept_by(bits: u32, i: u32) -> f32 {
    if (DROPOUT == 0u) {
        return 1.0;
    }
    return select(0.0, 1.0 / (1.0 - dims.dropout), ((bits >> i) & 1u) == 1u);
}
