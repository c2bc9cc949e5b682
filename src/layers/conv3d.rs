//! `conv3d`: windows over the depth become channels of a 2-d convolution, whose weight is the same
//! under another shape.

use super::convolution::{Padding, PaddingMode, add_bias, check_groups, weight};
use super::init::Initializer;
use super::{Layer, LayerCx, LayerError, batch_shape};
use crate::config::macros::options;
use crate::config::values::PerAxis;
use crate::graph::ValueId;
use crate::ops::{conv2d, permute, unfold};

options! {
    /// 3-d convolution (cross-correlation, as in PyTorch). Input `[batch, in_channels, depth,
    /// height, width]`, output `[batch, out_channels, …]`; `weight` of `[out_channels, in_channels
    /// / groups, kernel, kernel, kernel]`, `bias` of `[out_channels]`.
    pub struct Conv3d {
        /// Channels of the output.
        out_channels: usize [1..],
        /// Depth, rows and columns of the kernel.
        kernel_size: PerAxis<usize, 3> [1..],
        /// Step between windows.
        stride: PerAxis<usize, 3> [1..] = PerAxis([1; 3]),
        /// Elements around the input: a number for all sides, `[depth, vertical, horizontal]`, `[front, back, top, bottom, left, right]`, or `same`.
        padding: Padding<3> = Padding::NONE,
        /// What they are.
        padding_mode: PaddingMode = PaddingMode::Zeros,
        /// Step between the kernel's elements.
        dilation: PerAxis<usize, 3> [1..] = PerAxis([1; 3]),
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

impl Layer for Conv3d {
    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let dims = cx.float_dims(x)?;
        let [batch, channels, depth, height, width] = dims[..] else {
            let got = batch_shape(cx.graph.shape(x));
            return Err(LayerError(format!(
                "needs an input of [batch, channels, depth, height, width], got {got}"
            )));
        };
        check_groups(self.groups, channels, self.out_channels)?;
        let (kernel, stride, dilation) = (self.kernel_size.0, self.stride.0, self.dilation.0);
        let taken = channels / self.groups;
        let shape = [self.out_channels, taken, kernel[0], kernel[1], kernel[2]];
        let w = weight(cx, &shape, &self.init)?;
        let sides = self.padding.sides([depth, height, width], kernel, stride, dilation);
        let (x, [[front, back], rows, cols]) = self.padding_mode.apply(cx, x, sides)?;
        let [_, _, depth, height, width] = cx.graph.shape(x).dims()[..] else {
            unreachable!("padding keeps the rank")
        };
        // [batch, windows, channels, kernel depth, pixels]
        let slices = unfold::Unfold {
            view: [batch, channels, depth, height * width],
            kernel: kernel[0],
            stride: stride[0],
            before: front,
            after: back,
            dilation: dilation[0],
        };
        let slices = cx.graph.op(slices, &[x])?;
        let windows = cx.graph.shape(slices).dims()[1];
        let images = [batch * windows, channels * kernel[0], height, width];
        let images = cx.graph.reshape(slices, images)?;
        let flat = [self.out_channels, taken * kernel[0], kernel[1], kernel[2]];
        let w = cx.graph.reshape(w, flat)?;
        let op = conv2d::Conv2d::new(
            [stride[1], stride[2]],
            [rows[0], rows[1], cols[0], cols[1]],
            [dilation[1], dilation[2]],
            self.groups,
        );
        let y = cx.graph.op(op, &[images, w])?;
        let [height, width] = [2, 3].map(|axis| cx.graph.shape(y).dims()[axis]);
        let view = [batch, windows, self.out_channels, height * width];
        let y = permute::exchange(cx.graph, y, view)?;
        let y = cx.graph.reshape(y, [batch, self.out_channels, windows, height, width])?;
        if self.bias { add_bias(cx, y, &shape, &self.bias_init) } else { Ok(y) }
    }
}
