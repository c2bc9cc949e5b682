//! Maps on the GPU: one kernel generated per code, and the epilogue text of fused kernels.

use super::Map;
use crate::graph::Shape;
use crate::ops::{GpuCall, Launch, Real};

/// How an operand's element is found from the output's flat index i: Σ ((i / inner) mod extent) ·
/// stride over the terms. No terms: a scalar. One term (1, n, 1) with n the output's size: the
/// same index.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// `(inner, extent, stride)`.
    pub terms: Vec<(usize, usize, usize)>,
}

impl Access {
    /// The access of an operand of shape `of` in an output of shape `out`. Axes that are repeated
    /// have no term; neighbouring axes that are not are merged.
    pub fn new(of: &Shape, out: &Shape) -> Self {
        let lead = out.rank() - of.rank();
        let (inner, strides) = (out.strides(), of.strides());
        let mut terms: Vec<(usize, usize, usize)> = Vec::new();
        for axis in 0..of.rank() {
            let extent = of.dims()[axis];
            if extent == 1 {
                continue;
            }
            let term = (inner[lead + axis], extent, strides[axis]);
            match terms.last_mut() {
                Some(last) if last.0 == term.0 * extent && last.2 == term.2 * extent => {
                    *last = (term.0, last.1 * extent, term.2);
                }
                _ => terms.push(term),
            }
        }
        Access { terms }
    }

    /// Copies the elements for output indices `first..first + block.len()`.
    #[inline(always)]
    pub fn load<R: Real>(&self, values: &[R], first: usize, block: &mut [R]) {
        match self.terms.as_slice() {
            [] => block.fill(values[0]),
            [(1, extent, 1)] => {
                let mut at = first % extent;
                let mut done = 0;
                while done < block.len() {
                    let run = (extent - at).min(block.len() - done);
                    block[done..done + run].copy_from_slice(&values[at..at + run]);
                    done += run;
                    at = 0;
                }
            }
            terms => {
                for (offset, out) in block.iter_mut().enumerate() {
                    let i = first + offset;
                    let at: usize = terms
                        .iter()
                        .map(|(inner, extent, stride)| i / inner % extent * stride)
                        .sum();
                    *out = values[at];
                }
            }
        }
    }
}

/// The launch of a map.
pub(super) fn launch(_map: &Map, _call: &GpuCall<'_>) -> Launch {
    unreachable!("generated kernels come with fusion")
}

/// WGSL for `fn epilogue`.
pub fn epilogue_text(_map: &Map) -> String {
    unreachable!("epilogues come with fusion")
}
