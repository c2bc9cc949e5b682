// @use lib/matrix16
// @use lib/attention_scores
// What the attention kernels on matrix units share. GROUPS groups of 32 threads each own 32 rows of
// one head (queries, or keys), as STRIPS strips of SIDE, whose parts they keep in registers; together
// they walk over blocks of 32 rows of the other side, which lie in workgroup memory while the next
// block is on its way. Lengths and heads must be multiples of SIDE; rows past the end are those of
// the last strip again, masked.
//
// What is not a product goes through workgroup memory: a thread then has one row of scores. Its
// columns are taken in turns that begin at its row, which spreads the banks.

const HEAD: u32 = 64u;
// HEAD / SIDE and 32 / SIDE.
const FEATURES: u32 = 4u;
const STRIPS: u32 = 2u;

const GROUPS: u32 = 4u;
const THREADS: u32 = GROUPS * 32u;
const ROWS: u32 = GROUPS * 32u;
// Quads of a block that a thread brings in: HEAD * 8 / THREADS.
const QUADS: u32 = 4u;

const SCORES: u32 = 36u;
const WEIGHTS: u32 = 40u;
const STRIDE: u32 = HEAD + 8u;

// Scores of a group's rows, and P or dS in half precision.
var<workgroup> scores: array<f32, ROWS * SCORES>;
var<workgroup> weights: array<f16, ROWS * WEIGHTS>;
// Two blocks of the other side: keys and values, or queries and cotangents.
var<workgroup> ones: array<cell_t, 32u * STRIDE / CELL>;
var<workgroup> twos: array<cell_t, 32u * STRIDE / CELL>;

// Where a group works.
struct Place {
    // Sample times heads plus head.
    head_index: u32,
    sample: u32,
    // First column of the head in a row of `width`.
    column: u32,
    // First row of the group.
    own: u32,
    // Where the group's scores and weights begin.
    scores: u32,
    weights: u32,
    // What a score loses for each position between query and key.
    slope: f32,
}

// Workgroups of a head. (Head and first row of a workgroup are found apart from what differs within
// it, so that they are seen to be uniform.)
fn tiles() -> u32 {
    return (dims.length + ROWS - 1u) / ROWS;
}

fn place_of(head_index: u32, first: u32, local: u32) -> Place {
    let group = local / 32u;
    return Place(
        head_index,
        head_index / dims.heads,
        (head_index % dims.heads) * HEAD,
        first + group * 32u,
        group * 32u * SCORES,
        group * 32u * WEIGHTS,
        slope_of(head_index % dims.heads),
    );
}

// The strip of rows from `row` on, or the last one.
fn strip(row: u32) -> u32 {
    return min(row, dims.length - SIDE);
}

// Where the features of a row of q (part 0), k (1) or v (2) begin.
fn qkv_at(p: Place, row: u32, part: u32) -> u32 {
    return (p.sample * dims.length + row) * 3u * dims.width + part * dims.width + p.column;
}

// Where the features of a row of the results begin.
fn out_at(p: Place, row: u32) -> u32 {
    return (p.sample * dims.length + row) * dims.width + p.column;
}

// Where log Σ eˢ and δ of a query's row lie.
fn row_number(p: Place, row: u32) -> u32 {
    return p.head_index * dims.length + min(row, dims.length - 1u);
}

// Row of a block, and feature, of a quad.
fn row_of(quad: u32) -> u32 {
    return quad / (HEAD / 4u);
}

fn feature_of(quad: u32) -> u32 {
    return (quad % (HEAD / 4u)) * 4u;
}

// A row of the other side, or the last one.
fn row_at(row: u32) -> u32 {
    return min(row, dims.length - 1u);
}

fn keep_one(value: vec4<f16>, quad: u32) {
    let to = (row_of(quad) * STRIDE + feature_of(quad)) / CELL;
    // @for j in QUAD_CELLS
    ones[to + $ju] = cell(value, $ju);
    // @end
}

fn keep_two(value: vec4<f16>, quad: u32) {
    let to = (row_of(quad) * STRIDE + feature_of(quad)) / CELL;
    // @for j in QUAD_CELLS
    twos[to + $ju] = cell(value, $ju);
    // @end
}

// A part of a block from row r and feature d on, as it lies and transposed.
fn one_at(r: u32, d: u32) -> right_part {
    return coopLoadT<right_part>(&ones[(r * STRIDE + d) / CELL], STRIDE / CELL);
}

fn one_across(r: u32, d: u32) -> right_part {
    return coopLoad<right_part>(&ones[(r * STRIDE + d) / CELL], STRIDE / CELL);
}

fn two_at(r: u32, d: u32) -> right_part {
    return coopLoadT<right_part>(&twos[(r * STRIDE + d) / CELL], STRIDE / CELL);
}

fn two_across(r: u32, d: u32) -> right_part {
    return coopLoad<right_part>(&twos[(r * STRIDE + d) / CELL], STRIDE / CELL);
}

fn weights_at(p: Place, r: u32, c: u32) -> left_part {
    return coopLoadT<left_part>(&weights[p.weights + r * WEIGHTS + c], WEIGHTS);
}

fn qkv_quad(at: u32) -> vec4<f16> {
    return quad_of(qkv[at / CELL], qkv[(at + 1u) / CELL], qkv[(at + 2u) / CELL], qkv[(at + 3u) / CELL]);
}

// A quad of a block of q (part 0), k (1) or v (2).
fn block_quad(p: Place, first: u32, part: u32, quad: u32) -> vec4<f16> {
    return qkv_quad(qkv_at(p, row_at(first + row_of(quad)), part) + feature_of(quad));
}
