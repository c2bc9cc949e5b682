//! What CPU kernels are written with: the call, fixed-size parallel loops, SIMD dispatch, GEMM.
//!
//! Work is split into pieces whose size never depends on the number of threads, and each output
//! element is computed by one piece: results have the same bits on one thread and on many.

use rayon::prelude::*;

use super::real::Real;
use crate::device::Globals;
use crate::graph::TensorType;

/// An operand as a CPU kernel sees it.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a, R> {
    /// Floats.
    F(&'a [R]),
    /// Integers.
    I(&'a [i32]),
    /// Shares memory with an output (see [`super::Op::in_place`]): read it there.
    InPlace,
}

/// One execution of an op on the CPU.
#[derive(Debug)]
pub struct Call<'a, R> {
    /// Operands, in the op's order.
    pub ins: &'a [Operand<'a, R>],
    /// Results, in the op's order; contents are unspecified before the call except for in-place
    /// operands.
    pub outs: &'a mut [&'a mut [R]],
    /// Scratch memory, as asked for by [`super::Op::scratch`]; contents unspecified.
    pub scratch: &'a mut [R],
    /// Types of the operands.
    pub in_types: &'a [&'a TensorType],
    /// Types of the results.
    pub out_types: &'a [&'a TensorType],
    /// The step's scalars.
    pub globals: &'a Globals,
}

impl<'a, R: Real> Call<'a, R> {
    /// A float operand.
    pub fn f(&self, index: usize) -> &'a [R] {
        match self.ins[index] {
            Operand::F(values) => values,
            ref other => unreachable!("operand {index} is not a float slice: {other:?}"),
        }
    }

    /// An integer operand.
    pub fn i(&self, index: usize) -> &'a [i32] {
        match self.ins[index] {
            Operand::I(values) => values,
            ref other => unreachable!("operand {index} is not an integer slice: {other:?}"),
        }
    }

    /// Extents of an operand.
    pub fn in_dims(&self, index: usize) -> &'a [usize] {
        self.in_types[index].shape.dims()
    }

    /// Extents of a result.
    pub fn out_dims(&self, index: usize) -> &'a [usize] {
        self.out_types[index].shape.dims()
    }
}

/// Elements below which a loop stays on one thread: waking the others costs some microseconds.
pub const SERIAL_BELOW: usize = 16 << 10;

/// Runs `body(first_row, rows)` over pieces of `out` of `rows_per_piece` rows of `row_len`
/// elements, in parallel where there is enough work.
pub fn par_rows<R: Real>(
    out: &mut [R],
    row_len: usize,
    rows_per_piece: usize,
    body: impl Fn(usize, &mut [R]) + Send + Sync,
) {
    let piece = (row_len * rows_per_piece).max(1);
    if out.len() < SERIAL_BELOW {
        for (index, rows) in out.chunks_mut(piece).enumerate() {
            simd(|| body(index * rows_per_piece, rows));
        }
    } else {
        out.par_chunks_mut(piece).enumerate().for_each(|(index, rows)| {
            simd(|| body(index * rows_per_piece, rows));
        });
    }
}

/// Runs `body` with the best SIMD instruction set of this machine enabled, so that its inlined
/// loops are compiled for it.
#[inline]
pub fn simd<T>(body: impl FnOnce() -> T) -> T {
    struct Body<F>(F);
    impl<T, F: FnOnce() -> T> pulp::NullaryFnOnce for Body<F> {
        type Output = T;
        #[inline(always)]
        fn call(self) -> T {
            (self.0)()
        }
    }
    pulp::Arch::new().dispatch(Body(body))
}

/// Sum in a fixed order: sixteen interleaved partial sums, then a tree.
#[inline(always)]
pub fn sum<R: Real>(values: &[R]) -> R {
    fold_lanes(values.len(), |i| values[i])
}

/// Σ aᵢ·bᵢ in a fixed order.
#[inline(always)]
pub fn dot<R: Real>(a: &[R], b: &[R]) -> R {
    let n = a.len().min(b.len());
    let (a, b) = (&a[..n], &b[..n]);
    fold_lanes(n, |i| a[i] * b[i])
}

