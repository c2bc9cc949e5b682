//! Attention on the CPU: samples in parallel, heads one after another, blocks of queries whose
//! scores stay in cache.

use std::ops::Range;

use rayon::prelude::*;

use super::{Attention, Extents};
use crate::device::Globals;
use crate::ops::cpu::{Gemm, Matrix, dot, simd};
use crate::ops::{Call, Real, philox};

/// Queries in a block.
const BLOCK: usize = 64;

/// Elements of scratch of the forward pass: a block of scores for each sample.
pub(super) fn forward_scratch(e: &Extents) -> usize {
    e.batch * BLOCK.min(e.length) * e.length
}

/// Of the backward pass: scores and their cotangents, and δ.
pub(super) fn backward_scratch(e: &Extents) -> usize {
    e.batch * (2 * BLOCK.min(e.length) * e.length + e.length)
}

/// One head's view of a sample's packed projections.
struct Head<'a, R> {
    qkv: &'a [R],
    /// Number of the segment of each position, where there are segments.
    segments: Option<&'a [R]>,
    e: Extents,
    index: usize,
}

impl<'a, R: Real> Head<'a, R> {
    /// Rows from `row` on of the queries (0), keys (1) or values (2).
    fn matrix(&self, which: usize, row: usize) -> Matrix<'a, R> {
        let start = row * 3 * self.e.width + self.column(which);
        Matrix { data: &self.qkv[start..], row: 3 * self.e.width, col: 1 }
    }

    fn column(&self, which: usize) -> usize {
        which * self.e.width + self.index * self.e.head
    }

    /// Makes those products of query `q`, from key `first` on, −∞ whose keys are not of its segment.
    fn hide(&self, q: usize, first: usize, row: &mut [R]) {
        let Some(segments) = self.segments else { return };
        let own = segments[q];
        for (product, &other) in row.iter_mut().zip(&segments[first..]) {
            if other < R::ZERO || (own >= R::ZERO && own != other) {
                *product = R::NEG_INFINITY;
            }
        }
    }
}

