//! Convolutions whose groups have one input channel each. Their sums are as short as the kernel, so
//! that no matrix product pays: the windows are read where they lie.

use std::borrow::Cow;

use rayon::prelude::*;

use super::Extents;
use super::cpu::{input_row, inside};
use crate::ops::cpu::{par_rows, simd, sum};
use crate::ops::launch::fold_groups;
use crate::ops::{Bind, Call, GpuCall, Kernel, Launch, Real};

/// Most columns of a kernel: each has a sum in the registers of a thread.
const WIDEST: usize = 64;

/// Whether a convolution runs here.
pub(super) fn applies(e: &Extents) -> bool {
    e.cin == 1 && e.window.groups > 1 && e.kernel[1] <= WIDEST
}

/// One run of a kernel's element over an output row: `len` elements of the output from `out` on,
/// and those of the input, as [`split`] has them, from `x` on.
struct Run {
    tap: usize,
    out: usize,
    len: usize,
    x: usize,
}

/// Calls `body` for every run of a plane, kernel elements outermost.
#[inline(always)]
fn for_runs(e: &Extents, mut body: impl FnMut(Run)) {
    let ([kh, kw], [rows, cols], stride) = (e.kernel, e.input, e.window.stride[1]);
    for (i, j) in (0..kh).flat_map(|i| (0..kw).map(move |j| (i, j))) {
        let (first, last) = inside(e, j);
        if first == last {
            continue;
        }
        let column = first * stride + j * e.window.dilation[1] - e.window.padding[2];
        for oy in 0..e.output[0] {
            if let Some(y) = input_row(e, oy, i) {
                body(Run {
                    tap: i * kw + j,
                    out: oy * e.output[1] + first,
                    len: last - first,
                    x: (column % stride * rows + y) * cols.div_ceil(stride) + column / stride,
                });
            }
        }
    }
}

/// An input plane as `[stride, rows, ⌈columns / stride⌉]`, so that what a kernel's element meets lies
/// side by side.
fn split<'a, R: Real>(e: &Extents, x: &'a [R]) -> Cow<'a, [R]> {
    let stride = e.window.stride[1];
    if stride == 1 {
        return Cow::Borrowed(x);
    }
    let width = e.input[1].div_ceil(stride);
    let mut parts = vec![R::ZERO; stride * e.input[0] * width];
    for (row, part) in parts.chunks_exact_mut(width).enumerate() {
        let from = row % e.input[0] * e.input[1];
        let x = &x[from..from + e.input[1]];
        let first = row / e.input[0];
        part.iter_mut()
            .zip(x[first.min(x.len())..].iter().step_by(stride))
            .for_each(|(p, x)| *p = *x);
    }
    Cow::Owned(parts)
}

/// The inverse of [`split`].
fn merge<R: Real>(e: &Extents, parts: &[R], x: &mut [R]) {
    let stride = e.window.stride[1];
    let width = e.input[1].div_ceil(stride);
    for (y, x) in x.chunks_exact_mut(e.input[1]).enumerate() {
        for first in 0..stride.min(x.len()) {
            let part = &parts[(first * e.input[0] + y) * width..][..width];
            x[first..].iter_mut().step_by(stride).zip(part).for_each(|(x, p)| *x = *p);
        }
    }
}

/// Runs the convolution, a plane of the output at a time.
pub(super) fn forward<R: Real>(e: &Extents, call: Call<'_, R>) {
    let (x, w) = (call.f(0), call.f(1));
    let (taps, pixels) = (e.taps(), e.out_pixels());
    par_rows(call.outs[0], pixels, 1, |plane, y| {
        let w = &w[plane % (e.window.groups * e.cout) * taps..][..taps];
        let x = split(e, &x[plane / e.cout * e.in_pixels()..][..e.in_pixels()]);
        y.fill(R::ZERO);
        for_runs(e, |run| {
            let (w, y) = (w[run.tap], &mut y[run.out..][..run.len]);
            y.iter_mut().zip(&x[run.x..][..run.len]).for_each(|(y, x)| *y += w * *x);
        });
    });
}

/// Runs the gradient with respect to the input, a plane of it at a time.
pub(super) fn grad_input<R: Real>(e: &Extents, call: Call<'_, R>) {
    let (w, dy) = (call.f(0), call.f(1));
    let (taps, pixels) = (e.taps(), e.out_pixels());
    let add = |plane: usize, dx: &mut [R]| {
        for m in 0..e.cout {
            let w = &w[(plane % e.window.groups * e.cout + m) * taps..][..taps];
            let dy = &dy[(plane * e.cout + m) * pixels..][..pixels];
            for_runs(e, |run| {
                let (w, dx) = (w[run.tap], &mut dx[run.x..][..run.len]);
                dx.iter_mut().zip(&dy[run.out..][..run.len]).for_each(|(dx, dy)| *dx += w * *dy);
            });
        }
    };
    par_rows(call.outs[0], e.in_pixels(), 1, |plane, dx| {
        dx.fill(R::ZERO);
        if e.window.stride[1] == 1 {
            return add(plane, dx);
        }
        let mut parts = split(e, dx).into_owned();
        add(plane, &mut parts);
        merge(e, &parts, dx);
    });
}

