//! The tiles of kernels/lib/tile.wgsl and kernels/lib/matrix_tile.wgsl, which matrix products and
//! convolutions share: which there are, and which one a product runs with.

use super::{GpuLimits, Kernel, MatrixUnits};
use crate::graph::{DType, TensorType};

/// What a workgroup computes: `rows × cols` elements of C, `depth` terms of the sums at a time. On
/// matrix units by 128 threads; otherwise by 256, each a block of 4×4, `slices` threads taking turns
/// at the terms of one block.
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
    /// The matrix units that it runs on, if any.
    pub units: Option<MatrixUnits>,
}

/// The tiles: the first is the fastest where there is enough work for all, the second gives more
/// workgroups. Larger ones were slower on every shape of benches/tiles.rs: they leave too few
/// threads on a core to hide the latency of memory.
pub const TILES: [Tile; 2] = [
    Tile { rows: 64, cols: 64, depth: 16, slices: 1, speed: 1.0, units: None },
    Tile { rows: 32, cols: 32, depth: 32, slices: 4, speed: 0.5, units: None },
];

/// The tiles on matrix units: the first is the fastest where there is enough work for all.
pub const fn matrix_tiles(units: MatrixUnits) -> [Tile; 3] {
    let units = Some(units);
    [
        Tile { rows: 128, cols: 256, depth: 32, slices: 1, speed: 1.0, units },
        Tile { rows: 128, cols: 128, depth: 32, slices: 1, speed: 0.65, units },
        Tile { rows: 64, cols: 64, depth: 32, slices: 1, speed: 0.4, units },
    ]
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
    pub fn tiles(&self, limits: &GpuLimits) -> Vec<Tile> {
        let all = self.units.map_or(TILES.to_vec(), |units| matrix_tiles(units).to_vec());
        all.into_iter().filter(|tile| tile.fits(limits)).collect()
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
    let all = problem.tiles(limits).into_iter().flat_map(|tile| {
        let parts = std::iter::successors(Some(1), |p| Some(p * 2)).take_while(move |p| *p <= most);
        parts.filter(fits).map(move |parts| Choice { tile, parts })
    });
    let cheapest = all.min_by(|a, b| a.cost(problem).total_cmp(&b.cost(problem)));
    cheapest.unwrap_or(Choice { tile: problem.tiles(limits)[0], parts: 1 })
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
        let finish =
            if self.parts > 1 { card.finish + card.part * (self.parts * outputs) as f64 } else { 0.0 };
        terms * (rows * cols) as f64 / speed * waves + finish
    }
}

impl Tile {
    /// Sets the tile's constants in a kernel; `along_terms` says for A and B whether their quads
    /// lie along the terms of the sums.
    pub fn specialise(&self, kernel: Kernel, along_terms: [bool; 2]) -> Kernel {
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
            None => self.in_blocks(kernel),
            Some(units) => self.on_units(kernel, units),
        }
    }

    /// Groups of 32 threads along the rows and along the columns, on matrix units.
    fn groups(&self) -> [usize; 2] {
        [2, if self.cols == 256 { 4 } else { 2 }]
    }

    /// Whether its workgroup memory exists on a device.
    fn fits(&self, limits: &GpuLimits) -> bool {
        let Some(units) = self.units else { return true };
        let [down, across] = self.groups();
        let longest = |extent: usize| extent * (self.depth + 8).max(self.depth * (extent + 8) / extent);
        let halves = longest(self.rows) + longest(self.cols);
        let bytes = 2 * halves + 4 * down * across * units.side() * units.side();
        bytes <= limits.workgroup_bytes as usize
    }

    fn on_units(&self, kernel: Kernel, units: MatrixUnits) -> Kernel {
        let side = units.side();
        let [down, across] = self.groups();
        let quads = |extent: usize| (extent * self.depth / 4 / (32 * down * across)) as u32;
        units
            .in_kernel(kernel.with_library("tile", "matrix_tile"))
            .with("DOWN", down as u32)
            .with("ACROSS", across as u32)
            .with("A_QUADS", quads(self.rows))
            .with("B_QUADS", quads(self.cols))
            .with("PARTS_M", (self.rows / down / side) as u32)
            .with("PARTS_N", (self.cols / across / side) as u32)
    }

    fn in_blocks(&self, kernel: Kernel) -> Kernel {
        let slice = self.rows * self.cols / 16;
        let sums = if self.slices > 1 { slice * 4 } else { 1 };
        [
            ("SLICES", self.slices),
            ("STEPS", self.depth / self.slices),
            ("SUMS", sums),
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
        let chosen = |m, n, k| choose(&Problem { layers: 1, m, n, k, units: None }, &GpuLimits::FLOOR);
        let sides = |c: Choice| (c.tile.rows, c.tile.cols);
        assert_eq!(sides(chosen(1285, 1283, 9)), (64, 64));
        assert_eq!(sides(chosen(1284, 1280, 8)), (64, 64));
        assert_eq!(sides(chosen(36, 40, 9)), (32, 32));
        let split = chosen(260, 264, 2048);
        assert!(split.parts > 1 && sides(split) == (64, 64), "{split:?}");
        assert!(chosen(10, 31, 600).parts > 1);
    }
}