fn transposed<R>(m: Matrix<'_, R>) -> Matrix<'_, R> {
    Matrix { data: m.data, row: m.col, col: m.row }
}

/// `(first query, queries, keys seen by any of them)` of each block.
fn blocks(op: &Attention, e: &Extents) -> impl Iterator<Item = (usize, usize, Range<usize>)> {
    let length = e.length;
    (0..length).step_by(BLOCK).map(move |first| {
        let rows = BLOCK.min(length - first);
        (first, rows, seen(op, first, length).start..seen(op, first + rows - 1, length).end)
    })
}

/// Keys that query `q` sees.
fn seen(op: &Attention, q: usize, length: usize) -> Range<usize> {
    if !op.causal {
        return 0..length;
    }
    (q + 1).saturating_sub(op.window.unwrap_or(length))..q + 1
}

/// Takes from a row of products, not yet scaled, what distance costs.
fn slant<R: Real>(
    op: &Attention,
    e: &Extents,
    head: usize,
    (q, first): (usize, usize),
    row: &mut [R],
) {
    let Some(slope) = op.slope(head) else { return };
    let slope = R::of(slope * (e.head as f64).sqrt());
    for (k, product) in row.iter_mut().enumerate() {
        *product -= slope * R::of(q.abs_diff(first + k) as f64);
    }
}

fn scale<R: Real>(e: &Extents) -> R {
    R::of(1.0 / (e.head as f64).sqrt())
}

/// Multiplies P's row of query `q`, from key `first_key` on, by the dropout mask.
fn drop_row<R: Real>(
    op: &Attention,
    globals: &Globals,
    e: &Extents,
    (sample, head, q, first_key): (usize, usize, usize, usize),
    row: &mut [R],
) {
    if op.dropout == 0.0 {
        return;
    }
    let keep = R::of(1.0 / (1.0 - f64::from(op.dropout)));
    let first = ((sample * e.heads + head) * e.length + q) * e.length + first_key;
    for (k, value) in row.iter_mut().enumerate() {
        let kept = philox::uniform(globals, op.stream, (first + k) as u32) >= op.dropout;
        *value = if kept { *value * keep } else { R::ZERO };
    }
}

/// Runs the forward pass.
pub(super) fn forward<R: Real>(op: &Attention, call: Call<'_, R>) {
    let e = op.extents(call.in_types[0]);
    let qkv = call.f(0);
    let segments = (call.ins.len() > 1).then(|| call.f(1));
    let [out, lse] = call.outs else { unreachable!("two results") };
    let each = BLOCK.min(e.length) * e.length;
    let samples = out
        .par_chunks_mut(e.length * e.width)
        .zip(lse.par_chunks_mut(e.heads * e.length))
        .zip(call.scratch.par_chunks_mut(each));
    samples.enumerate().for_each(|(sample, ((out, lse), scores))| {
        let qkv = &qkv[sample * e.length * 3 * e.width..(sample + 1) * e.length * 3 * e.width];
        let segments = segments.map(|all| &all[sample * e.length..(sample + 1) * e.length]);
        for index in 0..e.heads {
            let head = Head { qkv, segments, e, index };
            let lse = &mut lse[index * e.length..(index + 1) * e.length];
            simd(|| forward_head(op, call.globals, sample, &head, out, lse, scores));
        }
    });
}

#[inline(always)]
fn forward_head<R: Real>(
    op: &Attention,
    globals: &Globals,
    sample: usize,
    head: &Head<'_, R>,
    out: &mut [R],
    lse: &mut [R],
    scores: &mut [R],
) {
    let e = head.e;
    let scale: R = scale(&e);
    for (first, rows, range) in blocks(op, &e) {
        let keys = range.len();
        let scores = &mut scores[..rows * keys];
        let product = Gemm {
            m: rows,
            n: keys,
            k: e.head,
            a: head.matrix(0, first),
            b: transposed(head.matrix(1, range.start)),
            c_row: keys,
            accumulate: false,
        };
        R::gemm(&product, scores);
        for (row, p) in scores.chunks_exact_mut(keys).enumerate() {
            let q = first + row;
            let seen = seen(op, q, e.length);
            p[..seen.start - range.start].fill(R::ZERO);
            p[seen.end - range.start..].fill(R::ZERO);
            let live = &mut p[seen.start - range.start..seen.end - range.start];
            slant(op, &e, head.index, (q, seen.start), live);
            head.hide(q, seen.start, live);
            let top = live.iter().copied().fold(R::NEG_INFINITY, R::max) * scale;
            if top == R::NEG_INFINITY {
                live.fill(R::ZERO);
                lse[q] = R::ZERO;
                continue;
            }
            live.iter_mut().for_each(|s| *s = (*s * scale - top).exp());
            let total = crate::ops::cpu::sum(live);
            lse[q] = top + total.ln();
            let inverse = R::ONE / total;
            live.iter_mut().for_each(|s| *s *= inverse);
            drop_row(op, globals, &e, (sample, head.index, q, seen.start), live);
        }
        let p = Matrix { data: &*scores, row: keys, col: 1 };
        let mixed = Gemm {
            m: rows,
            n: e.head,
            k: keys,
            a: p,
            b: head.matrix(2, range.start),
            c_row: e.width,
            accumulate: false,
        };
        R::gemm(&mixed, &mut out[first * e.width + head.index * e.head..]);
    }
}

/// Runs the backward pass.
pub(super) fn backward<R: Real>(op: &Attention, call: Call<'_, R>) {
    let e = op.extents(call.in_types[0]);
    let (qkv, out, lse, d_out) = (call.f(0), call.f(1), call.f(2), call.f(3));
    let segments = (call.ins.len() > 4).then(|| call.f(4));
    let each = backward_scratch(&e) / e.batch;
    let samples =
        call.outs[0].par_chunks_mut(e.length * 3 * e.width).zip(call.scratch.par_chunks_mut(each));
    samples.enumerate().for_each(|(sample, (d_qkv, scratch))| {
        d_qkv.fill(R::ZERO);
        let part = |all: &'_ [R], len: usize| -> std::ops::Range<usize> {
            sample * len..((sample + 1) * len).min(all.len())
        };
        let qkv = &qkv[part(qkv, e.length * 3 * e.width)];
        let rows = part(out, e.length * e.width);
        let (out, d_out) = (&out[rows.clone()], &d_out[rows]);
        let lse = &lse[part(lse, e.heads * e.length)];
        let segments = segments.map(|all| &all[part(all, e.length)]);
        for index in 0..e.heads {
            let grad = HeadGrad {
                op,
                globals: call.globals,
                sample,
                head: Head { qkv, segments, e, index },
                out,
                d_out,
                lse: &lse[index * e.length..(index + 1) * e.length],
            };
            simd(|| grad.run(d_qkv, scratch));
        }
    });
}

