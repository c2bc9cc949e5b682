//! The tiles of kernels/lib/tile.wgsl and kernels/lib/matrix_tile.wgsl, which matrix products and
//! convolutions share: which there are, and which one a product runs with.

use super::{GpuLimits, Kernel, MatrixUnits};
use crate::graph::{DType, TensorType};

/// What a workgroup computes: `rows × cols` elements of C, `depth` terms of the sums at a time. On
/// matrix units by 128 threads; otherwise each thread has `blocks` of 4×4 along rows and columns, and
/// `slices` threads take turns at the terms of one block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tile {
    /// Rows of C.
    pub rows: usize,
    /// Columns of C.
    pub cols: usize,
    /// Terms of the sums in workgroup memory at once.
    pub depth: usize,
    /// Blocks of a thread along rows and along columns.
    pub blocks: [usize; 2],
    /// Threads that share a block.
    pub slices: usize,
    /// Multiply-adds in the same time as the largest tile, as measured where there is enough work
    /// for all.
    pub speed: f64,
    /// The matrix units that it runs on, if any.
    pub units: Option<MatrixUnits>,
}

const fn scalar(
    [rows, cols, depth]: [usize; 3],
    blocks: [usize; 2],
    slices: usize,
    speed: f64,
) -> Tile {
    Tile { rows, cols, depth, blocks, slices, speed, units: None }
}

/// The tiles without matrix units: the first is the fastest where there is enough work for all, the
/// others give more workgroups. Larger ones were slower on every shape of benches/tiles.rs: they
/// leave too few threads on a core to hide the latency of memory.
pub const TILES: [Tile; 3] = [
    scalar([64, 128, 16], [2, 2], 1, 1.0),
    scalar([64, 64, 16], [1, 1], 1, 0.8),
    scalar([32, 32, 32], [1, 1], 4, 0.4),
];

/// The tiles on matrix units: the first is the fastest where there is enough work for all.
pub const fn matrix_tiles(units: MatrixUnits) -> [Tile; 3] {
    [matrix([128, 128], 1.0, units), matrix([64, 128], 0.62, units), matrix([64, 64], 0.4, units)]
}

const fn matrix([rows, cols]: [usize; 2], speed: f64, units: MatrixUnits) -> Tile {
    Tile { rows, cols, depth: 32, blocks: [0, 0], slices: 1, speed, units: Some(units) }
}

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
    /// The matrix units that its factors suit: those of the device, where one of them is stored in
    /// half precision.
    pub units: Option<MatrixUnits>,
}

impl Problem {
    /// The units for factors of these types.
    pub fn units(limits: &GpuLimits, factors: &[&TensorType]) -> Option<MatrixUnits> {
        let half = factors[..2].iter().any(|ty| ty.dtype == DType::F16);
        limits.matrix.filter(|_| half)
    }

    /// The tiles that it can run with.
    pub fn tiles(&self) -> Vec<Tile> {
        self.units.map_or(TILES.to_vec(), |units| matrix_tiles(units).to_vec())
    }
}

/// A tile, and the parts that every sum is split into; the parts are added in order afterwards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The tile.
    pub tile: Tile,
    /// Parts.
    pub parts: usize,
}

/// What the choice assumes of a card, in multiply-adds of one workgroup in the largest tile.
struct Card {
    /// Workgroups that fill it.
    full: f64,
    /// What a second dispatch costs.
    finish: f64,
    /// What an element of a part costs, written and read again.
    part: f64,
}

const SCALAR: Card = Card { full: 384.0, finish: 400_000.0, part: 0.2 };
const MATRIX: Card = Card { full: 264.0, finish: 2_000_000.0, part: 3.0 };
/// Fewest terms that are worth a part.
const MIN_TERMS: usize = 64;
/// Most parts.
const MAX_PARTS: usize = 64;

/// The cheapest tile and split for a product: the multiply-adds that the busiest part of the card
/// has to do, by the tile's speed.
pub fn choose(problem: &Problem, limits: &GpuLimits) -> Choice {
    let most = (problem.k / MIN_TERMS).clamp(1, MAX_PARTS);
    let fits = |parts: &usize| {
        let bytes = parts * problem.layers * problem.m * problem.n * 4;
        *parts == 1 || bytes as u64 <= limits.binding_bytes
    };
    let all = problem.tiles().into_iter().flat_map(|tile| {
        let parts = std::iter::successors(Some(1), |p| Some(p * 2)).take_while(move |p| *p <= most);
        parts.filter(fits).map(move |parts| Choice { tile, parts })
    });
    let cheapest = all.min_by(|a, b| a.cost(problem).total_cmp(&b.cost(problem)));
    cheapest.unwrap_or(Choice { tile: problem.tiles()[0], parts: 1 })
}

