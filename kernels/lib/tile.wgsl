// The tile product of matrix products and convolutions: C[m, n] = Σ_k A[m, k]·B[k, n] for a tile of
// ROWS x COLS. The sums go DEPTH terms at a time through workgroup memory, terms outermost, each row
// of it padded by a quad to spread the banks; while one step is multiplied, the next is on its way
// to registers.
//
// A thread computes UP by WIDE blocks of 4x4, spread evenly over the tile. Where that needs fewer
// than THREADS threads, SLICES groups of threads take turns at the terms of a step, and their sums
// are added in order.
//
// A kernel gives
//   load_a(m, k, end): A[m, k..k + 4] if A_ALONG_TERMS = 1, else A[m..m + 4, k],
//   load_b(k, n, end): B[k..k + 4, n] if B_ALONG_TERMS = 1, else B[k, n..n + 4],
// zero outside of the matrices and from term `end` on, and store(m, n, values) for four elements,
// which ignores what lies outside.

// What tiles are kept in.
alias tile_t = f32;

const THREADS: u32 = 256u;
const ROWS: u32 = 64u;
const COLS: u32 = 64u;
const DEPTH: u32 = 16u;
const UP: u32 = 1u;
const WIDE: u32 = 1u;
const SLICES: u32 = 1u;
// DEPTH / SLICES.
const STEPS: u32 = 16u;
const A_ALONG_TERMS: u32 = 1u;
const B_ALONG_TERMS: u32 = 0u;
// What a thread brings in, at most: quads; or where quads lie along the terms and a part of a vector
// cannot be stored alone, blocks of four rows (columns) by four terms, which it turns. (Metal may
// store a part of a vector by writing all of it, over what another thread wrote.)
const A_QUADS: u32 = 0u;
const A_BLOCKS: u32 = 1u;
const B_QUADS: u32 = 1u;
const B_BLOCKS: u32 = 0u;

const A_STRIDE: u32 = ROWS / 4u + 1u;
const B_STRIDE: u32 = COLS / 4u + 1u;
const A_TILE: u32 = DEPTH * A_STRIDE;
const B_TILE: u32 = DEPTH * B_STRIDE;
// Threads along the columns, along the rows, and in a slice.
const ACROSS: u32 = COLS / 4u / WIDE;
const DOWN: u32 = ROWS / 4u / UP;
const SLICE: u32 = ACROSS * DOWN;
// Quads in which slices hand their sums on: SLICE * 4 * UP * WIDE, or 1 where there is one slice.
const SUMS: u32 = 1u;

var<workgroup> a_tile: array<vec4<tile_t>, A_TILE>;
var<workgroup> b_tile: array<vec4<tile_t>, B_TILE>;
var<workgroup> sums: array<vec4<f32>, SUMS>;

fn fetch_a(row: u32, term: u32, end: u32, quad: u32) -> vec4<tile_t> {
    if (ROWS * DEPTH / 4u % THREADS != 0u && quad >= ROWS * DEPTH / 4u) {
        return vec4<tile_t>();
    }
    if (A_ALONG_TERMS == 1u) {
        return load_a(row + quad / (DEPTH / 4u), term + (quad % (DEPTH / 4u)) * 4u, end);
    }
    return load_a(row + (quad % (ROWS / 4u)) * 4u, term + quad / (ROWS / 4u), end);
}

fn fetch_b(term: u32, col: u32, end: u32, quad: u32) -> vec4<tile_t> {
    if (COLS * DEPTH / 4u % THREADS != 0u && quad >= COLS * DEPTH / 4u) {
        return vec4<tile_t>();
    }
    if (B_ALONG_TERMS == 1u) {
        return load_b(term + (quad % (DEPTH / 4u)) * 4u, col + quad / (DEPTH / 4u), end);
    }
    return load_b(term + quad / (COLS / 4u), col + (quad % (COLS / 4u)) * 4u, end);
}

fn keep_a(value: vec4<tile_t>, quad: u32) {
    if (ROWS * DEPTH / 4u % THREADS != 0u && quad >= ROWS * DEPTH / 4u) {
        return;
    }
    if (A_ALONG_TERMS == 1u) {
        let r = quad / (DEPTH / 4u);
        let t = (quad % (DEPTH / 4u)) * 4u;
        // @for j in 4
        a_tile[(t + $ju) * A_STRIDE + r / 4u][r % 4u] = value[$j];
        // @end
    } else {
        a_tile[quad / (ROWS / 4u) * A_STRIDE + quad % (ROWS / 4u)] = value;
    }
}

fn keep_b(value: vec4<tile_t>, quad: u32) {
    if (COLS * DEPTH / 4u % THREADS != 0u && quad >= COLS * DEPTH / 4u) {
        return;
    }
    if (B_ALONG_TERMS == 1u) {
        let c = quad / (DEPTH / 4u);
        let t = (quad % (DEPTH / 4u)) * 4u;
        // @for j in 4
        b_tile[(t + $ju) * B_STRIDE + c / 4u][c % 4u] = value[$j];
        // @end
    } else {
        b_tile[quad / (COLS / 4u) * B_STRIDE + quad % (COLS / 4u)] = value;
    }
}

// Line `line` of a block: the terms of one row, or of one column.
fn fetch_a_line(row: u32, term: u32, end: u32, block: u32, line: u32) -> vec4<tile_t> {
    if (ROWS * DEPTH / 16u % THREADS != 0u && block >= ROWS * DEPTH / 16u) {
        return vec4<tile_t>();
    }
    return load_a(row + block / (DEPTH / 4u) * 4u + line, term + (block % (DEPTH / 4u)) * 4u, end);
}