/// Σ term(i) for i in 0..n in a fixed order that vectorises.
#[inline(always)]
pub fn fold_lanes<R: Real>(n: usize, term: impl Fn(usize) -> R) -> R {
    const LANES: usize = 16;
    let mut lanes = [R::ZERO; LANES];
    let whole = n / LANES * LANES;
    let mut start = 0;
    while start < whole {
        for (lane, total) in lanes.iter_mut().enumerate() {
            *total += term(start + lane);
        }
        start += LANES;
    }
    for i in whole..n {
        lanes[i - whole] += term(i);
    }
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// A strided matrix: element (r, c) is `data[r·row + c·col]`.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a, R> {
    /// First element onwards.
    pub data: &'a [R],
    /// Elements between rows.
    pub row: usize,
    /// Elements between columns.
    pub col: usize,
}

/// `C ← A·B + β·C`, A of m×k, B of k×n, C of m×n with unit column stride.
#[derive(Clone, Copy, Debug)]
pub struct Gemm<'a, R> {
    /// Rows of C.
    pub m: usize,
    /// Columns of C.
    pub n: usize,
    /// Length of the sums.
    pub k: usize,
    /// Left operand.
    pub a: Matrix<'a, R>,
    /// Right operand.
    pub b: Matrix<'a, R>,
    /// Elements between rows of C.
    pub c_row: usize,
    /// Whether C's content is added to (true) or overwritten (false).
    pub accumulate: bool,
}

impl<'a, R> Gemm<'a, R> {
    /// Panics unless the operands and a C of `c_len` elements hold every element that is touched.
    fn check(&self, c_len: usize) {
        let span = Gemm::<R>::span;
        assert!(self.c_row >= self.n || self.m < 2, "rows of C overlap");
        assert!(self.a.data.len() >= span(self.m, self.k, self.a.row, self.a.col), "A is short");
        assert!(self.b.data.len() >= span(self.k, self.n, self.b.row, self.b.col), "B is short");
        assert!(c_len >= span(self.m, self.n, self.c_row, 1), "C is short");
    }

    /// The same product with operands that start further on.
    fn shifted(&self, a: usize, b: usize) -> Gemm<'a, R> {
        Gemm {
            a: Matrix { data: &self.a.data[a.min(self.a.data.len())..], ..self.a },
            b: Matrix { data: &self.b.data[b.min(self.b.data.len())..], ..self.b },
            ..*self
        }
    }

    /// Index of the last element that the operand touches, plus one.
    fn span(rows: usize, cols: usize, row: usize, col: usize) -> usize {
        if rows == 0 || cols == 0 { 0 } else { (rows - 1) * row + (cols - 1) * col + 1 }
    }
}

/// Multiplies on one thread; the caller splits the work. See [`Gemm`].
pub(super) fn gemm<R: Real>(g: &Gemm<'_, R>, c: &mut [R]) {
    g.check(c.len());
    // SAFETY: the check keeps every access of C inside its slice, which is borrowed mutably, so
    // it overlaps neither A nor B.
    #[allow(unsafe_code, reason = "one routine serves whole and split products")]
    unsafe {
        gemm_at(g, c.as_mut_ptr());
    }
}

