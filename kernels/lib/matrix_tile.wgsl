// @use lib/matrix16
// The tile product of lib/tile on matrix units: two by two groups of 32 threads, each with a
// rectangle of the tile as sums in registers. Factors are rounded to half precision on
// their way to workgroup memory, DEPTH terms at a time; while one step is multiplied, the next is
// on its way to registers. A tile is kept as its operand lies in memory, lines padded by eight
// halves to spread the banks.
//
// What a kernel gives is as in lib/tile.

// What tiles are kept in.
alias tile_t = f16;

const THREADS: u32 = 128u;
const ROWS: u32 = 128u;
const COLS: u32 = 128u;
const DEPTH: u32 = 32u;
const A_ALONG_TERMS: u32 = 1u;
const B_ALONG_TERMS: u32 = 0u;
// Quads that a thread brings in: ROWS * DEPTH / 4 / THREADS, and with COLS.
const A_QUADS: u32 = 8u;
const B_QUADS: u32 = 8u;
// Parts of a group's sums: ROWS / 2 / SIDE and COLS / 2 / SIDE.
const PARTS_M: u32 = 4u;
const PARTS_N: u32 = 4u;

const A_LINE: u32 = A_ALONG_TERMS * DEPTH + (1u - A_ALONG_TERMS) * ROWS;
const B_LINE: u32 = B_ALONG_TERMS * DEPTH + (1u - B_ALONG_TERMS) * COLS;
const A_STRIDE: u32 = A_LINE + 8u;
const B_STRIDE: u32 = B_LINE + 8u;
const A_TILE: u32 = (ROWS * DEPTH / A_LINE) * A_STRIDE;
const B_TILE: u32 = (COLS * DEPTH / B_LINE) * B_STRIDE;
const PART: u32 = SIDE * SIDE;

var<workgroup> a_tile: array<cell_t, A_TILE / CELL>;
var<workgroup> b_tile: array<cell_t, B_TILE / CELL>;
// A part of each group's sums on its way out.
var<workgroup> sums: array<f32, 4u * PART>;

fn fetch_a(row: u32, term: u32, end: u32, quad: u32) -> vec4<tile_t> {
    let line = quad / (A_LINE / 4u);
    let at = (quad % (A_LINE / 4u)) * 4u;
    if (A_ALONG_TERMS == 1u) {
        return load_a(row + line, term + at, end);
    }
    return load_a(row + at, term + line, end);
}

fn fetch_b(term: u32, col: u32, end: u32, quad: u32) -> vec4<tile_t> {
    let line = quad / (B_LINE / 4u);
    let at = (quad % (B_LINE / 4u)) * 4u;
    if (B_ALONG_TERMS == 1u) {
        return load_b(term + at, col + line, end);
    }
    return load_b(term + line, col + at, end);
}

fn keep_a(value: vec4<tile_t>, quad: u32) {
    let to = quad / (A_LINE / 4u) * A_STRIDE + (quad % (A_LINE / 4u)) * 4u;
    // @for j in QUAD_CELLS
    a_tile[to / CELL + $ju] = cell(value, $ju);
    // @end
}

fn keep_b(value: vec4<tile_t>, quad: u32) {
    let to = quad / (B_LINE / 4u) * B_STRIDE + (quad % (B_LINE / 4u)) * 4u;
    // @for j in QUAD_CELLS
    b_tile[to / CELL + $ju] = cell(value, $ju);
    // @end
}

// The product over terms first..end for the tile whose first element is (row, col).
fn tile_product(row: u32, col: u32, first: u32, end: u32, local: u32) {
    let group = local / 32u;
    let down = (group / 2u) * (ROWS / 2u);
    let across = (group % 2u) * (COLS / 2u);
    // @for i in PARTS_M
    // @for j in PARTS_N
    var sum_$i_$j: sum_part;
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
            // @for j in PARTS_N
            let b_$j = right_at(t, across + $ju * SIDE);
            // @for i in PARTS_M
            sum_$i_$j = coopMultiplyAdd(a_$i, b_$j, sum_$i_$j);
            // @end
            // @end
        }
        workgroupBarrier();
    }
    // @for i in PARTS_M
    // @for j in PARTS_N
    coopStoreT(sum_$i_$j, &sums[group * PART], SIDE);
    workgroupBarrier();
    hand_out(row + down + $iu * SIDE, col + across + $ju * SIDE, local);
    workgroupBarrier();
    // @end
    // @end
}

fn left_at(m: u32, k: u32) -> left_part {
    if (A_ALONG_TERMS == 1u) {
        return coopLoadT<left_part>(&a_tile[(m * A_STRIDE + k) / CELL], A_STRIDE / CELL);
    }
    return coopLoad<left_part>(&a_tile[(k * A_STRIDE + m) / CELL], A_STRIDE / CELL);
}

fn right_at(k: u32, n: u32) -> right_part {
    if (B_ALONG_TERMS == 1u) {
        return coopLoad<right_part>(&b_tile[(n * B_STRIDE + k) / CELL], B_STRIDE / CELL);
    }
    return coopLoadT<right_part>(&b_tile[(k * B_STRIDE + n) / CELL], B_STRIDE / CELL);
}

// Stores a part of a group's sums, whose first element is (row, col); a thread takes elements 32
// apart, so that neighbours store side by side. What lies outside of the part is no row at all.
fn hand_out(row: u32, col: u32, local: u32) {
    for (var first = local % 32u; first < PART; first += 128u) {
        let at = first + vec4<u32>(0u, 32u, 64u, 96u);
        let inside = at < vec4<u32>(PART);
        let source = local / 32u * PART + select(vec4<u32>(), at, inside);
        let values = vec4<f32>(sums[source.x], sums[source.y], sums[source.z], sums[source.w]);
        store(select(vec4<u32>(0xffffffffu), row + at / SIDE, inside), col + at % SIDE, values);
    }
}
