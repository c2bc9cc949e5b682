//! The tiles of kernels/lib/tile.wgsl and kernels/lib/matrix_tile.wgsl, which matrix products and
//! convolutions share: which there are, and which one a product runs with.

use std::fmt;

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

/// The kernel that a product is computed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProductKernel {
    /// kernels/matmul.wgsl.
    MatMul,
    /// kernels/conv2d.wgsl.
    Conv,
    /// kernels/conv2d_grad_input.wgsl.
    ConvGradInput,
    /// kernels/conv2d_grad_weight.wgsl.
    ConvGradWeight,
}

impl ProductKernel {
    const ALL: [ProductKernel; 4] = [
        ProductKernel::MatMul,
        ProductKernel::Conv,
        ProductKernel::ConvGradInput,
        ProductKernel::ConvGradWeight,
    ];

    /// The file's stem.
    pub const fn stem(self) -> &'static str {
        match self {
            ProductKernel::MatMul => "matmul",
            ProductKernel::Conv => "conv2d",
            ProductKernel::ConvGradInput => "conv2d_grad_input",
            ProductKernel::ConvGradWeight => "conv2d_grad_weight",
        }
    }
}

impl fmt::Display for ProductKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.stem())
    }
}

impl std::str::FromStr for ProductKernel {
    type Err = ();

    fn from_str(stem: &str) -> Result<Self, ()> {
        ProductKernel::ALL.into_iter().find(|kernel| kernel.stem() == stem).ok_or(())
    }
}

/// A product as the choice sees it: `layers` matrices of `m × n` with sums of `k` terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// What computes it.
    pub kernel: ProductKernel,
    /// Matrices.
    pub layers: usize,
    /// Rows of C.
    pub m: usize,
    /// Columns of C.
    pub n: usize,
    /// Terms of a sum.
    pub k: usize,
    /// Whether the elements of A, of B lie side by side along the terms of the sums.
    pub along_terms: [bool; 2],
    /// Whether A, B are stored in half precision.
    pub halves: [bool; 2],
    /// The matrix units that its factors suit: those of the device, where one of them is stored in
    /// half precision.
    pub units: Option<MatrixUnits>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { kernel, layers, m, n, k, halves, .. } = self;
        write!(f, "{kernel} of {layers}×{m}×{n} with sums of {k}")?;
        if halves.contains(&true) { f.write_str(" in half precision") } else { Ok(()) }
    }
}

impl Problem {
    /// `extents` are layers, m, n, k; `factors` begins with the types of A and B as they are stored.
    pub fn new(
        kernel: ProductKernel,
        [layers, m, n, k]: [usize; 4],
        along_terms: [bool; 2],
        factors: &[&TensorType],
        limits: &GpuLimits,
    ) -> Self {
        let halves = [0, 1].map(|factor| factors[factor].dtype == DType::F16);
        let units = limits.matrix.filter(|_| halves.contains(&true));
        Problem { kernel, layers, m, n, k, along_terms, halves, units }
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

/// The tile and split for a product: what was chosen by measuring, else the cheapest.
pub fn choose(problem: &Problem, limits: &GpuLimits) -> Choice {
    limits.chosen.get(problem).unwrap_or_else(|| candidates(problem, limits)[0])
}

/// The tiles and splits that a product can run with, the cheapest first: by the multiply-adds that the
/// busiest part of the card has to do, and the tile's speed. There is at least one.
pub fn candidates(problem: &Problem, limits: &GpuLimits) -> Vec<Choice> {
    let most = (problem.k / MIN_TERMS).clamp(1, MAX_PARTS);
    let fits = |parts: &usize| {
        let bytes = parts * problem.layers * problem.m * problem.n * 4;
        *parts == 1 || bytes as u64 <= limits.binding_bytes
    };
    let all = problem.tiles().into_iter().flat_map(|tile| {
        let parts = std::iter::successors(Some(1), |p| Some(p * 2)).take_while(move |p| *p <= most);
        parts.filter(fits).map(move |parts| Choice { tile, parts })
    });
    let mut all: Vec<Choice> = all.collect();
    all.sort_by(|a, b| a.cost(problem).total_cmp(&b.cost(problem)));
    all
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}×{} in {} parts", self.tile.rows, self.tile.cols, self.parts)
    }
}

impl Choice {
    /// What the cost model expects, in multiply-adds of one workgroup in the largest tile.
    pub fn cost(&self, problem: &Problem) -> f64 {
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

    fn problem([m, n, k]: [usize; 3], units: Option<MatrixUnits>) -> Problem {
        let halves = [units.is_some(); 2];
        let along_terms = [true, false];
        Problem { kernel: ProductKernel::MatMul, layers: 1, m, n, k, along_terms, halves, units }
    }

    /// The cases of ops/matmul run every tile, and split sums.
    #[test]
    fn every_tile_is_the_choice_for_some_case() {
        for units in [None, Some(MatrixUnits::Side8), Some(MatrixUnits::Side16)] {
            let chosen: Vec<Choice> = crate::ops::matmul::SIZES
                .into_iter()
                .map(|(m, n, k)| problem([m, n, k], units))
                .map(|problem| choose(&problem, &GpuLimits::FLOOR))
                .collect();
            for tile in problem([1, 1, 1], units).tiles() {
                assert!(chosen.iter().any(|choice| choice.tile == tile), "{tile:?}");
            }
            assert!(chosen.iter().any(|choice| choice.parts > 1));
        }
    }
}