impl Choice {
    fn cost(&self, problem: &Problem) -> f64 {
        let Tile { rows, cols, speed, units, .. } = self.tile;
        let card = if units.is_some() { MATRIX } else { SCALAR };
        let tiles = problem.layers * problem.m.div_ceil(rows) * problem.n.div_ceil(cols);
        let terms = problem.k.div_ceil(self.parts) as f64;
        let busy = ((tiles * self.parts) as f64 / card.full).max(1.0);
        // The last workgroups leave a part of the card idle.
        let waves = busy + 0.5;
        let outputs = problem.layers * problem.m * problem.n;
        let finish = if self.parts > 1 {
            card.finish + card.part * (self.parts * outputs) as f64
        } else {
            0.0
        };
        terms * (rows * cols) as f64 / speed * waves + finish
    }
}

impl Tile {
    /// Sets the tile's constants in a kernel; `along_terms` says for A and B whether their quads
    /// lie along the terms of the sums.
    pub fn specialise(&self, kernel: Kernel, along_terms: [bool; 2], limits: &GpuLimits) -> Kernel {
        let kernel = [
            ("ROWS", self.rows),
            ("COLS", self.cols),
            ("DEPTH", self.depth),
            ("A_ALONG_TERMS", usize::from(along_terms[0])),
            ("B_ALONG_TERMS", usize::from(along_terms[1])),
        ]
        .into_iter()
        .fold(kernel, |kernel, (name, value)| kernel.with(name, value as u32));
        match self.units {
            None => self.in_blocks(kernel, along_terms.map(|along| along && !limits.stores_parts)),
            Some(units) => self.on_units(kernel, units),
        }
    }

    fn on_units(&self, kernel: Kernel, units: MatrixUnits) -> Kernel {
        let side = units.side();
        let quads = |extent: usize| (extent * self.depth / 4 / 128) as u32;
        units
            .in_kernel(kernel.with_library("tile", "matrix_tile"))
            .with("A_QUADS", quads(self.rows))
            .with("B_QUADS", quads(self.cols))
            .with("PARTS_M", (self.rows / 2 / side) as u32)
            .with("PARTS_N", (self.cols / 2 / side) as u32)
    }

    fn in_blocks(&self, kernel: Kernel, turned: [bool; 2]) -> Kernel {
        let [up, wide] = self.blocks;
        let slice = self.rows * self.cols / 16 / up / wide;
        let threads = slice * self.slices;
        let sums = if self.slices > 1 { slice * 4 * up * wide } else { 1 };
        // Quads as they are kept, or blocks of four that are turned.
        let brought = |extent: usize, turned: bool, kind: bool| {
            let each = if turned { 16 } else { 4 };
            if turned == kind { (extent * self.depth / each).div_ceil(threads) } else { 0 }
        };
        [
            ("THREADS", threads),
            ("UP", up),
            ("WIDE", wide),
            ("SLICES", self.slices),
            ("STEPS", self.depth / self.slices),
            ("SUMS", sums),
            ("A_QUADS", brought(self.rows, turned[0], false)),
            ("A_BLOCKS", brought(self.rows, turned[0], true)),
            ("B_QUADS", brought(self.cols, turned[1], false)),
            ("B_BLOCKS", brought(self.cols, turned[1], true)),
        ]
        .into_iter()
        .fold(kernel, |kernel, (name, value)| kernel.with(name, value as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases of ops/matmul run every tile, and split sums.
    #[test]
    fn every_tile_is_the_choice_for_some_case() {
        for units in [None, Some(MatrixUnits::Side8), Some(MatrixUnits::Side16)] {
            let chosen: Vec<Choice> = crate::ops::matmul::SIZES
                .into_iter()
                .map(|(m, n, k)| Problem { layers: 1, m, n, k, units })
                .map(|problem| choose(&problem, &GpuLimits::FLOOR))
                .collect();
            for tile in (Problem { layers: 1, m: 1, n: 1, k: 1, units }).tiles() {
                assert!(chosen.iter().any(|choice| choice.tile == tile), "{tile:?}");
            }
            assert!(chosen.iter().any(|choice| choice.parts > 1));
        }
    }
}
