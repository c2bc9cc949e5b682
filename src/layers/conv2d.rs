//! `conv2d`.

use super::convolution::{Padding, PaddingMode, add_bias, check_groups, weight};
use super::init::Initializer;
use super::{Layer, LayerCx, LayerError};
use crate::config::macros::options;
use crate::config::values::PerAxis;
use crate::graph::ValueId;
use crate::ops::conv2d;

options! {
    /// 2-d convolution (cross-correlation, as in PyTorch). Input `[batch, in_channels, height,
    /// width]`, output `[batch, out_channels, …]`; `weight` of `[out_channels, in_channels /
    /// groups, kernel, kernel]`, `bias` of `[out_channels]`.
    pub struct Conv2d {
        /// Channels of the output.
        out_channels: usize [1..],
        /// Rows and columns of the kernel.
        kernel_size: PerAxis<usize, 2> [1..],
        /// Step between windows.
        stride: PerAxis<usize, 2> [1..] = PerAxis([1; 2]),
        /// Elements around the input: a number for all sides, `[vertical, horizontal]`, `[top, bottom, left, right]`, or `same`.
        padding: Padding<2> = Padding::NONE,
        /// What they are.
        padding_mode: PaddingMode = PaddingMode::Zeros,
        /// Step between the kernel's elements.
        dilation: PerAxis<usize, 2> [1..] = PerAxis([1; 2]),
        /// Groups of channels that are convolved apart.
        groups: usize [1..] = 1,
        /// Adds a learned bias to each channel.
        bias: bool = true,
        /// First values of the weight; PyTorch's default where left out.
        init: Option<Initializer>,
        /// First values of the bias; PyTorch's default where left out.
        bias_init: Option<Initializer>,
    }
}

impl Layer for Conv2d {
    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let [_, channels, height, width] = cx.image_dims(x)?;
        check_groups(self.groups, channels, self.out_channels)?;
        let (kernel, stride, dilation) = (self.kernel_size.0, self.stride.0, self.dilation.0);
        let shape = [self.out_channels, channels / self.groups, kernel[0], kernel[1]];
        let w = weight(cx, &shape, &self.init)?;
        let sides = self.padding.sides([height, width], kernel, stride, dilation);
        let (x, [[top, bottom], [left, right]]) = self.padding_mode.apply(cx, x, sides)?;
        let op = conv2d::Conv2d::new(stride, [top, bottom, left, right], dilation, self.groups);
        let y = cx.graph.op(op, &[x, w])?;
        if self.bias { add_bias(cx, y, &shape, &self.bias_init) } else { Ok(y) }
    }
}
