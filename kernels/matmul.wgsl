// @use lib/epilogue
// C = op(A)·op(B): a workgroup of 256 threads computes a tile of C, each thread THREAD_ROWS rows
// by THREAD_QUADS groups of four columns of it. Both tiles of a step of DEPTH terms lie in
// workgroup memory with the terms outermost, rows padded by four to spread the banks.

const ROWS: u32 = 64u;
const COLS: u32 = 64u;
const DEPTH: u32 = 16u;
const THREAD_ROWS: u32 = 4u;
const THREAD_QUADS: u32 = 1u;
const TRANS_A: u32 = 0u;
const TRANS_B: u32 = 0u;

struct Dims {
    m: u32,
    n: u32,
    k: u32,
    batch: u32,
    // Terms of a part of the sums.
    terms: u32,
    // Tiles along n, along m, and matrices times parts.
    tiles_n: u32,
    tiles_m: u32,
    layers: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> a: array<f32>;
@group(0) @binding(3) var<storage, read_write> b: array<f32>;

const A_ROW: u32 = ROWS + 4u;
const B_QUADS: u32 = COLS / 4u + 1u;
const A_TILE: u32 = DEPTH * A_ROW;
const B_TILE: u32 = DEPTH * B_QUADS;

var<workgroup> a_tile: array<f32, A_TILE>;
var<workgroup> b_tile: array<vec4<f32>, B_TILE>;

fn load_a(base: u32, row: u32, term: u32, end: u32) -> f32 {
    if (row >= dims.m || term >= end) {
        return 0.0;
    }
    if (TRANS_A == 1u) {
        return a[base + term * dims.m + row];
    }
    return a[base + row * dims.k + term];
}

fn load_b(base: u32, term: u32, col: u32, end: u32) -> f32 {
    if (col >= dims.n || term >= end) {
        return 0.0;
    }
    if (TRANS_B == 1u) {
        return b[base + col * dims.k + term];
    }
    return b[base + term * dims.n + col];
}

// Fills both tiles with the terms from `term` on; neighbouring threads read neighbouring elements.
fn load_tiles(a_base: u32, b_base: u32, row: u32, col: u32, term: u32, end: u32, local: u32) {
    for (var e = local; e < ROWS * DEPTH; e += 256u) {
        var r = e / DEPTH;
        var t = e % DEPTH;
        if (TRANS_A == 1u) {
            r = e % ROWS;
            t = e / ROWS;
        }
        a_tile[t * A_ROW + r] = load_a(a_base, row + r, term + t, end);
    }
    for (var e = local; e < COLS * DEPTH; e += 256u) {
        var c = e % COLS;
        var t = e / COLS;
        if (TRANS_B == 1u) {
            c = e / DEPTH;
            t = e % DEPTH;
        }
        b_tile[t * B_QUADS + c / 4u][c % 4u] = load_b(b_base, term + t, col + c, end);
    }
}

@compute @workgroup_size(256)
fn matmul(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let tile = group.y * groups.x + group.x;
    let layer = tile / (dims.tiles_n * dims.tiles_m);
    if (layer >= dims.layers) {
        return;
    }
    let row = (tile / dims.tiles_n % dims.tiles_m) * ROWS;
    let col = (tile % dims.tiles_n) * COLS;
    let matrix = layer % dims.batch;
    let first = (layer / dims.batch) * dims.terms;
    let end = min(first + dims.terms, dims.k);
    let my_row = (local / (COLS / (4u * THREAD_QUADS))) * THREAD_ROWS;
    let my_quad = local % (COLS / (4u * THREAD_QUADS));
    var acc: array<vec4<f32>, 16>;
    for (var i = 0u; i < THREAD_ROWS * THREAD_QUADS; i++) {
        acc[i] = vec4<f32>();
    }
    for (var term = first; term < end; term += DEPTH) {
        load_tiles(matrix * dims.m * dims.k, matrix * dims.k * dims.n, row, col, term, end, local);
        workgroupBarrier();
        for (var t = 0u; t < DEPTH; t++) {
            var quads: array<vec4<f32>, THREAD_QUADS>;
            for (var q = 0u; q < THREAD_QUADS; q++) {
                quads[q] = b_tile[t * B_QUADS + my_quad + q * (COLS / (4u * THREAD_QUADS))];
            }
            for (var r = 0u; r < THREAD_ROWS; r++) {
                let left = a_tile[t * A_ROW + my_row + r];
                for (var q = 0u; q < THREAD_QUADS; q++) {
                    acc[r * THREAD_QUADS + q] = fma(vec4<f32>(left), quads[q], acc[r * THREAD_QUADS + q]);
                }
            }
        }
        workgroupBarrier();
    }
    for (var r = 0u; r < THREAD_ROWS; r++) {
        for (var q = 0u; q < THREAD_QUADS; q++) {
            for (var c = 0u; c < 4u; c++) {
                let to_row = row + my_row + r;
                let to_col = col + (my_quad + q * (COLS / (4u * THREAD_QUADS))) * 4u + c;
                if (to_row < dims.m && to_col < dims.n) {
                    epilogue((layer * dims.m + to_row) * dims.n + to_col, acc[r * THREAD_QUADS + q][c]);
                }
            }
        }
    }
}
