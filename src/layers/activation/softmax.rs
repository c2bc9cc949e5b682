//! `softmax` and `log_softmax`.

use crate::config::macros::options;
use crate::graph::ValueId;
use crate::layers::{Layer, LayerCx, LayerError};
use crate::ops::{Op, permute, softmax};

options! {
    /// eˣ / Σ eˣ over an axis; zeros where all of x is −∞, as behind a mask. Not needed before
    /// `cross_entropy`, which takes logits.
    pub struct Softmax {
        /// The axis: 1 for channels, -1 for the last.
        dim: i64 = -1,
    }
}

options! {
    /// x − ln Σ eˣ over an axis: the logarithm of softmax.
    pub struct LogSoftmax {
        /// The axis: 1 for channels, -1 for the last.
        dim: i64 = -1,
    }
}

/// Applies an op of the last axis to axis `dim`.
fn along(
    cx: &mut LayerCx<'_>,
    x: ValueId,
    dim: i64,
    op: impl Op + 'static,
) -> Result<ValueId, LayerError> {
    cx.float_dims(x)?;
    let axis = cx.axis(x, dim)?;
    let last = permute::swap_with_last(cx.graph, x, axis)?;
    let y = cx.graph.op(op, &[last])?;
    Ok(permute::swap_with_last(cx.graph, y, axis)?)
}

impl Layer for Softmax {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        along(cx, x, self.dim, softmax::Softmax)
    }
}

impl Layer for LogSoftmax {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        along(cx, x, self.dim, softmax::LogSoftmax)
    }
}
