//! `conv_transpose1d`: a [`conv_transpose2d`](super::conv_transpose2d) of height 1.

use super::conv_transpose2d::output_size;
use super::conv1d::sequence_dims;
use super::convolution::{add_bias, check_groups, weight};
use super::init::Initializer;
use super::{Layer, LayerCx, LayerError};
use crate::config::macros::options;
use crate::graph::ValueId;
use crate::ops::conv2d::{Conv2dGradInput, Window};

options! {
    /// 1-d transposed convolution: each element of the input adds the kernel, times the element, to
    /// the output. Input `[batch, in_channels, length]`, output `[batch, out_channels, (length −
    /// 1)·stride − 2·padding + dilation·(kernel − 1) + output_padding + 1]`; `weight` of
    /// `[in_channels, out_channels / groups, kernel]`, `bias` of `[out_channels]`.
    pub struct ConvTranspose1d {
        /// Channels of the output.
        out_channels: usize [1..],
        /// Elements of the kernel.
        kernel_size: usize [1..],
        /// Step between the places of the kernel.
        stride: usize [1..] = 1,
        /// Elements cut off on both sides of the output.
        padding: usize = 0,
        /// Elements added to the end of the output; below the stride.
        output_padding: usize = 0,
        /// Step between the kernel's elements.
        dilation: usize [1..] = 1,
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

impl Layer for ConvTranspose1d {
    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let [batch, channels, length] = sequence_dims(cx, x)?;
        check_groups(self.groups, channels, self.out_channels)?;
        let (kernel, stride, dilation) = (self.kernel_size, self.stride, self.dilation);
        let (padding, more) = (self.padding, self.output_padding);
        let size = output_size(length, [kernel, stride, padding, more, dilation])?;
        let shape = [channels, self.out_channels / self.groups, kernel];
        let w = weight(cx, &shape, &self.init)?;
        let w = cx.graph.reshape(w, [shape[0], shape[1], 1, kernel])?;
        let image = cx.graph.reshape(x, [batch, channels, 1, length])?;
        let window = Window {
            stride: [1, stride],
            padding: [0, 0, padding, padding],
            dilation: [1, dilation],
            groups: self.groups,
        };
        let y = cx.graph.op(Conv2dGradInput(window, [1, size]), &[w, image])?;
        let y = cx.graph.reshape(y, [batch, self.out_channels, size])?;
        if self.bias { add_bias(cx, y, &shape, &self.bias_init) } else { Ok(y) }
    }
}
