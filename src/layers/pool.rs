//! Pooling: `max_pool1d`, `max_pool2d`, `avg_pool1d`, `avg_pool2d`, `lp_pool1d`, `lp_pool2d`. Those of
//! one axis are those of two over images of one row.

use super::{Layer, LayerCx, LayerError, batch_shape};
use crate::config::macros::options;
use crate::config::values::PerAxis;
use crate::graph::{Graph, ShapeError, ValueId};
use crate::ops::map::{self, Binary, Code, Unary};
use crate::ops::pool2d::{AvgPool2d as AvgOp, MaxPool2d as MaxOp, Windows};

options! {
    /// The largest element of each window. Input and output `[batch, channels, height, width]`.
    pub struct MaxPool2d {
        /// Rows and columns of the window.
        kernel_size: PerAxis<usize, 2> [1..],
        /// Step between windows; the window's size where left out.
        stride: Option<PerAxis<usize, 2>>,
        /// Rows and columns of −∞ around the input, at most half of `kernel_size`.
        padding: PerAxis<usize, 2> = PerAxis([0, 0]),
        /// Step between the rows and the columns of a window.
        dilation: PerAxis<usize, 2> [1..] = PerAxis([1, 1]),
        /// Whether a last window may reach beyond the padded input.
        ceil_mode: bool = false,
    }
}

options! {
    /// The largest element of each window. Input and output `[batch, channels, length]`.
    pub struct MaxPool1d {
        /// Length of the window.
        kernel_size: usize [1..],
        /// Step between windows; the window's length where left out.
        stride: Option<usize>,
        /// Elements of −∞ at both ends of the input, at most half of `kernel_size`.
        padding: usize = 0,
        /// Step between the elements of a window.
        dilation: usize [1..] = 1,
        /// Whether a last window may reach beyond the padded input.
        ceil_mode: bool = false,
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
        /// Whether a last window may reach beyond the padded input.
        ceil_mode: bool = false,
        /// Whether padding counts in the divisor.
        count_include_pad: bool = true,
    }
}

options! {
    /// The mean of each window, padding counted as zeros. Input and output `[batch, channels,
    /// length]`.
    pub struct AvgPool1d {
        /// Length of the window.
        kernel_size: usize [1..],
        /// Step between windows; the window's length where left out.
        stride: Option<usize>,
        /// Zeros at both ends of the input, at most half a window.
        padding: usize = 0,
        /// Whether a last window may reach beyond the padded input.
        ceil_mode: bool = false,
        /// Whether padding counts in the divisor.
        count_include_pad: bool = true,
    }
}

options! {
    /// (Σ xᵖ)^{1/p} of each window. Input and output `[batch, channels, height, width]`. With p above
    /// 1 a window whose sum is not positive gives almost 0, and has no gradient.
    pub struct LpPool2d {
        /// p.
        norm_type: u32 [1..=16],
        /// Rows and columns of the window.
        kernel_size: PerAxis<usize, 2> [1..],
        /// Step between windows; the window's size where left out.
        stride: Option<PerAxis<usize, 2>>,
        /// Whether a last window may reach beyond the input.
        ceil_mode: bool = false,
    }
}

options! {
    /// (Σ xᵖ)^{1/p} of each window. Input and output `[batch, channels, length]`. With p above 1 a
    /// window whose sum is not positive gives almost 0, and has no gradient.
    pub struct LpPool1d {
        /// p.
        norm_type: u32 [1..=16],
        /// Length of the window.
        kernel_size: usize [1..],
        /// Step between windows; the window's length where left out.
        stride: Option<usize>,
        /// Whether a last window may reach beyond the input.
        ceil_mode: bool = false,
    }
}

/// The windows, once the stride is known to be at least 1 and the padding at most half of one.
fn windows(
    kernel: [usize; 2],
    stride: Option<[usize; 2]>,
    padding: [usize; 2],
    dilation: [usize; 2],
    ceil_mode: bool,
) -> Result<Windows, LayerError> {
    let stride = stride.unwrap_or(kernel);
    if stride.contains(&0) {
        return Err(LayerError("`stride` must be at least 1".into()));
    }
    if (0..2).any(|axis| padding[axis] * 2 > kernel[axis]) {
        return Err(LayerError(format!(
            "`padding` {padding:?} is more than half of the window {kernel:?}"
        )));
    }
    Ok(Windows::Strided { kernel, stride, padding, dilation, ceil_mode })
}

