//! `pixel_shuffle` and `pixel_unshuffle` (Shi et al. 2016).

use super::{Layer, LayerCx, LayerError};
use crate::config::macros::options;
use crate::graph::ValueId;
use crate::ops::permute::exchange;

options! {
    /// Channels become pixels: input `[batch, channels·f², height, width]`, output `[batch,
    /// channels, height·f, width·f]`.
    pub struct PixelShuffle {
        /// f.
        upscale_factor: usize [1..],
    }
}

options! {
    /// Pixels become channels: input `[batch, channels, height·f, width·f]`, output `[batch,
    /// channels·f², height, width]`.
    pub struct PixelUnshuffle {
        /// f.
        downscale_factor: usize [1..],
    }
}

impl Layer for PixelShuffle {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let [batch, channels, height, width] = cx.image_dims(x)?;
        let f = self.upscale_factor;
        if channels % (f * f) != 0 {
            return Err(LayerError(format!(
                "cannot make {f}x{f} pixels of each {} of {channels} channels",
                f * f
            )));
        }
        let kept = channels / (f * f);
        // [kept, f, f', height, width] → [kept, f, height, width, f'] → [kept, height, f, width, f']
        let x = exchange(cx.graph, x, [batch * kept * f, f, height * width, 1])?;
        let x = exchange(cx.graph, x, [batch * kept, f, height, width * f])?;
        Ok(cx.graph.reshape(x, [batch, kept, height * f, width * f])?)
    }
}

impl Layer for PixelUnshuffle {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let [batch, channels, height, width] = cx.image_dims(x)?;
        let f = self.downscale_factor;
        if height % f != 0 || width % f != 0 {
            return Err(LayerError(format!(
                "cannot split {height}x{width} pixels into squares of {f}x{f}"
            )));
        }
        let (height, width) = (height / f, width / f);
        // [channels, height, f, width, f'] → [channels, f, height, width, f'] → [channels, f, f', …]
        let x = exchange(cx.graph, x, [batch * channels, height, f, width * f])?;
        let x = exchange(cx.graph, x, [batch * channels * f, height * width, f, 1])?;
        Ok(cx.graph.reshape(x, [batch, channels * f * f, height, width])?)
    }
}
