//! Recurrent cells on the CPU: a product for each step, then the cells of each sample in short
//! loops that become SIMD.

use rayon::prelude::*;

use super::{Cell, Extents, Recurrent};
use crate::ops::cpu::{Gemm, Matrix, SERIAL_BELOW, par_gemm_batch, par_rows, simd};
use crate::ops::{Call, Real};

/// Elements of scratch of the forward pass: the weight transposed, so that no step has to, and c of
/// an lstm.
pub(super) fn forward_scratch(op: &Recurrent, e: Extents) -> usize {
    (op.cell.gates() * e.hidden + e.batch) * e.hidden
}

/// Of the backward pass: the cotangents of h and of c.
pub(super) fn backward_scratch(e: Extents) -> usize {
    2 * e.batch * e.hidden
}

/// Samples whose cells are worth waking a thread.
fn together(row: usize) -> usize {
    (SERIAL_BELOW / row.max(1)).max(1)
}

/// A row cut into equal parts.
fn parts<R, const N: usize>(row: &[R]) -> [&[R]; N] {
    let n = row.len() / N;
    std::array::from_fn(|part| &row[part * n..(part + 1) * n])
}

fn parts_mut<R, const N: usize>(mut row: &mut [R]) -> [&mut [R]; N] {
    let n = row.len() / N;
    std::array::from_fn(|_| {
        let (part, rest) = std::mem::take(&mut row).split_at_mut(n);
        row = rest;
        part
    })
}

/// `out[k] ← f(out[k], a[k], b[k], c[k])`. Short loops over few slices are what the compiler makes
/// SIMD of.
#[inline(always)]
fn zip<R: Real>(out: &mut [R], a: &[R], b: &[R], c: &[R], f: impl Fn(R, R, R, R) -> R) {
    let n = out.len();
    let (a, b, c) = (&a[..n], &b[..n], &c[..n]);
    for k in 0..n {
        out[k] = f(out[k], a[k], b[k], c[k]);
    }
}

#[inline(always)]
fn sigmoid<R: Real>(row: &mut [R]) {
    row.iter_mut().for_each(|v| *v = R::ONE / (R::ONE + (-*v).exp()));
}

#[inline(always)]
fn tanh<R: Real>(row: &mut [R]) {
    row.iter_mut().for_each(|v| *v = v.tanh());
}

/// σ′ by σ's value.
#[inline(always)]
fn bell<R: Real>(y: R) -> R {
    y * (R::ONE - y)
}

/// Runs the forward pass. What is kept holds s first and is turned into the gates in place.
pub(super) fn forward<R: Real>(op: &Recurrent, call: Call<'_, R>) {
    let e = Extents::of(call.out_types[0]);
    let Extents { batch, time, hidden } = e;
    let (width, kept_width) = (op.cell.gates() * hidden, op.cell.kept() * hidden);
    let (x, weight, bias) = (call.f(0), call.f(1), call.f(2));
    let lengths = (call.ins.len() == 4).then(|| call.f(3));
    let [h, kept] = call.outs else { unreachable!("two results") };
    let (across, c) = call.scratch.split_at_mut(width * hidden);
    par_rows(across, width, together(width), |first, rows| {
        for (row, out) in rows.chunks_exact_mut(width).enumerate() {
            out.iter_mut().enumerate().for_each(|(k, v)| *v = weight[k * hidden + first + row]);
        }
    });
    let c = &mut c[..batch * hidden];
    c.fill(R::ZERO);
    for step in op.steps(time) {
        let at = step.at;
        kept.par_chunks_mut(time * kept_width).with_min_len(together(width)).enumerate().for_each(
            |(sample, kept)| {
                let s = &mut kept[at * kept_width..][..width];
                let x = &x[(sample * time + at) * width..][..width];
                simd(|| start(op.cell, s, x, bias));
            },
        );
        if let Some(before) = step.before {
            let product = Gemm {
                m: batch,
                n: width,
                k: hidden,
                a: Matrix { data: &h[before * hidden..], row: time * hidden, col: 1 },
                b: Matrix { data: &*across, row: width, col: 1 },
                c_row: time * kept_width,
                accumulate: true,
            };
            par_gemm_batch(&product, 1, [0; 3], &mut kept[at * kept_width..]);
        }
        let samples = kept
            .par_chunks_mut(time * kept_width)
            .zip(h.par_chunks_mut(time * hidden))
            .zip(c.par_chunks_mut(hidden));
        samples.with_min_len(together(width)).enumerate().for_each(|(sample, ((kept, h), c))| {
            match step.before {
                Some(before) => h.copy_within(before * hidden..(before + 1) * hidden, at * hidden),
                None => h[at * hidden..(at + 1) * hidden].fill(R::ZERO),
            }
            let x = &x[(sample * time + at) * width..][..width];
            let (kept, h) =
                (&mut kept[at * kept_width..][..kept_width], &mut h[at * hidden..][..hidden]);
            if lengths.is_some_and(|lengths| R::of(at as f64) >= lengths[sample]) {
                return rest(op.cell, kept, h, c);
            }
            simd(|| finish(op.cell, kept, h, c, x));
        });
    }
}