/// Partial sums of an element of the weight's gradient.
const LANES: usize = 16;

/// Runs the gradient with respect to the weight, an output channel at a time.
pub(super) fn grad_weight<R: Real>(e: &Extents, call: Call<'_, R>) {
    let (x, dy) = (call.f(0), call.f(1));
    let (taps, pixels) = (e.taps(), e.out_pixels());
    let channels = e.window.groups * e.cout;
    let of_channel = |channel: usize, dw: &mut [R]| {
        let mut sums = vec![[R::ZERO; LANES]; taps];
        for sample in 0..e.batch {
            let plane = sample * channels + channel;
            let dy = &dy[plane * pixels..][..pixels];
            let x = split(e, &x[plane / e.cout * e.in_pixels()..][..e.in_pixels()]);
            for_runs(e, |run| {
                let (dy, x) = (&dy[run.out..][..run.len], &x[run.x..][..run.len]);
                add_products(&mut sums[run.tap], dy, x);
            });
        }
        dw.iter_mut().zip(&sums).for_each(|(dw, sums)| *dw = sum(sums));
    };
    let weights = call.outs[0].par_chunks_mut(taps).enumerate();
    weights.for_each(|(channel, dw)| simd(|| of_channel(channel, dw)));
}

/// Adds the products of two rows, each place to a lane of its own.
#[inline(always)]
fn add_products<R: Real>(sums: &mut [R; LANES], a: &[R], b: &[R]) {
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest = a.remainder().iter().zip(b.remainder());
    let mut totals = *sums;
    for (a, b) in a.zip(b) {
        for lane in 0..LANES {
            totals[lane] += a[lane] * b[lane];
        }
    }
    totals.iter_mut().zip(rest).for_each(|(total, (a, b))| *total += *a * *b);
    *sums = totals;
}

/// Fewest terms that are worth a part of the weight's sums.
const PART_TERMS: usize = 4096;
/// Workgroups that fill a card.
const FULL: usize = 1024;

/// Parts of the weight's sums, added in order afterwards.
fn parts(e: &Extents) -> usize {
    let workgroups = e.window.groups * e.cout * e.kernel[0];
    let terms = e.batch * e.out_pixels();
    FULL.div_ceil(workgroups).min(terms.div_ceil(PART_TERMS))
}

/// Elements of scratch of the weight's gradient on a GPU.
pub(super) fn weight_scratch(e: &Extents) -> usize {
    let parts = parts(e);
    if parts == 1 { 0 } else { parts * e.window.groups * e.cout * e.taps() }
}

fn kernel(entry: &'static str, e: &Extents, call: &GpuCall<'_>) -> Kernel {
    super::gpu::with_extents(Kernel::file("conv2d_depthwise", entry), e)
        .with("MULTIPLIER", e.cout as u32)
        .stored("left", call.ins[0])
        .stored("right", call.ins[1])
}

fn elements(entry: &'static str, e: &Extents, count: usize, call: &GpuCall<'_>) -> Vec<Launch> {
    let kernel = kernel(entry, e, call).stored("out", call.outs[0]);
    let binds = vec![Bind::In(0), Bind::In(1), Bind::Out(0)];
    vec![Launch::flat(kernel, vec![e.batch as u32, 1], binds, count, 256)]
}

/// Operands x, w → y.
pub(super) fn gpu_forward(e: &Extents, call: &GpuCall<'_>) -> Vec<Launch> {
    elements("conv2d", e, e.batch * e.window.groups * e.cout * e.out_pixels(), call)
}

/// Operands w, dy → dx.
pub(super) fn gpu_grad_input(e: &Extents, call: &GpuCall<'_>) -> Vec<Launch> {
    elements("grad_input", e, e.batch * e.window.groups * e.in_pixels(), call)
}

/// Operands x, dy → dw.
pub(super) fn gpu_grad_weight(e: &Extents, call: &GpuCall<'_>) -> Vec<Launch> {
    let parts = parts(e);
    let weights = e.window.groups * e.cout * e.taps();
    let split = parts > 1;
    let mut kernel = kernel("grad_weight", e, call);
    if !split {
        kernel = kernel.stored("out", call.outs[0]);
    }
    let first = Launch {
        kernel,
        dims: vec![e.batch as u32, parts as u32],
        binds: vec![Bind::In(0), Bind::In(1), if split { Bind::Scratch } else { Bind::Out(0) }],
        grid: fold_groups(parts * e.window.groups * e.cout * e.kernel[0]),
    };
    if !split {
        return vec![first];
    }
    // [parts, weights] → [weights]: column sums.
    let sum = Launch {
        kernel: Kernel::file("reduce", "columns").stored("out", call.outs[0]),
        dims: vec![1, parts as u32, weights as u32, parts as u32, 1],
        binds: vec![Bind::Scratch, Bind::Out(0)],
        grid: fold_groups(weights.div_ceil(64)),
    };
    vec![first, sum]
}
