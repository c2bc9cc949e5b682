//! `max_pool2d`, `avg_pool2d` and `global_avg_pool`.

use super::{Layer, LayerCx, LayerError};
use crate::config::macros::options;
use crate::config::values::PerAxis;
use crate::graph::ValueId;
use crate::ops::{pool2d, reduce};

options! {
    /// The largest element of each window. Input and output `[batch, channels, height, width]`.
    pub struct MaxPool2d {
        /// Rows and columns of the window.
        kernel_size: PerAxis<usize, 2> [1..],
        /// Step between windows; the window's size where left out.
        stride: Option<PerAxis<usize, 2>>,
        /// Rows and columns of −∞ around the input, at most half a window.
        padding: PerAxis<usize, 2> = PerAxis([0, 0]),
    }
}

options! {
    /// The mean of each window, padding counted as zeros. Input and output `[batch, channels,
    /// height, width]`.
    pub struct AvgPool2d {
        /// Rows and columns of the window.
        kernel_size: PerAxis<usize, 2> [1..],
        /// Step between windows; the window's size where left out.
        stride: Option<PerAxis<usize, 2>>,
        /// Rows and columns of zeros around the input, at most half a window.
        padding: PerAxis<usize, 2> = PerAxis([0, 0]),
        /// Whether padding counts in the divisor.
        count_include_pad: bool = true,
    }
}

options! {
    /// The mean of each channel's image. Input `[batch, channels, height, width]`, output
    /// `[batch, channels]`.
    pub struct GlobalAvgPool {}
}

/// The stride, once it is known to be at least 1, and the padding at most half a window.
fn window(
    kernel: PerAxis<usize, 2>,
    stride: Option<PerAxis<usize, 2>>,
    padding: PerAxis<usize, 2>,
) -> Result<[usize; 2], LayerError> {
    let stride = stride.unwrap_or(kernel).0;
    if stride.contains(&0) {
        return Err(LayerError("`stride` must be at least 1".into()));
    }
    if (0..2).any(|axis| padding.0[axis] * 2 > kernel.0[axis]) {
        return Err(LayerError(format!(
            "`padding` {:?} is more than half of the window {:?}",
            padding.0, kernel.0
        )));
    }
    Ok(stride)
}

impl Layer for MaxPool2d {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        cx.image_dims(x)?;
        let stride = window(self.kernel_size, self.stride, self.padding)?;
        let op = pool2d::MaxPool2d { kernel: self.kernel_size.0, stride, padding: self.padding.0 };
        Ok(cx.graph.op(op, &[x])?)
    }
}

impl Layer for AvgPool2d {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        cx.image_dims(x)?;
        let stride = window(self.kernel_size, self.stride, self.padding)?;
        let op = pool2d::AvgPool2d {
            kernel: self.kernel_size.0,
            stride,
            padding: self.padding.0,
            count_include_pad: self.count_include_pad,
        };
        Ok(cx.graph.op(op, &[x])?)
    }
}

impl Layer for GlobalAvgPool {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let [batch, channels, height, width] = cx.image_dims(x)?;
        let flat = cx.graph.reshape(x, [batch, channels, height * width])?;
        let mean = reduce::mean(cx.graph, flat, &[2])?;
        Ok(cx.graph.reshape(mean, [batch, channels])?)
    }
}
