//! Convolution on the GPU: the three implicit products over one tile kernel.

use super::Extents;
use crate::ops::launch::fold_groups;
use crate::ops::{Bind, Kernel, Launch};

/// Side of a tile of the result.
const TILE: usize = 64;
/// Most parts that the weight's gradient is split into.
const MAX_PARTS: usize = 64;
/// Fewest terms of a sum that are worth a part of their own.
const MIN_TERMS: usize = 512;

/// Words of `Dims`, shared by all kernels of the family.
fn dims(e: &Extents, parts: usize) -> Vec<u32> {
    let w = &e.window;
    [
        e.batch,
        w.groups,
        e.cin,
        e.cout,
        e.input[0],
        e.input[1],
        e.output[0],
        e.output[1],
        e.kernel[0],
        e.kernel[1],
        w.stride[0],
        w.stride[1],
        w.padding[0],
        w.padding[2],
        w.dilation[0],
        w.dilation[1],
        parts,
    ]
    .iter()
    .map(|n| *n as u32)
    .collect()
}

fn grid(e: &Extents, m: usize, n: usize, parts: usize) -> [u32; 3] {
    fold_groups(m.div_ceil(TILE) * n.div_ceil(TILE) * e.window.groups * parts)
}

/// Operands x, w → y.
pub(super) fn forward(e: &Extents) -> Vec<Launch> {
    vec![Launch {
        kernel: Kernel::file("conv2d", "conv2d"),
        dims: dims(e, 1),
        binds: vec![Bind::In(0), Bind::In(1), Bind::Out(0)],
        grid: grid(e, e.cout, e.batch * e.out_pixels(), 1),
    }]
}

/// Operands w, dy → dx.
pub(super) fn grad_input(e: &Extents) -> Vec<Launch> {
    vec![Launch {
        kernel: Kernel::file("conv2d_grad_input", "grad_input"),
        dims: dims(e, 1),
        binds: vec![Bind::In(0), Bind::In(1), Bind::Out(0)],
        grid: grid(e, e.cin, e.batch * e.in_pixels(), 1),
    }]
}

/// Parts that the sums of the weight's gradient are split into, so that the card is full.
fn parts(e: &Extents) -> usize {
    const WANTED: usize = 512;
    let tiles = e.cout.div_ceil(TILE) * e.taps().div_ceil(TILE) * e.window.groups;
    let terms = e.batch * e.out_pixels();
    WANTED.div_ceil(tiles).min(terms.div_ceil(MIN_TERMS)).clamp(1, MAX_PARTS)
}

fn weights(e: &Extents) -> usize {
    e.window.groups * e.cout * e.taps()
}

/// Elements of the parts.
pub(super) fn weight_scratch(e: &Extents) -> usize {
    if parts(e) == 1 { 0 } else { parts(e) * weights(e) }
}

/// Operands x, dy → dw: in parts, which are then added in order.
pub(super) fn grad_weight(e: &Extents) -> Vec<Launch> {
    let parts = parts(e);
    let to = if parts == 1 { Bind::Out(0) } else { Bind::Scratch };
    let product = Launch {
        kernel: Kernel::file("conv2d_grad_weight", "grad_weight"),
        dims: dims(e, parts),
        binds: vec![Bind::In(0), Bind::In(1), to],
        grid: grid(e, e.cout, e.taps(), parts),
    };
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
