// The tile product of matrix products and convolutions: C[m, n] = Σ_k A[m, k]·B[k, n] for a tile of
// ROWS x COLS, by 256 threads. The sums go DEPTH terms at a time through workgroup memory, terms
// outermost, each row of it padded by a quad to spread the banks; while one step is multiplied, the
// next is on its way to registers: at most one quad of A and one of B for each thread.
//
// A thread computes a block of 4x4. Where that needs fewer than 256 threads, SLICES groups of
// threads take turns at the terms of a step, and their sums are added in order.
//
// A kernel gives
//   load_a(m, k, end): A[m, k..k + 4] if A_ALONG_TERMS = 1, else A[m..m + 4, k],
//   load_b(k, n, end): B[k..k + 4, n] if B_ALONG_TERMS = 1, else B[k, n..n + 4],
// zero outside of the matrices and from term `end` on, and store(m, n, value), which ignores what
// lies outside.

// What tiles are kept in.
alias tile_t = f32;

const THREADS: u32 = 256u;
const ROWS: u32 = 64u;
const COLS: u32 = 64u;
const DEPTH: u32 = 16u;
const SLICES: u32 = 1u;
// DEPTH / SLICES.
const STEPS: u32 = 16u;
const A_ALONG_TERMS: u32 = 1u;
const B_ALONG_TERMS: u32 = 0u;

const A_QUADS: u32 = ROWS / 4u + 1u;
const B_QUADS: u32 = COLS / 4u + 1u;
const A_TILE: u32 = DEPTH * A_QUADS;
const B_TILE: u32 = DEPTH * B_QUADS;
// Threads along the columns, along the rows, and in a slice.
const ACROSS: u32 = COLS / 4u;
const DOWN: u32 = ROWS / 4u;
const SLICE: u32 = ACROSS * DOWN;
// Quads in which slices hand their sums on: SLICE * 4, or 1 where there is one slice.
const SUMS: u32 = 1u;

var<workgroup> a_tile: array<vec4<tile_t>, A_TILE>;
var<workgroup> b_tile: array<vec4<tile_t>, B_TILE>;
var<workgroup> sums: array<vec4<tile_t>, SUMS>;

fn fetch_a(row: u32, term: u32, end: u32, local: u32) -> vec4<tile_t> {
    if (local >= ROWS * DEPTH / 4u) {
        return vec4<tile_t>();
    }
    if (A_ALONG_TERMS == 1u) {
        return load_a(row + local / (DEPTH / 4u), term + (local % (DEPTH / 4u)) * 4u, end);
    }
    return load_a(row + (local % (ROWS / 4u)) * 4u, term + local / (ROWS / 4u), end);
}

fn fetch_b(term: u32, col: u32, end: u32, local: u32) -> vec4<tile_t> {
    if (local >= COLS * DEPTH / 4u) {
        return vec4<tile_t>();
    }
    if (B_ALONG_TERMS == 1u) {
        return load_b(term + (local % (DEPTH / 4u)) * 4u, col + local / (DEPTH / 4u), end);
    }
    return load_b(term + local / (COLS / 4u), col + (local % (COLS / 4u)) * 4u, end);
}

fn keep_a(quad: vec4<tile_t>, local: u32) {
    if (local >= ROWS * DEPTH / 4u) {
        return;
    }
    if (A_ALONG_TERMS == 1u) {
        let r = local / (DEPTH / 4u);
        let t = (local % (DEPTH / 4u)) * 4u;
        // @for j in 4
        a_tile[(t + $ju) * A_QUADS + r / 4u][r % 4u] = quad[$j];
        // @end
    } else {
        a_tile[local / (ROWS / 4u) * A_QUADS + local % (ROWS / 4u)] = quad;
    }
}

fn keep_b(quad: vec4<tile_t>, local: u32) {
    if (local >= COLS * DEPTH / 4u) {
        return;
    }
    if (B_ALONG_TERMS == 1u) {
        let c = local / (DEPTH / 4u);
        let t = (local % (DEPTH / 4u)) * 4u;
        // @for j in 4
        b_tile[(t + $ju) * B_QUADS + c / 4u][c % 4u] = quad[$j];
        // @end
    } else {
        b_tile[local / (COLS / 4u) * B_QUADS + local % (COLS / 4u)] = quad;
    }
}

// The product over terms first..end for the tile whose first element is (row, col).
fn tile_product(row: u32, col: u32, first: u32, end: u32, local: u32) {
    let slice = local / SLICE;
    let across = local % ACROSS;
    let down = (local % SLICE) / ACROSS;
    // @for i in 4
    var acc_$i = vec4<f32>();
    // @end
    var a_next = fetch_a(row, first, end, local);
    var b_next = fetch_b(first, col, end, local);
    for (var term = first; term < end; term += DEPTH) {
        keep_a(a_next, local);
        keep_b(b_next, local);
        workgroupBarrier();
        if (term + DEPTH < end) {
            a_next = fetch_a(row, term + DEPTH, end, local);
            b_next = fetch_b(term + DEPTH, col, end, local);
        }
        // @for t in STEPS
        let right_$t = b_tile[($tu * SLICES + slice) * B_QUADS + across];
        let left_$t = a_tile[($tu * SLICES + slice) * A_QUADS + down];
        // @for i in 4
        acc_$i = fma(vec4<f32>(left_$t[$i]), right_$t, acc_$i);
        // @end
        // @end
        workgroupBarrier();
    }
    for (var s = 1u; s < SLICES; s++) {
        if (slice == s) {
            // @for i in 4
            sums[(local % SLICE) * 4u + $iu] = acc_$i;
            // @end
        }
        workgroupBarrier();
        if (slice == 0u) {
            // @for i in 4
            acc_$i += sums[(local % SLICE) * 4u + $iu];
            // @end
        }
        workgroupBarrier();
    }
    if (slice == 0u) {
        // @for i in 4
        // @for j in 4
        store(row + down * 4u + $iu, col + across * 4u + $ju, acc_$i[$j]);
        // @end
        // @end
    }
}