/// Multiplies into memory given by a pointer.
///
/// # Safety
/// The caller has called [`Gemm::check`] for A and B, and nobody else touches the elements of C
/// while this runs.
#[allow(unsafe_code, reason = "the GEMM crate's entry point takes raw pointers")]
unsafe fn gemm_at<R: Real>(g: &Gemm<'_, R>, c: *mut R) {
    // SAFETY: as demanded from the caller.
    unsafe {
        gemm::gemm(
            g.m,
            g.n,
            g.k,
            c,
            1,
            g.c_row as isize,
            g.accumulate,
            g.a.data.as_ptr(),
            g.a.col as isize,
            g.a.row as isize,
            g.b.data.as_ptr(),
            g.b.col as isize,
            g.b.row as isize,
            R::ONE,
            R::ONE,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// How a product is cut for the threads: a function of its extents alone, so that the bits of the
/// result do not depend on how many threads there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Split {
    /// Whether rows of C are cut, or columns.
    rows: bool,
    /// Rows or columns of a piece.
    size: usize,
    /// Number of pieces.
    pieces: usize,
}

impl Split {
    /// Multiply-adds below which a product stays in one piece.
    const SMALL: usize = 1 << 16;
    /// Multiply-adds that are worth a piece of their own while there are few pieces.
    const PIECE: usize = 1 << 17;
    /// The same, once there are enough pieces for a small machine.
    const BIG_PIECE: usize = 1 << 26;

    /// Cuts the longer side of C: each piece packs its own part of the operand along that side,
    /// and all of the other, smaller one. Sizes are multiples of what the GEMM crate keeps in
    /// registers (8 rows, 48 columns).
    fn new(m: usize, n: usize, k: usize) -> Split {
        let work = m * n * k;
        let rows = m > n;
        let side = if rows { m } else { n };
        let wanted = if work <= Split::SMALL { 1 } else { (work / Split::PIECE).clamp(1, 16) };
        let wanted = wanted.max((work / Split::BIG_PIECE).min(64));
        let unit = if rows { 8 } else { 48 };
        let size = side.div_ceil(wanted).next_multiple_of(unit).min(side).max(1);
        Split { rows, size, pieces: side.div_ceil(size).max(1) }
    }

    /// First index along the side that is cut, and length, of a piece.
    fn range(&self, piece: usize, m: usize, n: usize) -> (usize, usize) {
        let side = if self.rows { m } else { n };
        let first = piece * self.size;
        (first, self.size.min(side - first))
    }
}

/// Multiplies `batch` pairs of matrices in parallel, each C cut along its longer side into pieces
/// whose number depends only on its extents, one GEMM each; `strides` are the elements from one matrix of
/// A, B and C to the next. The matrices of C must not overlap.
pub fn par_gemm_batch<R: Real>(g: &Gemm<'_, R>, batch: usize, strides: [usize; 3], c: &mut [R]) {
    struct Out<R>(*mut R);
    // SAFETY: the pieces that threads write through it are disjoint.
    #[allow(unsafe_code, reason = "column pieces of one matrix interleave in memory")]
    unsafe impl<R> Sync for Out<R> {}

    if batch == 0 || g.m == 0 || g.n == 0 {
        return;
    }
    let [a_next, b_next, c_next] = strides;
    assert!(batch == 1 || c_next >= Gemm::<R>::span(g.m, g.n, g.c_row, 1), "C overlaps itself");
    g.shifted((batch - 1) * a_next, (batch - 1) * b_next)
        .check(c.len().saturating_sub((batch - 1) * c_next));
    let split = Split::new(g.m, g.n, g.k);
    let out = Out(c.as_mut_ptr());
    let piece = |task: usize| {
        let out = &out;
        let (item, index) = (task / split.pieces, task % split.pieces);
        let (first, len) = split.range(index, g.m, g.n);
        let item_g = g.shifted(item * a_next, item * b_next);
        let (part, offset) = if split.rows {
            (Gemm { m: len, ..item_g.shifted(first * g.a.row, 0) }, first * g.c_row)
        } else {
            (Gemm { n: len, ..item_g.shifted(0, first * g.b.col) }, first)
        };
        // SAFETY: the checks above hold for the last matrix and so for all; pieces are disjoint
        // ranges of rows or columns of disjoint matrices.
        #[allow(unsafe_code, reason = "column pieces of one matrix interleave in memory")]
        unsafe {
            gemm_at(&part, out.0.add(item * c_next + offset));
        }
    };
    let tasks = batch * split.pieces;
    if tasks == 1 || batch * g.m * g.n * g.k <= Split::SMALL {
        (0..tasks).for_each(piece);
    } else {
        (0..tasks).into_par_iter().for_each(piece);
    }
}