/// s before the product, with x in it where nothing stands between them.
#[inline(always)]
fn start<R: Real>(cell: Cell, s: &mut [R], x: &[R], bias: &[R]) {
    zip(s, x, bias, bias, |_, x, b, _| x + b);
    if cell == Cell::Gru {
        let from = s.len() / 3 * 2;
        s[from..].copy_from_slice(&bias[from..]);
    }
}

/// One step of one sample: s becomes the gates, and h before the step becomes h after it.
#[inline(always)]
fn finish<R: Real>(cell: Cell, kept: &mut [R], h: &mut [R], c: &mut [R], x: &[R]) {
    match cell {
        Cell::Tanh => {
            tanh(kept);
            h.copy_from_slice(kept);
            kept.iter_mut().for_each(|v| *v = R::ONE - *v * *v);
        }
        Cell::Relu => {
            zip(h, kept, kept, kept, |_, s, _, _| s.max(R::ZERO));
            kept.iter_mut().for_each(|v| *v = if *v > R::ZERO { R::ONE } else { R::ZERO });
        }
        Cell::Lstm => {
            let [i, f, g, o, kept_c] = parts_mut(kept);
            [&mut *i, &mut *f, &mut *o].into_iter().for_each(sigmoid);
            tanh(g);
            zip(c, i, f, g, |c, i, f, g| f * c + i * g);
            kept_c.copy_from_slice(c);
            zip(h, o, c, c, |_, o, c, _| o * c.tanh());
        }
        Cell::Gru => {
            let [r, z, s, n] = parts_mut(kept);
            sigmoid(r);
            sigmoid(z);
            let [_, _, x] = parts(x);
            zip(n, x, r, s, |_, x, r, s| (x + r * s).tanh());
            zip(h, z, n, n, |h, z, n, _| (R::ONE - z) * n + z * h);
        }
    }
}

/// A step beyond the length of its sample: no state, and gates of which no gradient comes.
fn rest<R: Real>(cell: Cell, kept: &mut [R], h: &mut [R], c: &mut [R]) {
    kept.fill(R::ZERO);
    h.fill(R::ZERO);
    c.fill(R::ZERO);
    if cell == Cell::Gru {
        let [_, _, _, n] = parts_mut(kept);
        n.fill(R::ONE);
    }
}

