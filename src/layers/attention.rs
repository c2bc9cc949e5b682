//! `multi_head_attention`.

use super::init::{Fans, Initializer, torch_default};
use super::{Layer, LayerCx, LayerError, Mode, batch_shape};
use crate::config::macros::options;
use crate::graph::ValueId;
use crate::ops::{attention, map, matmul};
use crate::plan::Init;

options! {
    /// Scaled dot-product self-attention with several heads (Vaswani et al. 2017). Input and
    /// output `[batch, length, features]`. Parameters as in PyTorch: `in_proj_weight` of
    /// `[3·features, features]` (queries, keys, values), `in_proj_bias`, `out_proj.weight`,
    /// `out_proj.bias`.
    pub struct MultiHeadAttention {
        /// Number of heads; must divide the features.
        num_heads: usize [1..],
        /// Whether a position sees only itself and those before it.
        causal: bool = false,
        /// Learned biases in the projections.
        bias: bool = true,
        /// Dropout on the attention weights.
        dropout: f64 [0.0..1.0] = 0.0,
        /// First values of both weights; PyTorch's defaults where left out.
        init: Option<Initializer>,
    }
}

impl Layer for MultiHeadAttention {
    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let dims = cx.float_dims(x)?;
        let [batch, length, width] = dims[..] else {
            let got = batch_shape(cx.graph.shape(x));
            return Err(LayerError(format!(
                "needs an input of [batch, length, features], got {got}"
            )));
        };
        if width % self.num_heads != 0 {
            return Err(LayerError(format!(
                "cannot split {width} features into {} heads",
                self.num_heads
            )));
        }
        let xavier = (6.0 / (4 * width) as f64).sqrt() as f32;
        let fans = Fans { fan_in: width, fan_out: 3 * width };
        let weight = cx.weight(
            "in_proj_weight",
            [3 * width, width],
            fans,
            &self.init,
            Init::Uniform(xavier),
        )?;
        let rows = cx.graph.reshape(x, [batch * length, width])?;
        let mut qkv = matmul::matmul(cx.graph, rows, weight, false, true)?;
        if self.bias {
            let bias = cx.param("in_proj_bias", [3 * width], Init::Constant(0.0), false)?;
            qkv = map::add(cx.graph, qkv, bias)?;
        }
        let qkv = cx.graph.reshape(qkv, [batch, length, 3 * width])?;
        let stream = cx.stream();
        let dropout = if cx.mode == Mode::Train { self.dropout as f32 } else { 0.0 };
        let op =
            attention::Attention { heads: self.num_heads, causal: self.causal, dropout, stream };
        let mixed = cx.graph.apply(std::sync::Arc::new(op), &[qkv])?[0];
        let mixed = cx.graph.reshape(mixed, [batch * length, width])?;
        let fans = Fans { fan_in: width, fan_out: width };
        let weight =
            cx.weight("out_proj.weight", [width, width], fans, &self.init, torch_default(width))?;
        let mut y = matmul::matmul(cx.graph, mixed, weight, false, true)?;
        if self.bias {
            let bias = cx.param("out_proj.bias", [width], Init::Constant(0.0), false)?;
            y = map::add(cx.graph, y, bias)?;
        }
        Ok(cx.graph.reshape(y, [batch, length, width])?)
    }
}
