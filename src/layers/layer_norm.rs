//! `layer_norm` and `rms_norm`.

use super::{Layer, LayerCx, LayerError};
use crate::config::macros::options;
use crate::graph::ValueId;
use crate::ops::layer_norm::{self, Affine};
use crate::plan::Init;

options! {
    /// Normalises the last axis of each row (Ba et al. 2016), then scales by `weight` and shifts
    /// by `bias`. Input and output `[batch, …, features]`.
    pub struct LayerNorm {
        /// Added to the variance.
        eps: f64 [0.0..] = 1e-5,
        /// Whether there are a learned `weight` and `bias`.
        elementwise_affine: bool = true,
        /// Whether there is a `bias`, where there is a `weight`.
        bias: bool = true,
    }
}

options! {
    /// Divides each row by the root of its mean square (Zhang & Sennrich 2019), then scales by
    /// `weight`. Input and output `[batch, …, features]`.
    pub struct RmsNorm {
        /// Added to the mean square; PyTorch's default where left out, the f32 epsilon 1.19e-7.
        eps: Option<f64>,
        /// Whether there is a learned `weight`.
        elementwise_affine: bool = true,
    }
}

/// Features of an input of rows.
fn features(cx: &LayerCx<'_>, x: ValueId) -> Result<usize, LayerError> {
    let dims = cx.float_dims(x)?;
    let last = dims.last().copied().filter(|_| dims.len() > 1);
    last.ok_or_else(|| LayerError("needs an input of [batch, …, features]".into()))
}

impl Layer for LayerNorm {
    fn has_parameters(&self) -> bool {
        self.elementwise_affine
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let features = features(cx, x)?;
        let mut affine = Affine::default();
        if self.elementwise_affine {
            affine.gamma = Some(cx.param("weight", [features], Init::Constant(1.0), false)?);
            if self.bias {
                affine.beta = Some(cx.param("bias", [features], Init::Constant(0.0), false)?);
            }
        }
        let op = layer_norm::LayerNorm { eps: self.eps as f32, centred: true };
        Ok(layer_norm::layer_norm(cx.graph, x, affine, op)?)
    }
}

impl Layer for RmsNorm {
    fn has_parameters(&self) -> bool {
        self.elementwise_affine
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let features = features(cx, x)?;
        let mut affine = Affine::default();
        if self.elementwise_affine {
            affine.gamma = Some(cx.param("weight", [features], Init::Constant(1.0), false)?);
        }
        let eps = self.eps.map_or(f32::EPSILON, |eps| eps as f32);
        let op = layer_norm::LayerNorm { eps, centred: false };
        Ok(layer_norm::layer_norm(cx.graph, x, affine, op)?)
    }
}