/// What one head's backward pass reads.
struct HeadGrad<'a, R> {
    op: &'a Attention,
    globals: &'a Globals,
    sample: usize,
    head: Head<'a, R>,
    out: &'a [R],
    d_out: &'a [R],
    lse: &'a [R],
}

impl<R: Real> HeadGrad<'_, R> {
    #[inline(always)]
    fn run(&self, d_qkv: &mut [R], scratch: &mut [R]) {
        let e = self.head.e;
        let (delta, scratch) = scratch.split_at_mut(e.length);
        let (scores, cotangents) = scratch.split_at_mut(BLOCK.min(e.length) * e.length);
        for (q, delta) in delta.iter_mut().enumerate() {
            let at = q * e.width + self.head.index * e.head;
            *delta = dot(&self.d_out[at..at + e.head], &self.out[at..at + e.head]);
        }
        for block in blocks(self.op, &e) {
            let size = block.1 * block.2.len();
            self.block(block, delta, &mut scores[..size], &mut cotangents[..size], d_qkv);
        }
    }

    /// The rows of `d_out` from `row` on.
    fn d_out_matrix(&self, row: usize) -> Matrix<'_, R> {
        let e = self.head.e;
        Matrix {
            data: &self.d_out[row * e.width + self.head.index * e.head..],
            row: e.width,
            col: 1,
        }
    }

    #[inline(always)]
    fn block(
        &self,
        (first, rows, range): (usize, usize, Range<usize>),
        delta: &[R],
        p: &mut [R],
        ds: &mut [R],
        d_qkv: &mut [R],
    ) {
        let (e, head) = (self.head.e, &self.head);
        let keys = range.len();
        let scale: R = scale(&e);
        let scores = Gemm {
            m: rows,
            n: keys,
            k: e.head,
            a: head.matrix(0, first),
            b: transposed(head.matrix(1, range.start)),
            c_row: keys,
            accumulate: false,
        };
        R::gemm(&scores, p);
        let values = transposed(head.matrix(2, range.start));
        let d_p = Gemm { a: self.d_out_matrix(first), b: values, ..scores };
        R::gemm(&d_p, ds);
        for (row, (p, ds)) in p.chunks_exact_mut(keys).zip(ds.chunks_exact_mut(keys)).enumerate() {
            let q = first + row;
            let seen = seen(self.op, q, e.length);
            let at = (self.sample, head.index, q, seen.start);
            let live = seen.start - range.start..seen.end - range.start;
            for row in [&mut *p, &mut *ds] {
                row[..live.start].fill(R::ZERO);
                row[live.end..].fill(R::ZERO);
            }
            let (p, ds) = (&mut p[live.clone()], &mut ds[live]);
            slant(self.op, &e, head.index, (q, seen.start), p);
            head.hide(q, seen.start, p);
            p.iter_mut().for_each(|s| *s = (*s * scale - self.lse[q]).exp());
            drop_row(self.op, self.globals, &e, at, ds);
            for (ds, p) in ds.iter_mut().zip(p.iter()) {
                *ds = *p * (*ds - delta[q]) * scale;
            }
            drop_row(self.op, self.globals, &e, at, p);
        }
        let (p, ds) =
            (Matrix { data: &*p, row: keys, col: 1 }, Matrix { data: &*ds, row: keys, col: 1 });
        let wide = 3 * e.width;
        let d_q = Gemm {
            m: rows,
            n: e.head,
            k: keys,
            a: ds,
            b: head.matrix(1, range.start),
            c_row: wide,
            accumulate: false,
        };
        R::gemm(&d_q, &mut d_qkv[first * wide + head.column(0)..]);
        let d_k = Gemm {
            m: keys,
            n: e.head,
            k: rows,
            a: transposed(ds),
            b: head.matrix(0, first),
            c_row: wide,
            accumulate: true,
        };
        R::gemm(&d_k, &mut d_qkv[range.start * wide + head.column(1)..]);
        let d_v = Gemm { a: transposed(p), b: self.d_out_matrix(first), ..d_k };
        R::gemm(&d_v, &mut d_qkv[range.start * wide + head.column(2)..]);
    }
}
