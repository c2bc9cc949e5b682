//! The tiles of kernels/lib/tile.wgsl, which matrix products and convolutions share: which there
//! are, and which one a product runs with.

use super::{GpuLimits, Kernel};

/// What a workgroup of 256 threads computes: `rows × cols` elements of C, `depth` terms of the sums
/// at a time; each thread a block of 4×4, `slices` threads taking turns at the terms of one block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tile {
    /// Rows of C.
    pub rows: usize,
    /// Columns of C.
    pub cols: usize,
    /// Terms of the sums in workgroup memory at once.
    pub depth: usize,
    /// Threads that share a block.
    pub slices: usize,
    /// Multiply-adds in the same time as the largest tile, as measured where there is enough work
    /// for all.
    pub speed: f64,
}

/// The tiles: the first is the fastest where there is enough work for all, the second gives more
/// workgroups. Larger ones were slower on every shape of benches/tiles.rs: they leave too few
/// threads on a core to hide the latency of memory.
pub const TILES: [Tile; 2] = [
    Tile { rows: 64, cols: 64, depth: 16, slices: 1, speed: 1.0 },
    Tile { rows: 32, cols: 32, depth: 32, slices: 4, speed: 0.5 },
];

/// A product as the choice sees it: `layers` matrices of `m × n` with sums of `k` terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Matrices.
    pub layers: usize,
    /// Rows of C.
    pub m: usize,
    /// Columns of C.
    pub n: usize,
    /// Terms of a sum.
    pub k: usize,
}

/// A tile, and the parts that every sum is split into; the parts are added in order afterwards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The tile.
    pub tile: Tile,
    /// Parts.
    pub parts: usize,
}

/// Workgroups that fill a card.
const FULL: f64 = 384.0;
/// Fewest terms that are worth a part.
const MIN_TERMS: usize = 64;
/// Most parts.
const MAX_PARTS: usize = 64;
/// What a second dispatch costs, in multiply-adds of one workgroup.
const FINISH: f64 = 400_000.0;
/// What an element of a part costs, written and read again.
const PART: f64 = 0.2;

/// The cheapest tile and split for a product: the multiply-adds that the busiest part of the card
/// has to do, by the tile's speed.
pub fn choose(problem: &Problem, limits: &GpuLimits) -> Choice {
    let most = (problem.k / MIN_TERMS).clamp(1, MAX_PARTS);
    let fits = |parts: &usize| {
        let bytes = parts * problem.layers * problem.m * problem.n * 4;
        *parts == 1 || bytes as u64 <= limits.binding_bytes
    };
    let all = TILES.into_iter().flat_map(|tile| {
        let parts = std::iter::successors(Some(1), |p| Some(p * 2)).take_while(move |p| *p <= most);
        parts.filter(fits).map(move |parts| Choice { tile, parts })
    });
    let cheapest = all.min_by(|a, b| a.cost(problem).total_cmp(&b.cost(problem)));
    cheapest.unwrap_or(Choice { tile: TILES[0], parts: 1 })
}

impl Choice {
    fn cost(&self, problem: &Problem) -> f64 {
        let Tile { rows, cols, speed, .. } = self.tile;
        let tiles = problem.layers * problem.m.div_ceil(rows) * problem.n.div_ceil(cols);
        let terms = problem.k.div_ceil(self.parts) as f64;
        let busy = ((tiles * self.parts) as f64 / FULL).max(1.0);
        // The last workgroups leave a part of the card idle.
        let waves = busy + 0.5;
        let outputs = problem.layers * problem.m * problem.n;
        let finish =
            if self.parts > 1 { FINISH + PART * (self.parts * outputs) as f64 } else { 0.0 };
        terms * (rows * cols) as f64 / speed * waves + finish
    }
}

impl Tile {
    /// Sets the tile's constants in a kernel; `along_terms` says for A and B whether their quads
    /// lie along the terms of the sums.
    pub fn specialise(&self, kernel: Kernel, along_terms: [bool; 2]) -> Kernel {
        let slice = self.rows * self.cols / 16;
        let sums = if self.slices > 1 { slice * 4 } else { 1 };
        [
            ("ROWS", self.rows),
            ("COLS", self.cols),
            ("DEPTH", self.depth),
            ("SLICES", self.slices),
            ("STEPS", self.depth / self.slices),
            ("SUMS", sums),
            ("A_ALONG_TERMS", usize::from(along_terms[0])),
            ("B_ALONG_TERMS", usize::from(along_terms[1])),
        ]
        .into_iter()
        .fold(kernel, |kernel, (name, value)| kernel.with(name, value as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases of ops/matmul count on these.
    #[test]
    fn every_tile_is_the_choice_for_some_case() {
        let chosen = |m, n, k| choose(&Problem { layers: 1, m, n, k }, &GpuLimits::FLOOR);
        let sides = |c: Choice| (c.tile.rows, c.tile.cols);
        assert_eq!(sides(chosen(1285, 1283, 9)), (64, 64));
        assert_eq!(sides(chosen(1284, 1280, 8)), (64, 64));
        assert_eq!(sides(chosen(36, 40, 9)), (32, 32));
        let split = chosen(260, 264, 2048);
        assert!(split.parts > 1 && sides(split) == (64, 64), "{split:?}");
        assert!(chosen(10, 31, 600).parts > 1);
    }
}
