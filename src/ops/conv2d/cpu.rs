//! Convolution on the CPU: windows gathered into columns, one GEMM an image and group. Images are
//! split into a fixed number of lanes, so that bits do not depend on the threads.

use rayon::prelude::*;

use super::Extents;
use crate::ops::cpu::{Gemm, Matrix, par_rows};
use crate::ops::{Call, Real};

/// Lanes of images that run in parallel.
const LANES: usize = 8;

fn images_per_lane(e: &Extents) -> usize {
    e.batch.div_ceil(LANES)
}

fn lanes(e: &Extents) -> usize {
    e.batch.div_ceil(images_per_lane(e))
}

fn columns(e: &Extents) -> usize {
    if e.is_pointwise() { 0 } else { e.taps() * e.out_pixels() }
}

/// Scratch of the two image passes: one column matrix a lane.
pub(super) fn column_scratch(e: &Extents) -> usize {
    lanes(e) * columns(e).max(1)
}

fn weights(e: &Extents) -> usize {
    e.window.groups * e.cout * e.taps()
}

/// Scratch of the weight's gradient: one column matrix and one partial sum a lane.
pub(super) fn weight_scratch(e: &Extents) -> usize {
    lanes(e) * (columns(e) + weights(e))
}

/// The output columns `first..last` whose tap at kernel column `j` falls inside the input.
pub(super) fn inside(e: &Extents, j: usize) -> (usize, usize) {
    let (stride, left, width) = (e.window.stride[1], e.window.padding[2], e.input[1]);
    let shift = j * e.window.dilation[1];
    let first = left.saturating_sub(shift).div_ceil(stride).min(e.output[1]);
    let last = (width + left).saturating_sub(shift).div_ceil(stride).min(e.output[1]);
    (first, last.max(first))
}

/// The input row of output row `oy` at kernel row `i`, if it is inside.
pub(super) fn input_row(e: &Extents, oy: usize, i: usize) -> Option<usize> {
    let y =
        (oy * e.window.stride[0] + i * e.window.dilation[0]).checked_sub(e.window.padding[0])?;
    (y < e.input[0]).then_some(y)
}

/// Calls `body(row of the column matrix, output row, (first, last output column), index of the
/// first input element)` for every run of windows; runs outside of the input have `first == last`.
#[inline(always)]
fn for_runs(e: &Extents, mut body: impl FnMut(usize, usize, (usize, usize), usize)) {
    let [kh, kw] = e.kernel;
    for c in 0..e.cin {
        for (i, j) in (0..kh).flat_map(|i| (0..kw).map(move |j| (i, j))) {
            let tap = (c * kh + i) * kw + j;
            let range = inside(e, j);
            for oy in 0..e.output[0] {
                let row = input_row(e, oy, i).filter(|_| range.0 < range.1);
                let Some(y) = row else {
                    body(tap, oy, (0, 0), 0);
                    continue;
                };
                let x = (range.0 * e.window.stride[1] + j * e.window.dilation[1])
                    .saturating_sub(e.window.padding[2]);
                body(tap, oy, range, c * e.in_pixels() + y * e.input[1] + x);
            }
        }
    }
}

/// Gathers one image's group `x [cin, h, w]` into `col [taps, pixels]`.
fn gather<R: Real>(e: &Extents, x: &[R], col: &mut [R]) {
    let (width, stride) = (e.output[1], e.window.stride[1]);
    for_runs(e, |tap, oy, (first, last), from| {
        let row = &mut col[tap * e.out_pixels() + oy * width..][..width];
        row[..first].fill(R::ZERO);
        row[last..].fill(R::ZERO);
        if stride == 1 {
            row[first..last].copy_from_slice(&x[from..from + (last - first)]);
        } else {
            for (k, out) in row[first..last].iter_mut().enumerate() {
                *out = x[from + k * stride];
            }
        }
    });
}

/// Adds `col [taps, pixels]` back to where it was gathered from.
fn scatter<R: Real>(e: &Extents, col: &[R], dx: &mut [R]) {
    let (width, stride) = (e.output[1], e.window.stride[1]);
    for_runs(e, |tap, oy, (first, last), to| {
        let row = &col[tap * e.out_pixels() + oy * width..][first..last];
        for (k, value) in row.iter().enumerate() {
            dx[to + k * stride] += *value;
        }
    });
}

/// `[out, taps]` of group `g`.
fn weight<'a, R>(e: &Extents, w: &'a [R], g: usize) -> Matrix<'a, R> {
    Matrix { data: &w[g * e.cout * e.taps()..], row: e.taps(), col: 1 }
}

