//! Pooling to a given size: `adaptive_avg_pool1d`, `adaptive_avg_pool2d`, `adaptive_max_pool1d`,
//! `adaptive_max_pool2d`, `global_avg_pool` and `global_max_pool`.

use super::pool::as_row;
use super::{Layer, LayerCx, LayerError, batch_shape};
use crate::config::macros::options;
use crate::config::values::PerAxis;
use crate::graph::{Graph, ShapeError, ValueId};
use crate::ops::pool2d::{AvgPool2d, MaxPool2d, Windows};
use crate::ops::{max, reduce};

options! {
    /// The mean of each of so many windows that the output has a given size. Input and output
    /// `[batch, channels, height, width]`; window o of n over a side of s goes from ⌊o·s/n⌋ up to
    /// ⌈(o + 1)·s/n⌉, as in PyTorch.
    pub struct AdaptiveAvgPool2d {
        /// Rows and columns of the output.
        output_size: PerAxis<usize, 2> [1..],
    }
}

options! {
    /// As `adaptive_avg_pool2d`. Input and output `[batch, channels, length]`.
    pub struct AdaptiveAvgPool1d {
        /// Length of the output.
        output_size: usize [1..],
    }
}

options! {
    /// As `adaptive_avg_pool2d`, with the largest element of each window.
    pub struct AdaptiveMaxPool2d {
        /// Rows and columns of the output.
        output_size: PerAxis<usize, 2> [1..],
    }
}

options! {
    /// As `adaptive_max_pool2d`. Input and output `[batch, channels, length]`.
    pub struct AdaptiveMaxPool1d {
        /// Length of the output.
        output_size: usize [1..],
    }
}

options! {
    /// The mean of each channel. Input `[batch, channels, …]`, output `[batch, channels]`.
    pub struct GlobalAvgPool {}
}

options! {
    /// The largest element of each channel. Input `[batch, channels, …]`, output `[batch,
    /// channels]`.
    pub struct GlobalMaxPool {}
}

/// What is made of a window.
#[derive(Clone, Copy)]
enum Kind {
    Avg,
    Max,
}

/// Pools `[batch, channels, height, width]`; a single window as a reduction over all of it.
fn adaptive(
    graph: &mut Graph,
    x: ValueId,
    kind: Kind,
    size: [usize; 2],
) -> Result<ValueId, ShapeError> {
    let windows = Windows::Adaptive(size);
    match (kind, size) {
        (Kind::Avg, [1, 1]) => reduce::mean(graph, x, &[2, 3]),
        (Kind::Max, [1, 1]) => max::max(graph, x, &[2, 3]),
        (Kind::Avg, _) => graph.op(AvgPool2d { windows, count_include_pad: false }, &[x]),
        (Kind::Max, _) => graph.op(MaxPool2d { windows }, &[x]),
    }
}

/// One number of each channel.
fn global(cx: &mut LayerCx<'_>, x: ValueId, kind: Kind) -> Result<ValueId, LayerError> {
    let dims = cx.float_dims(x)?;
    if dims.len() < 3 {
        let got = batch_shape(cx.graph.shape(x));
        return Err(LayerError(format!("needs an input of [batch, channels, …], got {got}")));
    }
    let pixels: usize = dims[2..].iter().product();
    let flat = cx.graph.reshape(x, [dims[0], dims[1], pixels])?;
    let pooled = match kind {
        Kind::Avg => reduce::mean(cx.graph, flat, &[2])?,
        Kind::Max => max::max(cx.graph, flat, &[2])?,
    };
    Ok(cx.graph.reshape(pooled, [dims[0], dims[1]])?)
}

impl Layer for AdaptiveAvgPool2d {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        cx.image_dims(x)?;
        Ok(adaptive(cx.graph, x, Kind::Avg, self.output_size.0)?)
    }
}

impl Layer for AdaptiveAvgPool1d {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        as_row(cx, x, |graph, x| adaptive(graph, x, Kind::Avg, [1, self.output_size]))
    }
}

impl Layer for AdaptiveMaxPool2d {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        cx.image_dims(x)?;
        Ok(adaptive(cx.graph, x, Kind::Max, self.output_size.0)?)
    }
}

impl Layer for AdaptiveMaxPool1d {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        as_row(cx, x, |graph, x| adaptive(graph, x, Kind::Max, [1, self.output_size]))
    }
}

impl Layer for GlobalAvgPool {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        global(cx, x, Kind::Avg)
    }
}

impl Layer for GlobalMaxPool {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        global(cx, x, Kind::Max)
    }
}
