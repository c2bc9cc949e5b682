//! Convolution on the GPU: the three implicit products over one tile kernel.

use super::Extents;
use crate::graph::TensorType;
use crate::ops::launch::fold_groups;
use crate::ops::tile::{Choice, Problem, ProductKernel, choose};
use crate::ops::{Bind, GpuCall, GpuLimits, Kernel, Launch};

/// One of the three products of a convolution with these extents, as the choice sees it: of w and x,
/// of w and dy, or of x and dy.
pub(super) fn problem(
    kernel: ProductKernel,
    e: &Extents,
    factors: &[&TensorType],
    limits: &GpuLimits,
) -> Problem {
    let (pixels, taps) = (e.batch * e.out_pixels(), e.taps());
    let [m, n, k] = match kernel {
        ProductKernel::ConvGradInput => {
            [e.cin, e.batch * e.in_pixels(), e.cout * e.kernel[0] * e.kernel[1]]
        }
        ProductKernel::ConvGradWeight => [e.cout, taps, pixels],
        _ => [e.cout, pixels, taps],
    };
    // The gradient of the weight sums over pixels, which lie side by side.
    let along_terms = [true, kernel == ProductKernel::ConvGradWeight];
    Problem::new(kernel, [e.window.groups, m, n, k], along_terms, factors, limits)
}

/// Elements of scratch: the parts of split sums.
pub(super) fn scratch(
    kernel: ProductKernel,
    e: &Extents,
    factors: &[&TensorType],
    limits: &GpuLimits,
) -> usize {
    let problem = problem(kernel, e, factors, limits);
    let parts = choose(&problem, limits).parts;
    if parts == 1 { 0 } else { parts * problem.layers * problem.m * problem.n }
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
pub(super) fn launches(
    product: ProductKernel,
    entry: &'static str,
    names: [&'static str; 3],
    e: &Extents,
    call: &GpuCall<'_>,
) -> Vec<Launch> {
    let problem = problem(product, e, call.ins, call.limits);
    let Choice { tile, parts } = choose(&problem, call.limits);
    let Problem { m, n, .. } = problem;
    let tiles = [m.div_ceil(tile.rows), n.div_ceil(tile.cols)];
    let split = parts > 1;
    let kernel = Kernel::file(product.stem(), entry);
    let mut kernel = with_extents(tile.specialise(kernel, problem.along_terms, call.limits), e)
        .with("CIN", e.cin as u32)
        .with("COUT", e.cout as u32)
        .stored(names[0], call.ins[0])
        .stored(names[1], call.ins[1]);
    if !split {
        kernel = kernel.stored(names[2], call.outs[0]);
    }
    let first = Launch {
        kernel,
        dims: [e.batch, parts, tiles[0], tiles[1]].map(|n| n as u32).to_vec(),
        binds: vec![Bind::In(0), Bind::In(1), if split { Bind::Scratch } else { Bind::Out(0) }],
        grid: fold_groups(tiles[0] * tiles[1] * e.window.groups * parts),
    };
    if !split {
        return vec![first];
    }
    // [parts, outputs] → [outputs]: column sums.
    let outputs = e.window.groups * m * n;
    let sum = Launch {
        kernel: Kernel::file("reduce", "columns").stored("out", call.outs[0]),
        dims: vec![1, parts as u32, outputs as u32, parts as u32, 1],
        binds: vec![Bind::Scratch, Bind::Out(0)],
        grid: fold_groups(outputs.div_ceil(64)),
    };
    vec![first, sum]
}
