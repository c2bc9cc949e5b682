//! Which kernel variant a product runs with on a GPU: a table of tiles, and the sums split where
//! the tiles alone would leave the card idle.

use super::Extents;
use crate::ops::GpuLimits;

/// A product to choose a variant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    /// Extents.
    pub extents: Extents,
    /// Whether A is stored transposed.
    pub trans_a: bool,
    /// Whether B is stored transposed.
    pub trans_b: bool,
}

/// What a workgroup of 256 threads computes: a tile of `rows × cols` elements of C, `thread_rows`
/// by 4·`thread_quads` of it in each thread, `depth` terms of the sums at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tile {
    /// Rows of C.
    pub rows: usize,
    /// Columns of C.
    pub cols: usize,
    /// Terms of the sums in workgroup memory at once.
    pub depth: usize,
    /// Rows of a thread.
    pub thread_rows: usize,
    /// Groups of four columns of a thread.
    pub thread_quads: usize,
}

/// The tiles, largest first: a larger one reads less, a smaller one gives more workgroups.
pub const TILES: [Tile; 4] = [
    Tile { rows: 128, cols: 128, depth: 8, thread_rows: 8, thread_quads: 2 },
    Tile { rows: 64, cols: 64, depth: 16, thread_rows: 4, thread_quads: 1 },
    Tile { rows: 32, cols: 64, depth: 16, thread_rows: 2, thread_quads: 1 },
    Tile { rows: 32, cols: 32, depth: 32, thread_rows: 1, thread_quads: 1 },
];

/// A kernel variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Choice {
    /// The tile.
    pub tile: Tile,
    /// Parts that every sum is split into; they are added in order afterwards.
    pub parts: usize,
}

impl Choice {
    /// Elements of scratch: the parts.
    pub fn scratch(&self, extents: Extents) -> usize {
        if self.parts == 1 { 0 } else { self.parts * extents.outputs() }
    }
}

/// Workgroups that fill a card.
const FULL: usize = 128;
/// Workgroups below which the sums are split.
const IDLE: usize = 48;
/// Fewest terms of a sum that are worth a part of their own.
const MIN_TERMS: usize = 128;
/// Most parts.
const MAX_PARTS: usize = 32;

/// The variant for a product: the largest tile that fills the card, else the smallest, with split
/// sums where even that leaves it idle.
pub fn choose(problem: Problem, limits: &GpuLimits) -> Choice {
    let e = problem.extents;
    let groups = |tile: &Tile| e.batch * e.m.div_ceil(tile.rows) * e.n.div_ceil(tile.cols);
    let smallest = TILES[TILES.len() - 1];
    let tile = TILES.into_iter().find(|tile| groups(tile) >= FULL).unwrap_or(smallest);
    let mut parts = 1;
    if groups(&tile) < IDLE {
        parts = FULL.div_ceil(groups(&tile)).min(e.k / MIN_TERMS).clamp(1, MAX_PARTS);
    }
    let bytes = (parts * e.outputs() * 4) as u64;
    if bytes > limits.binding_bytes {
        parts = 1;
    }
    Choice { tile, parts }
}
