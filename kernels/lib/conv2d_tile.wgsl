// The tile product that the convolution kernels share: c[m, n] = Σ_k a[m, k]·b[k, n] for a tile of
// 64x64, 256 threads of 4x4 results each, 16 terms at a time through workgroup memory. A kernel
// gives `load_a(m, k)`, `load_b(k, n)` (0 outside) and `store(m, n, value)`.

struct Dims {
    batch: u32,
    groups: u32,
    cin: u32,
    cout: u32,
    in_rows: u32,
    in_cols: u32,
    out_rows: u32,
    out_cols: u32,
    kernel_rows: u32,
    kernel_cols: u32,
    stride_rows: u32,
    stride_cols: u32,
    pad_top: u32,
    pad_left: u32,
    dilation_rows: u32,
    dilation_cols: u32,
    parts: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;

const SIDE: u32 = 64u;
const DEPTH: u32 = 16u;

// Where a workgroup's tile lies.
struct Tile {
    m: u32,
    n: u32,
    channel_group: u32,
    part: u32,
}

var<workgroup> a_tile: array<f32, 1024>;
var<workgroup> b_tile: array<f32, 1024>;
var<private> tile: Tile;

fn tile_of(index: u32, m: u32, n: u32) -> Tile {
    let m_tiles = (m + SIDE - 1u) / SIDE;
    let n_tiles = (n + SIDE - 1u) / SIDE;
    let rest = index / (m_tiles * n_tiles);
    return Tile(
        (index % m_tiles) * SIDE,
        ((index / m_tiles) % n_tiles) * SIDE,
        rest % dims.groups,
        rest / dims.groups,
    );
}

fn tile_product(k_first: u32, k_last: u32, local: u32) {
    var acc: array<f32, 16>;
    let row = (local / 16u) * 4u;
    let col = (local % 16u) * 4u;
    for (var k = k_first; k < k_last; k += DEPTH) {
        for (var e = local; e < 1024u; e += 256u) {
            // a is stored [k][m], b [k][n].
            let a_k = k + e % DEPTH;
            let b_k = k + e / SIDE;
            var a = 0.0;
            var b = 0.0;
            if (a_k < k_last) {
                a = load_a(tile.m + e / DEPTH, a_k);
            }
            if (b_k < k_last) {
                b = load_b(b_k, tile.n + e % SIDE);
            }
            a_tile[(e % DEPTH) * SIDE + e / DEPTH] = a;
            b_tile[e] = b;
        }
        workgroupBarrier();
        for (var d = 0u; d < DEPTH; d++) {
            let a = vec4<f32>(a_tile[d * SIDE + row], a_tile[d * SIDE + row + 1u], a_tile[d * SIDE + row + 2u], a_tile[d * SIDE + row + 3u]);
            let b = vec4<f32>(b_tile[d * SIDE + col], b_tile[d * SIDE + col + 1u], b_tile[d * SIDE + col + 2u], b_tile[d * SIDE + col + 3u]);
            for (var i = 0u; i < 4u; i++) {
                for (var j = 0u; j < 4u; j++) {
                    acc[i * 4u + j] += a[i] * b[j];
                }
            }
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < 4u; i++) {
        for (var j = 0u; j < 4u; j++) {
            store(tile.m + row + i, tile.n + col + j, acc[i * 4u + j]);
        }
    }
}
