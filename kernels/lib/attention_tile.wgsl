// @use lib/philox
// What the attention kernels share: extents, tiles in workgroup memory, the dropout mask.

// Queries and keys in a tile.
const BLOCK: u32 = 16u;
// Features of a head.
const HEAD: u32 = 64u;
// 1 where a query sees only keys up to its own position.
const CAUSAL: u32 = 1u;
// 1 where elements of P are dropped.
const DROPOUT: u32 = 0u;

const THREADS: u32 = 256u;
const TILE: u32 = BLOCK * HEAD;
const SCORES: u32 = BLOCK * BLOCK;
// Elements of a tile that one thread owns.
const OWN: u32 = (TILE + THREADS - 1u) / THREADS;

struct Dims {
    // Samples times heads.
    heads_total: u32,
    length: u32,
    width: u32,
    heads: u32,
    scale: f32,
    dropout: f32,
    stream: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;

// Where a workgroup works.
struct Place {
    live: bool,
    // Sample times heads plus head.
    head_index: u32,
    sample: u32,
    // First column of the head in a row of `width`.
    column: u32,
    // First query or key of the tile.
    first: u32,
}

fn place_of(index: u32) -> Place {
    let tiles = (dims.length + BLOCK - 1u) / BLOCK;
    let head_index = index / tiles;
    let sample = head_index / dims.heads;
    let column = (head_index % dims.heads) * HEAD;
    return Place(head_index < dims.heads_total, head_index, sample, column, (index % tiles) * BLOCK);
}

fn is_seen(q: u32, k: u32) -> bool {
    return q < dims.length && k < dims.length && (CAUSAL == 0u || k <= q);
}

// What P's element is multiplied with: 0 or 1/(1 − p).
fn kept(head_index: u32, q: u32, k: u32) -> f32 {
    if (DROPOUT == 0u) {
        return 1.0;
    }
    let draw = philox_uniform(dims.stream, (head_index * dims.length + q) * dims.length + k);
    return select(0.0, 1.0 / (1.0 - dims.dropout), draw >= dims.dropout);
}