/// Runs the backward pass.
pub(super) fn backward<R: Real>(op: &Recurrent, call: Call<'_, R>) {
    let e = Extents::of(call.in_types[0]);
    let Extents { batch, time, hidden } = e;
    let (width, kept_width) = (op.cell.gates() * hidden, op.cell.kept() * hidden);
    let (d_h, weight, kept) = (call.f(0), call.f(1), call.f(2));
    let h = if op.cell == Cell::Gru { call.f(3) } else { &[] };
    let [d_s, others @ ..] = call.outs else { unreachable!("at least one result") };
    let mut d_x: Vec<&mut [R]> = match others {
        [d_x] => d_x.chunks_mut(time * width).collect(),
        _ => (0..batch).map(|_| Default::default()).collect(),
    };
    let (dh, dc) = call.scratch[..2 * batch * hidden].split_at_mut(batch * hidden);
    dh.fill(R::ZERO);
    dc.fill(R::ZERO);
    let zeros = vec![R::ZERO; hidden];
    for step in op.steps(time).rev() {
        let at = step.at;
        if let Some(after) = step.after {
            let product = Gemm {
                m: batch,
                n: hidden,
                k: width,
                a: Matrix { data: &d_s[after * width..], row: time * width, col: 1 },
                b: Matrix { data: weight, row: hidden, col: 1 },
                c_row: hidden,
                accumulate: true,
            };
            par_gemm_batch(&product, 1, [0; 3], dh);
        }
        let samples = d_s
            .par_chunks_mut(time * width)
            .zip(d_x.par_iter_mut())
            .zip(dh.par_chunks_mut(hidden).zip(dc.par_chunks_mut(hidden)));
        samples.with_min_len(together(width)).enumerate().for_each(
            |(sample, ((d_s, d_x), (dh, dc)))| {
                let row = |step: usize| sample * time + step;
                let kept_row = |step: usize| &kept[row(step) * kept_width..][..kept_width];
                let before = match (op.cell, step.before) {
                    (Cell::Lstm, Some(before)) => &kept_row(before)[4 * hidden..],
                    (Cell::Gru, Some(before)) => &h[row(before) * hidden..][..hidden],
                    _ => &zeros[..],
                };
                let d_h = &d_h[row(at) * hidden..][..hidden];
                let d_s = &mut d_s[at * width..][..width];
                let d_x = if d_x.is_empty() { &mut [] } else { &mut d_x[at * width..][..width] };
                simd(|| {
                    zip(dh, d_h, d_h, d_h, |dh, d, _, _| dh + d);
                    back(op.cell, kept_row(at), before, dh, dc, d_s, d_x);
                });
            },
        );
    }
}

/// One step of one sample: the cotangents of s and x. The cotangents of h and c become what goes to
/// the step before beside the product; `before` is that step's c (lstm) or h (gru).
#[inline(always)]
fn back<R: Real>(
    cell: Cell,
    kept: &[R],
    before: &[R],
    dh: &mut [R],
    dc: &mut [R],
    d_s: &mut [R],
    d_x: &mut [R],
) {
    match cell {
        Cell::Tanh | Cell::Relu => {
            zip(d_s, dh, kept, kept, |_, dh, slope, _| dh * slope);
            dh.fill(R::ZERO);
        }
        Cell::Lstm => {
            let [i, f, g, o, c] = parts(kept);
            let [d_i, d_f, d_g, d_o] = parts_mut(d_s);
            d_o.copy_from_slice(c);
            tanh(d_o);
            let squashed = &*d_o;
            zip(dc, dh, o, squashed, |dc, dh, o, t| dc + dh * o * (R::ONE - t * t));
            zip(d_o, dh, o, o, |t, dh, o, _| dh * t * bell(o));
            zip(d_i, dc, g, i, |_, dc, g, i| dc * g * bell(i));
            zip(d_f, dc, before, f, |_, dc, c, f| dc * c * bell(f));
            zip(d_g, dc, i, g, |_, dc, i, g| dc * i * (R::ONE - g * g));
            zip(dc, f, f, f, |dc, f, _, _| dc * f);
            dh.fill(R::ZERO);
        }
        Cell::Gru => {
            let [r, z, s, n] = parts(kept);
            let [d_r, d_z, d_n] = parts_mut(d_x);
            zip(d_n, dh, z, n, |_, dh, z, n| dh * (R::ONE - z) * (R::ONE - n * n));
            zip(d_r, d_n, s, r, |_, d_n, s, r| d_n * s * bell(r));
            zip(d_z, before, n, dh, |_, h, n, dh| dh * (h - n));
            zip(d_z, z, z, z, |d, z, _, _| d * bell(z));
            zip(dh, z, z, z, |dh, z, _, _| dh * z);
            d_s.copy_from_slice(d_x);
            let [_, _, d_s] = parts_mut(d_s);
            zip(d_s, r, r, r, |d_n, r, _, _| d_n * r);
        }
    }
}
