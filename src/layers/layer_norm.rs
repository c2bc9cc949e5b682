//! `layer_norm`.

use super::{Layer, LayerCx, LayerError};
use crate::config::macros::options;
use crate::graph::ValueId;
use crate::ops::layer_norm;
use crate::plan::Init;

options! {
    /// Normalises the last axis of each row (Ba et al. 2016), then scales by `weight` and shifts
    /// by `bias`. Input and output `[batch, …, features]`.
    pub struct LayerNorm {
        /// Added to the variance.
        eps: f64 [0.0..] = 1e-5,
    }
}

impl Layer for LayerNorm {
    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let dims = cx.float_dims(x)?;
        let Some(&features) = dims.last().filter(|_| dims.len() > 1) else {
            return Err(LayerError("needs an input of [batch, …, features]".into()));
        };
        let weight = cx.param("weight", [features], Init::Constant(1.0), false)?;
        let bias = cx.param("bias", [features], Init::Constant(0.0), false)?;
        Ok(layer_norm::layer_norm(cx.graph, x, weight, bias, self.eps as f32)?)
    }
}
