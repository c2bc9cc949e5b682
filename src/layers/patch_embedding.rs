//! `patch_embedding`.

use super::convolution::{bias, weight};
use super::init::Initializer;
use super::{Layer, LayerCx, LayerError};
use crate::config::macros::options;
use crate::config::values::PerAxis;
use crate::graph::ValueId;
use crate::ops::unfold::Unfold;
use crate::ops::{map, matmul};

options! {
    /// A vector for each patch of an image, by one linear map (Dosovitskiy et al. 2021): a
    /// convolution whose stride is its kernel. Input `[batch, channels, height, width]`, output
    /// `[batch, patches, embed_dim]`, patches row by row; `weight` of `[embed_dim, channels, patch,
    /// patch]`, `bias` of `[embed_dim]`.
    pub struct PatchEmbedding {
        /// Rows and columns of a patch.
        patch_size: PerAxis<usize, 2> [1..],
        /// Size of a vector.
        embed_dim: usize [1..],
        /// Adds a learned bias.
        bias: bool = true,
        /// First values of the weight; PyTorch's default where left out.
        init: Option<Initializer>,
        /// First values of the bias; PyTorch's default where left out.
        bias_init: Option<Initializer>,
    }
}

impl Layer for PatchEmbedding {
    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let [batch, channels, height, width] = cx.image_dims(x)?;
        let [rows, cols] = self.patch_size.0;
        if height % rows != 0 || width % cols != 0 {
            return Err(LayerError(format!(
                "cannot split {height}x{width} pixels into patches of {rows}x{cols}"
            )));
        }
        let (down, across) = (height / rows, width / cols);
        let cut = |view: [usize; 4], size: usize| Unfold {
            view,
            kernel: size,
            stride: size,
            before: 0,
            after: 0,
            dilation: 1,
        };
        // [batch, down, channels, rows, width], then [batch, down, across, channels, rows, cols].
        let bands = cx.graph.op(cut([batch, channels, height, width], rows), &[x])?;
        let view = [batch * down, channels * rows, width, 1];
        let patches = cx.graph.op(cut(view, cols), &[bands])?;
        let size = channels * rows * cols;
        let patches = cx.graph.reshape(patches, [batch * down * across, size])?;
        let shape = [self.embed_dim, channels, rows, cols];
        let w = weight(cx, &shape, &self.init)?;
        let w = cx.graph.reshape(w, [self.embed_dim, size])?;
        let mut y = matmul::matmul(cx.graph, patches, w, false, true)?;
        if self.bias {
            let bias = bias(cx, self.embed_dim, &shape, &self.bias_init)?;
            y = map::add(cx.graph, y, bias)?;
        }
        Ok(cx.graph.reshape(y, [batch, down * across, self.embed_dim])?)
    }
}