fn transposed<R>(m: Matrix<'_, R>) -> Matrix<'_, R> {
    Matrix { data: m.data, row: m.col, col: m.row }
}

/// Runs the convolution.
pub(super) fn forward<R: Real>(e: &Extents, call: Call<'_, R>) {
    let (x, w) = (call.f(0), call.f(1));
    let (groups, pixels) = (e.window.groups, e.out_pixels());
    let (x_image, y_image) = (groups * e.cin * e.in_pixels(), groups * e.cout * pixels);
    let per_lane = images_per_lane(e);
    let pieces = call.outs[0]
        .par_chunks_mut(per_lane * y_image)
        .zip(call.scratch.par_chunks_mut(columns(e).max(1)));
    pieces.enumerate().for_each(|(lane, (y, col))| {
        for (index, y) in y.chunks_exact_mut(y_image).enumerate() {
            let x = &x[(lane * per_lane + index) * x_image..][..x_image];
            for g in 0..groups {
                let x = &x[g * e.cin * e.in_pixels()..][..e.cin * e.in_pixels()];
                let b = if e.is_pointwise() {
                    Matrix { data: x, row: pixels, col: 1 }
                } else {
                    gather(e, x, col);
                    Matrix { data: &*col, row: pixels, col: 1 }
                };
                let gemm = Gemm {
                    m: e.cout,
                    n: pixels,
                    k: e.taps(),
                    a: weight(e, w, g),
                    b,
                    c_row: pixels,
                    accumulate: false,
                };
                R::gemm(&gemm, &mut y[g * e.cout * pixels..]);
            }
        }
    });
}

/// Runs the gradient with respect to the input.
pub(super) fn grad_input<R: Real>(e: &Extents, call: Call<'_, R>) {
    let (w, dy) = (call.f(0), call.f(1));
    let (groups, pixels) = (e.window.groups, e.out_pixels());
    let (x_image, y_image) = (groups * e.cin * e.in_pixels(), groups * e.cout * pixels);
    let per_lane = images_per_lane(e);
    let pieces = call.outs[0]
        .par_chunks_mut(per_lane * x_image)
        .zip(call.scratch.par_chunks_mut(columns(e).max(1)));
    pieces.enumerate().for_each(|(lane, (dx, col))| {
        for (index, dx) in dx.chunks_exact_mut(x_image).enumerate() {
            let dy = &dy[(lane * per_lane + index) * y_image..][..y_image];
            for g in 0..groups {
                let dx = &mut dx[g * e.cin * e.in_pixels()..][..e.cin * e.in_pixels()];
                let b = Matrix { data: &dy[g * e.cout * pixels..], row: pixels, col: 1 };
                let gemm = Gemm {
                    m: e.taps(),
                    n: pixels,
                    k: e.cout,
                    a: transposed(weight(e, w, g)),
                    b,
                    c_row: pixels,
                    accumulate: false,
                };
                if e.is_pointwise() {
                    R::gemm(&gemm, dx);
                } else {
                    R::gemm(&gemm, col);
                    dx.fill(R::ZERO);
                    scatter(e, col, dx);
                }
            }
        }
    });
}

/// Runs the gradient with respect to the weight: a partial sum for each lane, added in order.
pub(super) fn grad_weight<R: Real>(e: &Extents, call: Call<'_, R>) {
    let (x, dy) = (call.f(0), call.f(1));
    let (groups, pixels) = (e.window.groups, e.out_pixels());
    let (x_image, y_image) = (groups * e.cin * e.in_pixels(), groups * e.cout * pixels);
    let per_lane = images_per_lane(e);
    let each = columns(e) + weights(e);
    let scratch = &mut call.scratch[..lanes(e) * each];
    scratch.par_chunks_mut(each).enumerate().for_each(|(lane, scratch)| {
        let (partial, col) = scratch.split_at_mut(weights(e));
        partial.fill(R::ZERO);
        for image in lane * per_lane..((lane + 1) * per_lane).min(e.batch) {
            for g in 0..groups {
                let x = &x[image * x_image + g * e.cin * e.in_pixels()..][..e.cin * e.in_pixels()];
                let windows = if e.is_pointwise() {
                    Matrix { data: x, row: 1, col: pixels }
                } else {
                    gather(e, x, col);
                    Matrix { data: &*col, row: 1, col: pixels }
                };
                let a = Matrix {
                    data: &dy[image * y_image + g * e.cout * pixels..],
                    row: pixels,
                    col: 1,
                };
                let gemm = Gemm {
                    m: e.cout,
                    n: e.taps(),
                    k: pixels,
                    a,
                    b: windows,
                    c_row: e.taps(),
                    accumulate: true,
                };
                R::gemm(&gemm, &mut partial[g * e.cout * e.taps()..]);
            }
        }
    });
    let scratch = &*scratch;
    par_rows(call.outs[0], 1, 4096, |first, out| {
        out.fill(R::ZERO);
        for lane in scratch.chunks_exact(each) {
            let partial = &lane[first..first + out.len()];
            out.iter_mut().zip(partial).for_each(|(o, p)| *o += *p);
        }
    });
}
