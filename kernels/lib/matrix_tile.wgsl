// @use lib/matrix16
// The tile product of lib/tile on matrix units: four groups of 32 threads, two by two, each with
// ROWS / 2 x COLS / 2 of the tile as sums in registers. Factors are rounded to half precision on
// their way to workgroup memory, DEPTH terms at a time; while one step is multiplied, the next is
// on its way to registers. A tile is kept as its operand lies in memory, lines padded by eight
// halves to spread the banks.
//
// What a kernel gives is as in lib/tile.

const THREADS: u32 = 128u;
const ROWS: u32 = 128u;
const COLS: u32 = 128u;
const DEPTH: u32 = 32u;
const A_ALONG_TERMS: u32 = 1u;
const B_ALONG_TERMS: u32 = 0u;
// Quads that a thread brings in: ROWS * DEPTH / 4 / THREADS, and with COLS.
const A_QUADS: u32 = 8u;
const B_QUADS: u32 = 8u;
// Parts of a group's sums: ROWS / 2 / SIDE, and half of COLS / 2 / SIDE.
const PARTS_M: u32 = 4u;
const PAIRS_N: u32 = 2u;

const A_LINE: u32 = A_ALONG_TERMS * DEPTH + (1u - A_ALONG_TERMS) * ROWS;
const B_LINE: u32 = B_ALONG_TERMS * DEPTH + (1u - B_ALONG_TERMS) * COLS;
const A_STRIDE: u32 = A_LINE + 8u;
const B_STRIDE: u32 = B_LINE + 8u;
const A_TILE: u32 = (ROWS * DEPTH / A_LINE) * A_STRIDE;
const B_TILE: u32 = (COLS * DEPTH / B_LINE) * B_STRIDE;
// Elements of two parts side by side.
const STRIP: u32 = 2u * SIDE * SIDE;

var<workgroup> a_tile: array<f16, A_TILE>;
var<workgroup> b_tile: array<f16, B_TILE>;
var<workgroup> strips: array<f32, 4u * STRIP>;

fn fetch_a(row: u32, term: u32, end: u32, quad: u32) -> vec4<f16> {
    let line = quad / (A_LINE / 4u);
    let at = (quad % (A_LINE / 4u)) * 4u;
    if (A_ALONG_TERMS == 1u) {
        return vec4<f16>(load_a(row + line, term + at, end));
    }
    return vec4<f16>(load_a(row + at, term + line, end));
}

fn fetch_b(term: u32, col: u32, end: u32, quad: u32) -> vec4<f16> {
    let line = quad / (B_LINE / 4u);
    let at = (quad % (B_LINE / 4u)) * 4u;
    if (B_ALONG_TERMS == 1u) {
        return vec4<f16>(load_b(term + at, col + line, end));
    }
    return vec4<f16>(load_b(term + line, col + at, end));
}

fn keep_a(value: vec4<f16>, quad: u32) {
    let to = quad / (A_LINE / 4u) * A_STRIDE + (quad % (A_LINE / 4u)) * 4u;
    // @for j in 4
    a_tile[to + $ju] = value[$j];
    // @end
}

fn keep_b(value: vec4<f16>, quad: u32) {
    let to = quad / (B_LINE / 4u) * B_STRIDE + (quad % (B_LINE / 4u)) * 4u;
    // @for j in 4
    b_tile[to + $ju] = value[$j];
    // @end
}

// The product over terms first..end for the tile whose first element is (row, col).
fn tile_product(row: u32, col: u32, first: u32, end: u32, local: u32) {
    let group = local / 32u;
    let down = (group / 2u) * (ROWS / 2u);
    let across = (group % 2u) * (COLS / 2u);
    // @for i in PARTS_M
    // @for j in PAIRS_N
    var left_sum_$i_$j: sum_part;
    var right_sum_$i_$j: sum_part;
    // @end
    // @end
    // @for q in A_QUADS
    var a_next_$q = fetch_a(row, first, end, local + $qu * THREADS);
    // @end
    // @for q in B_QUADS
    var b_next_$q = fetch_b(first, col, end, local + $qu * THREADS);
    // @end
    for (var term = first; term < end; term += DEPTH) {
        // @for q in A_QUADS
        keep_a(a_next_$q, local + $qu * THREADS);
        // @end
        // @for q in B_QUADS
        keep_b(b_next_$q, local + $qu * THREADS);
        // @end
        workgroupBarrier();
        if (term + DEPTH < end) {
            // @for q in A_QUADS
            a_next_$q = fetch_a(row, term + DEPTH, end, local + $qu * THREADS);
            // @end
            // @for q in B_QUADS
            b_next_$q = fetch_b(term + DEPTH, col, end, local + $qu * THREADS);
            // @end
        }
        for (var t = 0u; t < DEPTH; t += SIDE) {
            // @for i in PARTS_M
            let a_$i = left_at(down + $iu * SIDE, t);
            // @end
            // @for j in PAIRS_N
            let b_left_$j = right_at(t, across + $ju * 2u * SIDE);
            let b_right_$j = right_at(t, across + ($ju * 2u + 1u) * SIDE);
            // @for i in PARTS_M
            left_sum_$i_$j = coopMultiplyAdd(a_$i, b_left_$j, left_sum_$i_$j);
            right_sum_$i_$j = coopMultiplyAdd(a_$i, b_right_$j, right_sum_$i_$j);
            // @end
            // @end
        }
        workgroupBarrier();
    }
    // @for i in PARTS_M
    // @for j in PAIRS_N
    coopStoreT(left_sum_$i_$j, &strips[group * STRIP], 2u * SIDE);
    coopStoreT(right_sum_$i_$j, &strips[group * STRIP + SIDE], 2u * SIDE);
    workgroupBarrier();
    hand_out(row + down + $iu * SIDE, col + across + $ju * 2u * SIDE, local);
    workgroupBarrier();
    // @end
    // @end
}

fn left_at(m: u32, k: u32) -> left_part {
    if (A_ALONG_TERMS == 1u) {
        return coopLoadT<left_part>(&a_tile[m * A_STRIDE + k], A_STRIDE);
    }
    return coopLoad<left_part>(&a_tile[k * A_STRIDE + m], A_STRIDE);
}

fn right_at(k: u32, n: u32) -> right_part {
    if (B_ALONG_TERMS == 1u) {
        return coopLoad<right_part>(&b_tile[n * B_STRIDE + k], B_STRIDE);
    }
    return coopLoadT<right_part>(&b_tile[k * B_STRIDE + n], B_STRIDE);
}

// Stores a strip of a group's sums, whose first element is (row, col).
fn hand_out(row: u32, col: u32, local: u32) {
    for (var at = local % 32u; at < STRIP; at += 32u) {
        store(row + at / (2u * SIDE), col + at % (2u * SIDE), strips[local / 32u * STRIP + at]);
    }
}
