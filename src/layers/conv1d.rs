//! `conv1d`: a [`conv2d`](super::conv2d) of height 1.

use super::convolution::{Padding, PaddingMode, add_bias, check_groups, weight};
use super::init::Initializer;
use super::{Layer, LayerCx, LayerError, batch_shape};
use crate::config::macros::options;
use crate::graph::ValueId;
use crate::ops::conv2d;

options! {
    /// 1-d convolution (cross-correlation, as in PyTorch). Input `[batch, in_channels, length]`,
    /// output `[batch, out_channels, …]`; `weight` of `[out_channels, in_channels / groups,
    /// kernel]`, `bias` of `[out_channels]`.
    pub struct Conv1d {
        /// Channels of the output.
        out_channels: usize [1..],
        /// Elements of the kernel.
        kernel_size: usize [1..],
        /// Step between windows.
        stride: usize [1..] = 1,
        /// Elements around the input: a number for both sides, `[left, right]`, or `same`.
        padding: Padding<1> = Padding::NONE,
        /// What they are.
        padding_mode: PaddingMode = PaddingMode::Zeros,
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

/// Extents of a batch of sequences, `[batch, channels, length]`.
///
/// # Errors
/// When the value has another rank.
pub(super) fn sequence_dims(cx: &LayerCx<'_>, x: ValueId) -> Result<[usize; 3], LayerError> {
    let dims = cx.float_dims(x)?;
    dims.as_slice().try_into().map_err(|_| {
        LayerError(format!(
            "needs an input of [batch, channels, length], got {}",
            batch_shape(cx.graph.shape(x))
        ))
    })
}

impl Layer for Conv1d {
    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let [batch, channels, length] = sequence_dims(cx, x)?;
        check_groups(self.groups, channels, self.out_channels)?;
        let (kernel, stride, dilation) = (self.kernel_size, self.stride, self.dilation);
        let shape = [self.out_channels, channels / self.groups, kernel];
        let w = weight(cx, &shape, &self.init)?;
        let sides = self.padding.sides([length], [kernel], [stride], [dilation]);
        let (x, [[left, right]]) = self.padding_mode.apply(cx, x, sides)?;
        let length = cx.graph.shape(x).last();
        let image = cx.graph.reshape(x, [batch, channels, 1, length])?;
        let w = cx.graph.reshape(w, [shape[0], shape[1], 1, kernel])?;
        let op = conv2d::Conv2d::new([1, stride], [0, 0, left, right], [1, dilation], self.groups);
        let y = cx.graph.op(op, &[image, w])?;
        let length = cx.graph.shape(y).last();
        let y = cx.graph.reshape(y, [batch, self.out_channels, length])?;
        if self.bias { add_bias(cx, y, &shape, &self.bias_init) } else { Ok(y) }
    }
}