/// As [`windows`], along images of one row.
fn windows1d(
    kernel: usize,
    stride: Option<usize>,
    padding: usize,
    dilation: usize,
    ceil_mode: bool,
) -> Result<Windows, LayerError> {
    windows([1, kernel], stride.map(|stride| [1, stride]), [0, padding], [1, dilation], ceil_mode)
}

/// Pools an input of `[batch, channels, length]` as images of one row.
pub(super) fn as_row(
    cx: &mut LayerCx<'_>,
    x: ValueId,
    pool: impl FnOnce(&mut Graph, ValueId) -> Result<ValueId, ShapeError>,
) -> Result<ValueId, LayerError> {
    let dims = cx.float_dims(x)?;
    let [batch, channels, length] = dims[..] else {
        let got = batch_shape(cx.graph.shape(x));
        return Err(LayerError(format!("needs an input of [batch, channels, length], got {got}")));
    };
    let image = cx.graph.reshape(x, [batch, channels, 1, length])?;
    let pooled = pool(cx.graph, image)?;
    let length = cx.graph.shape(pooled).last();
    Ok(cx.graph.reshape(pooled, [batch, channels, length])?)
}

/// (area · mean of xᵖ over each window)^{1/p}.
fn lp_pool(graph: &mut Graph, x: ValueId, p: u32, windows: Windows) -> Result<ValueId, ShapeError> {
    let powers = map::unary(graph, x, |code, x| (1..p).fold(x, |power, _| code.mul(power, x)))?;
    let means = graph.op(AvgOp { windows, count_include_pad: true }, &[powers])?;
    let area = match windows {
        Windows::Strided { kernel, .. } => kernel[0] * kernel[1],
        Windows::Adaptive(_) => 1,
    };
    map::unary(graph, means, |code, mean| {
        let sum = code.scale(mean, area as f32);
        if p == 1 { sum } else { root(code, sum, p) }
    })
}

/// x^{1/p} of what is positive.
fn root(code: &mut Code, x: map::Reg, p: u32) -> map::Reg {
    let least = code.constant(1e-30);
    let positive = code.binary(Binary::Max, x, least);
    if p == 2 {
        return code.unary(Unary::Sqrt, positive);
    }
    let log = code.unary(Unary::Log, positive);
    let part = code.scale(log, 1.0 / p as f32);
    code.unary(Unary::Exp, part)
}

impl Layer for MaxPool2d {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        cx.image_dims(x)?;
        let stride = self.stride.map(|stride| stride.0);
        let windows =
            windows(self.kernel_size.0, stride, self.padding.0, self.dilation.0, self.ceil_mode)?;
        Ok(cx.graph.op(MaxOp { windows }, &[x])?)
    }
}

impl Layer for MaxPool1d {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let windows =
            windows1d(self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)?;
        as_row(cx, x, |graph, x| graph.op(MaxOp { windows }, &[x]))
    }
}

impl Layer for AvgPool2d {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        cx.image_dims(x)?;
        let stride = self.stride.map(|stride| stride.0);
        let windows = windows(self.kernel_size.0, stride, self.padding.0, [1, 1], self.ceil_mode)?;
        let op = AvgOp { windows, count_include_pad: self.count_include_pad };
        Ok(cx.graph.op(op, &[x])?)
    }
}

impl Layer for AvgPool1d {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let windows = windows1d(self.kernel_size, self.stride, self.padding, 1, self.ceil_mode)?;
        let op = AvgOp { windows, count_include_pad: self.count_include_pad };
        as_row(cx, x, |graph, x| graph.op(op, &[x]))
    }
}

impl Layer for LpPool2d {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        cx.image_dims(x)?;
        let stride = self.stride.map(|stride| stride.0);
        let windows = windows(self.kernel_size.0, stride, [0, 0], [1, 1], self.ceil_mode)?;
        Ok(lp_pool(cx.graph, x, self.norm_type, windows)?)
    }
}

impl Layer for LpPool1d {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let windows = windows1d(self.kernel_size, self.stride, 0, 1, self.ceil_mode)?;
        as_row(cx, x, |graph, x| lp_pool(graph, x, self.norm_type, windows))
    }
}
