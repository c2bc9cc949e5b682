//! Convolution on the GPU: the three implicit products over one tile kernel.

use super::Extents;
use crate::ops::launch::fold_groups;
use crate::ops::tile::{Choice, Problem, choose};
use crate::ops::{Bind, GpuLimits, Kernel, Launch};

/// One of the three products: extents of the result of one group, and the length of its sums.
fn choice(e: &Extents, [m, n, k]: [usize; 3], splits: bool, limits: &GpuLimits) -> Choice {
    choose(&Problem { layers: e.window.groups, m, n, k, splits }, limits)
}

/// A kernel file with the tile's and the convolution's constants.
fn kernel(
    stem: &'static str,
    entry: &'static str,
    e: &Extents,
    choice: &Choice,
    b_along_terms: bool,
) -> Kernel {
    let w = &e.window;
    let tiled = choice.tile.specialise(Kernel::file(stem, entry), [true, b_along_terms]);
    [
        ("GROUPS", w.groups),
        ("CIN", e.cin),
        ("COUT", e.cout),
        ("IN_ROWS", e.input[0]),
        ("IN_COLS", e.input[1]),
        ("OUT_ROWS", e.output[0]),
        ("OUT_COLS", e.output[1]),
        ("KERNEL_ROWS", e.kernel[0]),
        ("KERNEL_COLS", e.kernel[1]),
        ("STRIDE_ROWS", w.stride[0]),
        ("STRIDE_COLS", w.stride[1]),
        ("PAD_TOP", w.padding[0]),
        ("PAD_LEFT", w.padding[2]),
        ("DILATION_ROWS", w.dilation[0]),
        ("DILATION_COLS", w.dilation[1]),
    ]
    .into_iter()
    .fold(tiled, |kernel, (name, value)| kernel.with(name, value as u32))
}

fn launch(kernel: Kernel, e: &Extents, [m, n, _]: [usize; 3], choice: &Choice, to: Bind) -> Launch {
    let tiles = [m.div_ceil(choice.tile.rows), n.div_ceil(choice.tile.cols)];
    let all = tiles[0] * tiles[1] * e.window.groups * choice.parts;
    Launch {
        kernel,
        dims: [e.batch, choice.parts, tiles[0], tiles[1]].map(|n| n as u32).to_vec(),
        binds: vec![Bind::In(0), Bind::In(1), to],
        grid: fold_groups(all),
    }
}

/// Operands x, w → y.
pub(super) fn forward(e: &Extents, limits: &GpuLimits) -> Vec<Launch> {
    let product = [e.cout, e.batch * e.out_pixels(), e.taps()];
    let choice = choice(e, product, false, limits);
    let kernel = kernel("conv2d", "conv2d", e, &choice, false);
    vec![launch(kernel, e, product, &choice, Bind::Out(0))]
}

/// Operands w, dy → dx.
pub(super) fn grad_input(e: &Extents, limits: &GpuLimits) -> Vec<Launch> {
    let product = [e.cin, e.batch * e.in_pixels(), e.cout * e.kernel[0] * e.kernel[1]];
    let choice = choice(e, product, false, limits);
    let kernel = kernel("conv2d_grad_input", "grad_input", e, &choice, false);
    vec![launch(kernel, e, product, &choice, Bind::Out(0))]
}

fn weight_product(e: &Extents) -> [usize; 3] {
    [e.cout, e.taps(), e.batch * e.out_pixels()]
}

fn weights(e: &Extents) -> usize {
    e.window.groups * e.cout * e.taps()
}

/// Elements of the parts.
pub(super) fn weight_scratch(e: &Extents, limits: &GpuLimits) -> usize {
    let parts = choice(e, weight_product(e), true, limits).parts;
    if parts == 1 { 0 } else { parts * weights(e) }
}

/// Operands x, dy → dw: in parts, which are then added in order.
pub(super) fn grad_weight(e: &Extents, limits: &GpuLimits) -> Vec<Launch> {
    let product = weight_product(e);
    let choice = choice(e, product, true, limits);
    let parts = choice.parts;
    let to = if parts == 1 { Bind::Out(0) } else { Bind::Scratch };
    let kernel = kernel("conv2d_grad_weight", "grad_weight", e, &choice, true);
    let product = launch(kernel, e, product, &choice, to);
    if parts == 1 {
        return vec![product];
    }
    // [parts, weights] → [weights]: column sums.
    let n = weights(e);
    let sum = Launch {
        kernel: Kernel::file("reduce", "columns"),
        dims: vec![1, parts as u32, n as u32, parts as u32, 1],
        binds: vec![Bind::Scratch, Bind::Out(0)],
        grid: fold_groups(n.div_ceil(64)),
    };
    vec![product, sum]
}