fn fetch_b_line(term: u32, col: u32, end: u32, block: u32, line: u32) -> vec4<tile_t> {
    if (COLS * DEPTH / 16u % THREADS != 0u && block >= COLS * DEPTH / 16u) {
        return vec4<tile_t>();
    }
    return load_b(term + (block % (DEPTH / 4u)) * 4u, col + block / (DEPTH / 4u) * 4u + line, end);
}

fn keep_a_block(x: vec4<tile_t>, y: vec4<tile_t>, z: vec4<tile_t>, w: vec4<tile_t>, block: u32) {
    if (ROWS * DEPTH / 16u % THREADS == 0u || block < ROWS * DEPTH / 16u) {
        let to = (block % (DEPTH / 4u)) * 4u * A_STRIDE + block / (DEPTH / 4u);
        // @for j in 4
        a_tile[to + $ju * A_STRIDE] = vec4<tile_t>(x[$j], y[$j], z[$j], w[$j]);
        // @end
    }
}

fn keep_b_block(x: vec4<tile_t>, y: vec4<tile_t>, z: vec4<tile_t>, w: vec4<tile_t>, block: u32) {
    if (COLS * DEPTH / 16u % THREADS == 0u || block < COLS * DEPTH / 16u) {
        let to = (block % (DEPTH / 4u)) * 4u * B_STRIDE + block / (DEPTH / 4u);
        // @for j in 4
        b_tile[to + $ju * B_STRIDE] = vec4<tile_t>(x[$j], y[$j], z[$j], w[$j]);
        // @end
    }
}

// The product over terms first..end for the tile whose first element is (row, col).
fn tile_product(row: u32, col: u32, first: u32, end: u32, local: u32) {
    let slice = local / SLICE;
    let across = local % ACROSS;
    let down = (local % SLICE) / ACROSS;
    // @for i in UP
    // @for e in 4
    // @for j in WIDE
    var acc_$i_$e_$j = vec4<f32>();
    // @end
    // @end
    // @end
    // @for q in A_QUADS
    var a_next_$q = fetch_a(row, first, end, local + $qu * THREADS);
    // @end
    // @for q in B_QUADS
    var b_next_$q = fetch_b(first, col, end, local + $qu * THREADS);
    // @end
    // @for q in A_BLOCKS
    // @for e in 4
    var a_line_$q_$e = fetch_a_line(row, first, end, local + $qu * THREADS, $eu);
    // @end
    // @end
    // @for q in B_BLOCKS
    // @for e in 4
    var b_line_$q_$e = fetch_b_line(first, col, end, THREADS - 1u - local + $qu * THREADS, $eu);
    // @end
    // @end
    for (var term = first; term < end; term += DEPTH) {
        // @for q in A_QUADS
        keep_a(a_next_$q, local + $qu * THREADS);
        // @end
        // @for q in B_QUADS
        keep_b(b_next_$q, local + $qu * THREADS);
        // @end
        // @for q in A_BLOCKS
        keep_a_block(a_line_$q_0, a_line_$q_1, a_line_$q_2, a_line_$q_3, local + $qu * THREADS);
        // @end
        // @for q in B_BLOCKS
        keep_b_block(b_line_$q_0, b_line_$q_1, b_line_$q_2, b_line_$q_3, THREADS - 1u - local + $qu * THREADS);
        // @end
        workgroupBarrier();
        if (term + DEPTH < end) {
            // @for q in A_QUADS
            a_next_$q = fetch_a(row, term + DEPTH, end, local + $qu * THREADS);
            // @end
            // @for q in B_QUADS
            b_next_$q = fetch_b(term + DEPTH, col, end, local + $qu * THREADS);
            // @end
            // @for q in A_BLOCKS
            // @for e in 4
            a_line_$q_$e = fetch_a_line(row, term + DEPTH, end, local + $qu * THREADS, $eu);
            // @end
            // @end
            // @for q in B_BLOCKS
            // @for e in 4
            b_line_$q_$e = fetch_b_line(term + DEPTH, col, end, THREADS - 1u - local + $qu * THREADS, $eu);
            // @end
            // @end
        }
        // @for t in STEPS
        // @for j in WIDE
        let right_$t_$j = b_tile[($tu * SLICES + slice) * B_STRIDE + $ju * ACROSS + across];
        // @end
        // @for i in UP
        let left_$t_$i = a_tile[($tu * SLICES + slice) * A_STRIDE + $iu * DOWN + down];
        // @for e in 4
        // @for j in WIDE
        acc_$i_$e_$j = fma(vec4<f32>(left_$t_$i[$e]), right_$t_$j, acc_$i_$e_$j);
        // @end
        // @end
        // @end
        // @end
        workgroupBarrier();
    }
    for (var s = 1u; s < SLICES; s++) {
        let own = (local % SLICE) * 4u * UP * WIDE;
        if (slice == s) {
            // @for i in UP
            // @for e in 4
            // @for j in WIDE
            sums[own + ($iu * 4u + $eu) * WIDE + $ju] = acc_$i_$e_$j;
            // @end
            // @end
            // @end
        }
        workgroupBarrier();
        if (slice == 0u) {
            // @for i in UP
            // @for e in 4
            // @for j in WIDE
            acc_$i_$e_$j += sums[own + ($iu * 4u + $eu) * WIDE + $ju];
            // @end
            // @end
            // @end
        }
        workgroupBarrier();
    }
    if (slice == 0u) {
        // @for i in UP
        // @for e in 4
        // @for j in WIDE
        {
            let m = row + ($iu * DOWN + down) * 4u + $eu;
            let n = col + ($ju * ACROSS + across) * 4u;
            store(vec4<u32>(m), n + vec4<u32>(0u, 1u, 2u, 3u), acc_$i_$e_$j);
        }
        // @end
        // @end
        // @end
    }
}
