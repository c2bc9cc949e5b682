//! Convolution on the GPU: the three implicit products over one tile kernel.

use super::Extents;
use crate::graph::TensorType;
use crate::ops::launch::fold_groups;
use crate::ops::tile::{Choice, Problem, choose};
use crate::ops::{Bind, GpuCall, GpuLimits, Kernel, Launch};

/// One of the three products: extents of the result of one group, and the length of its sums.
type Product = [usize; 3];

fn choice(e: &Extents, [m, n, k]: Product, factors: &[&TensorType], limits: &GpuLimits) -> Choice {
    let units = Problem::units(limits, factors);
    choose(&Problem { layers: e.window.groups, m, n, k, units }, limits)
}

/// y of x and w.
pub(super) fn forward_product(e: &Extents) -> Product {
    [e.cout, e.batch * e.out_pixels(), e.taps()]
}

/// dx of w and dy.
pub(super) fn input_product(e: &Extents) -> Product {
    [e.cin, e.batch * e.in_pixels(), e.cout * e.kernel[0] * e.kernel[1]]
}

/// dw of x and dy.
pub(super) fn weight_product(e: &Extents) -> Product {
    [e.cout, e.taps(), e.batch * e.out_pixels()]
}

/// Elements of scratch: the parts of split sums.
pub(super) fn scratch(
    e: &Extents,
    product: Product,
    factors: &[&TensorType],
    limits: &GpuLimits,
) -> usize {
    let parts = choice(e, product, factors, limits).parts;
    if parts == 1 { 0 } else { parts * e.window.groups * product[0] * product[1] }
}

/// A kernel file with the tile's and the convolution's constants.
fn kernel(
    stem: &'static str,
    entry: &'static str,
    e: &Extents,
    choice: &Choice,
    b_along_terms: bool,
    limits: &GpuLimits,
) -> Kernel {
    let tiled = choice.tile.specialise(Kernel::file(stem, entry), [true, b_along_terms], limits);
    with_extents(tiled, e).with("CIN", e.cin as u32).with("COUT", e.cout as u32)
}

/// A kernel that uses lib/conv2d_extents, with a convolution's extents.
pub(super) fn with_extents(kernel: Kernel, e: &Extents) -> Kernel {
    let w = &e.window;
    [
        ("GROUPS", w.groups),
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
    .fold(kernel, |kernel, (name, value)| kernel.with(name, value as u32))
}

/// The product of operands and result of these names, and where its sums are split, the addition of the parts in order.
fn launches(
    stem: &'static str,
    entry: &'static str,
    e: &Extents,
    product: Product,
    names: [&'static str; 3],
    b_along_terms: bool,
    call: &GpuCall<'_>,
) -> Vec<Launch> {
    let choice = choice(e, product, call.ins, call.limits);
    let [m, n, _] = product;
    let tiles = [m.div_ceil(choice.tile.rows), n.div_ceil(choice.tile.cols)];
    let split = choice.parts > 1;
    let mut kernel = kernel(stem, entry, e, &choice, b_along_terms, call.limits)
        .stored(names[0], call.ins[0])
        .stored(names[1], call.ins[1]);
    if !split {
        kernel = kernel.stored(names[2], call.outs[0]);
    }
    let first = Launch {
        kernel,
        dims: [e.batch, choice.parts, tiles[0], tiles[1]].map(|n| n as u32).to_vec(),
        binds: vec![Bind::In(0), Bind::In(1), if split { Bind::Scratch } else { Bind::Out(0) }],
        grid: fold_groups(tiles[0] * tiles[1] * e.window.groups * choice.parts),
    };
    if !split {
        return vec![first];
    }
    // [parts, outputs] → [outputs]: column sums.
    let outputs = e.window.groups * m * n;
    let sum = Launch {
        kernel: Kernel::file("reduce", "columns").stored("out", call.outs[0]),
        dims: vec![1, choice.parts as u32, outputs as u32, choice.parts as u32, 1],
        binds: vec![Bind::Scratch, Bind::Out(0)],
        grid: fold_groups(outputs.div_ceil(64)),
    };
    vec![first, sum]
}

/// Operands x, w → y.
pub(super) fn forward(e: &Extents, call: &GpuCall<'_>) -> Vec<Launch> {
    launches("conv2d", "conv2d", e, forward_product(e), ["x", "w", "y"], false, call)
}

/// Operands w, dy → dx.
pub(super) fn grad_input(e: &Extents, call: &GpuCall<'_>) -> Vec<Launch> {
    launches("conv2d_grad_input", "grad_input", e, input_product(e), ["w", "dy", "dx"], false, call)
}

/// Operands x, dy → dw.
pub(super) fn grad_weight(e: &Extents, call: &GpuCall<'_>) -> Vec<Launch> {
    // It sums over pixels, which lie side by side.
    let names = ["x", "dy", "dw"];
    launches("conv2d_grad_weight", "grad_weight", e, weight_product(e), names, true, call)
}
