//! What CPU kernels are written with: the call, fixed-size parallel loops, SIMD dispatch, GEMM.
//!
//! Work is split into pieces whose size never depends on the number of threads, and each output
//! element is computed by one piece: results have the same bits on one thread and on many.

use std::ops::Range;

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

impl<R> Gemm<'_, R> {
    /// Index of the last element that the operand touches, plus one.
    fn span(rows: usize, cols: usize, row: usize, col: usize) -> usize {
        if rows == 0 || cols == 0 { 0 } else { (rows - 1) * row + (cols - 1) * col + 1 }
    }
}

/// Multiplies on one thread; the caller splits the work. See [`Gemm`].
pub(super) fn gemm<R: Real>(g: &Gemm<'_, R>, c: &mut [R]) {
    assert!(g.a.data.len() >= Gemm::<R>::span(g.m, g.k, g.a.row, g.a.col), "A is too short");
    assert!(g.b.data.len() >= Gemm::<R>::span(g.k, g.n, g.b.row, g.b.col), "B is too short");
    assert!(c.len() >= Gemm::<R>::span(g.m, g.n, g.c_row, 1), "C is too short");
    // SAFETY: the three assertions above keep every access of the product inside its slice, and
    // C is borrowed mutably, so it overlaps neither A nor B.
    #[allow(unsafe_code, reason = "the GEMM crate's entry point takes raw pointers")]
    unsafe {
        gemm::gemm(
            g.m,
            g.n,
            g.k,
            c.as_mut_ptr(),
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

/// Multiplies in parallel: C's rows (or columns, where it is wider than tall) are split into
/// pieces of a fixed size, one GEMM each.
pub fn par_gemm<R: Real>(g: &Gemm<'_, R>, c: &mut [R]) {
    const PIECES: usize = 8;
    const SMALL: usize = 1 << 16;
    if g.m * g.n * g.k <= SMALL || g.m < 2 {
        return R::gemm(g, c);
    }
    let rows = g.m.div_ceil(PIECES).next_multiple_of(8);
    let used = Gemm::<R>::span(g.m, g.n, g.c_row, 1);
    c[..used].par_chunks_mut(rows * g.c_row).enumerate().for_each(|(index, piece)| {
        let range: Range<usize> = index * rows..((index + 1) * rows).min(g.m);
        let a = Matrix { data: &g.a.data[range.start * g.a.row..], ..g.a };
        R::gemm(&Gemm { m: range.len(), a, ..*g }, piece);
    });
}
