// @use lib/tile
// @use lib/operands
// @use lib/epilogue
// C = op(A)·op(B), a workgroup for each tile of each matrix and part of the sums.

const TRANS_A: u32 = 0u;
const TRANS_B: u32 = 0u;
// 1 where the tiles cover the matrices exactly, rows begin at multiples of four, and each part has
// whole steps: nothing lies outside.
const WHOLE: u32 = 0u;

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

var<private> layer: u32;
var<private> a_base: u32;
var<private> b_base: u32;

fn load_a(m: u32, k: u32, end: u32) -> vec4<tile_t> {
    // No branches: the loads of a step must all be on their way before the first is used.
    let inside = WHOLE == 1u || (m < dims.m && k < end);
    var i = m * dims.k + k;
    var left = end - k;
    if (TRANS_A == 1u) {
        i = k * dims.m + m;
        left = dims.m - m;
    }
    return a_quad(a_base + select(0u, i, inside), select(0u, left, inside));
}

fn load_b(k: u32, n: u32, end: u32) -> vec4<tile_t> {
    let inside = WHOLE == 1u || (n < dims.n && k < end);
    var i = k * dims.n + n;
    var left = dims.n - n;
    if (TRANS_B == 1u) {
        i = n * dims.k + k;
        left = end - k;
    }
    return b_quad(b_base + select(0u, i, inside), select(0u, left, inside));
}

fn store(m: vec4<u32>, n: vec4<u32>, values: vec4<f32>) {
    let live = (m < vec4<u32>(dims.m)) & (n < vec4<u32>(dims.n));
    epilogue(select(vec4<u32>(), (layer * dims.m + m) * dims.n + n, live), live, values);
}

@compute @workgroup_size(THREADS)
fn matmul(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let tile = group.y * groups.x + group.x;
    layer = tile / (dims.tiles_n * dims.tiles_m);
    if (layer >= dims.layers) {
        return;
    }
    let matrix = layer % dims.batch;
    a_base = matrix * dims.m * dims.k;
    b_base = matrix * dims.k * dims.n;
    let first = (layer / dims.batch) * dims.terms;
    let row = (tile / dims.tiles_n % dims.tiles_m) * ROWS;
    let col = (tile % dims.tiles_n) * COLS;
    tile_product(row, col, first, min(first + dims.terms, dims.k), local);
}
