//! `conv_transpose2d`: the gradient of a convolution with respect to its input, as a layer.

use super::convolution::{add_bias, check_groups, weight};
use super::init::Initializer;
use super::{Layer, LayerCx, LayerError};
use crate::config::macros::options;
use crate::config::values::PerAxis;
use crate::graph::ValueId;
use crate::ops::conv2d::{Conv2dGradInput, Window};

options! {
    /// 2-d transposed convolution: each element of the input adds the kernel, times the element, to
    /// the output. Input `[batch, in_channels, height, width]`, output `[batch, out_channels, …]`
    /// with (size − 1)·stride − 2·padding + dilation·(kernel − 1) + output_padding + 1 rows and
    /// columns; `weight` of `[in_channels, out_channels / groups, kernel, kernel]`, `bias` of
    /// `[out_channels]`.
    pub struct ConvTranspose2d {
        /// Channels of the output.
        out_channels: usize [1..],
        /// Rows and columns of the kernel.
        kernel_size: PerAxis<usize, 2> [1..],
        /// Step between the places of the kernel.
        stride: PerAxis<usize, 2> [1..] = PerAxis([1; 2]),
        /// Elements cut off on all sides of the output.
        padding: PerAxis<usize, 2> = PerAxis([0; 2]),
        /// Elements added to the end of each axis of the output; below the stride.
        output_padding: PerAxis<usize, 2> = PerAxis([0; 2]),
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

/// Extent of the output along one axis.
///
/// # Errors
/// When nothing is left of it, or `output_padding` reaches the stride.
pub(super) fn output_size(
    size: usize,
    [kernel, stride, padding, output_padding, dilation]: [usize; 5],
) -> Result<usize, LayerError> {
    if output_padding >= stride {
        return Err(LayerError(format!(
            "`output_padding` must be below the stride {stride}, got {output_padding}"
        )));
    }
    let whole = (size - 1) * stride + dilation * (kernel - 1) + output_padding + 1;
    whole.checked_sub(2 * padding).filter(|size| *size > 0).ok_or_else(|| {
        LayerError(format!("`padding` of {padding} leaves nothing of an output of {whole}"))
    })
}

impl Layer for ConvTranspose2d {
    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let [_, channels, height, width] = cx.image_dims(x)?;
        check_groups(self.groups, channels, self.out_channels)?;
        let (kernel, stride, dilation) = (self.kernel_size.0, self.stride.0, self.dilation.0);
        let (padding, more) = (self.padding.0, self.output_padding.0);
        let axis = |a: usize| [kernel[a], stride[a], padding[a], more[a], dilation[a]];
        let size = [output_size(height, axis(0))?, output_size(width, axis(1))?];
        let shape = [channels, self.out_channels / self.groups, kernel[0], kernel[1]];
        let w = weight(cx, &shape, &self.init)?;
        let [rows, cols] = padding;
        let padding = [rows, rows, cols, cols];
        let window = Window { stride, padding, dilation, groups: self.groups };
        let y = cx.graph.op(Conv2dGradInput(window, size), &[w, x])?;
        if self.bias { add_bias(cx, y, &shape, &self.bias_init) } else { Ok(y) }
    }
}
