// @use lib/attention_scores
// What the attention kernels share. A workgroup of 64 threads, 8 by 8, owns BLOCK rows of one head
// (queries, or keys) and walks over blocks of the other side. Tiles of rows lie in workgroup memory
// as quads of features, rows padded by one quad to spread the banks. A thread has the rows
// down, down + 8, … of what the workgroup owns, and of the other side across, across + 8, …; of the
// features of its rows it has the quads across, across + 8, …

// Queries and keys in a tile.
const BLOCK: u32 = 32u;
// Rows of a thread: BLOCK / 8.
const MINE: u32 = 4u;
// Features of a head, as quads, and quads of a thread.
const HEAD: u32 = 64u;
const QUADS: u32 = 16u;
const OWN: u32 = 2u;

const THREADS: u32 = 64u;
const STRIDE: u32 = QUADS + 1u;
// A thread may read up to seven quads past the last row; it drops what comes of them.
const TILE: u32 = BLOCK * STRIDE + 8u;
// Elements of a row of weights.
const WEIGHTS: u32 = BLOCK + 4u;
const ALL_WEIGHTS: u32 = BLOCK * WEIGHTS;

var<workgroup> own: array<vec4<f32>, TILE>;
var<workgroup> other: array<vec4<f32>, TILE>;
// [row of the workgroup, row of the other side].
var<workgroup> weights: array<f32, ALL_WEIGHTS>;

// Where a workgroup works.
struct Place {
    // Sample times heads plus head.
    head_index: u32,
    sample: u32,
    // First column of the head in a row of `width`.
    column: u32,
    // First query or key of the tile.
    first: u32,
    // What a score loses for each position between query and key.
    slope: f32,
}

fn place_of(index: u32) -> Place {
    let tiles = (dims.length + BLOCK - 1u) / BLOCK;
    let head_index = index / tiles;
    let sample = head_index / dims.heads;
    let head = head_index % dims.heads;
    return Place(head_index, sample, head * HEAD, (index % tiles) * BLOCK, slope_of(head));
}

// Whether the features of a quad belong to the head.
fn in_head(feature: u32) -> bool {
    return HEAD % 4u == 0u || feature < HEAD;
}

// A quad of features of a row of q (part 0), k (1) or v (2); 0 outside. Reads without branches, so
// that many loads are on their way at once.
fn qkv_quad(p: Place, row: u32, part: u32, quad: u32) -> vec4<f32> {
    let safe = min(row, dims.length - 1u);
    let base = (p.sample * dims.length + safe) * 3u * dims.width + part * dims.width + p.column;
    var values: vec4<f32>;
    // @for j in 4
    values[$j] = select(0.0, f32(qkv[base + select(0u, quad * 4u + $ju, in_head(quad * 4u + $ju))]), in_head(quad * 4u + $ju));
    // @end
    return select(vec4<f32>(), values, row < dims.length);
}

fn keep_own(p: Place, part: u32, local: u32) {
    for (var e = local; e < BLOCK * QUADS; e += THREADS) {
        own[e / QUADS * STRIDE + e % QUADS] = qkv_quad(p, p.first + e / QUADS, part, e % QUADS);
    }
}

fn keep_other(p: Place, first: u32, part: u32, local: u32) {
    for (var e = local; e < BLOCK * QUADS; e += THREADS) {
        other[e / QUADS * STRIDE + e % QUADS] = qkv_quad(p, first + e / QUADS, part, e % QUADS);
    }
}

// Four weights of a row. (They are kept one by one: threads that write next to each other must not
// share a vector, which Metal may store as a whole.)
fn weights_quad(row: u32, quad: u32) -> vec4<f32> {
    let at = row * WEIGHTS + quad * 4u;
    return vec4<f32>(weights[at], weights[at + 1u], weights[at + 2u], weights[at + 3u]);
}
