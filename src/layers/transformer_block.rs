//! `transformer_block`.

use std::ops::RangeInclusive;

use super::activation::{Gelu, Relu, Silu};
use super::attention::{MultiHeadAttention, Positions};
use super::dropout::Dropout;
use super::init::Initializer;
use super::layer_norm::{LayerNorm, RmsNorm};
use super::linear::Linear;
use super::{Layer, LayerCx, LayerError};
use crate::config::decode::all_defaults;
use crate::config::macros::{choices, options};
use crate::graph::ValueId;
use crate::ops::concat::Slice;
use crate::ops::map;

choices! {
    /// What stands between the two linear layers of a transformer block.
    pub enum Between {
        /// max(x, 0).
        Relu = "relu",
        /// x·Φ(x).
        Gelu = "gelu",
        /// x·σ(x).
        Silu = "silu",
        /// silu(a)·b of the halves a and b of a first layer twice as wide (Shazeer 2020).
        Swiglu = "swiglu",
        /// gelu(a)·b of the halves a and b of a first layer twice as wide (Shazeer 2020).
        Geglu = "geglu",
    }
}

choices! {
    /// How a transformer block normalises.
    pub enum Norm {
        /// By mean and variance, with `weight` and `bias`.
        LayerNorm = "layer_norm",
        /// By the mean square, with `weight` (Zhang & Sennrich 2019).
        RmsNorm = "rms_norm",
    }
}

options! {
    /// Attention, then two linear layers for each position, each part added to its input (Vaswani
    /// et al. 2017). Input and output `[batch, length, features]`; with `from: [x, memory]`, a part
    /// that attends to the memory stands between them. Parameters as in PyTorch's
    /// `TransformerEncoderLayer` and, with a memory, `TransformerDecoderLayer`: those of
    /// `self_attn`, `multihead_attn`, `linear1`, `linear2`, `norm1`, `norm2` and `norm3`.
    pub struct TransformerBlock {
        /// Number of heads; must divide the features where `head_dim` is left out.
        num_heads: usize [1..],
        /// Features between the two linear layers.
        dim_feedforward: usize [1..] = 2048,
        /// Dropout on attention weights, between the linear layers, and on the result of each part.
        dropout: f64 [0.0..1.0] = 0.1,
        /// What stands between the linear layers.
        activation: Between = Between::Relu,
        /// Whether each part normalises its input instead of the sum.
        norm_first: bool = false,
        /// How parts are normalised.
        norm: Norm = Norm::LayerNorm,
        /// Added to the variance or mean square.
        eps: f64 [0.0..] = 1e-5,
        /// Whether a position sees only itself and those before it.
        causal: bool = false,
        /// How many positions a position then sees, itself included; all where left out.
        window: Option<usize> [1..],
        /// How attention knows positions; not at all where left out.
        positions: Option<Positions>,
        /// Heads of keys and values, each for several of queries; `num_heads` where left out.
        num_kv_heads: Option<usize> [1..],
        /// Features of a head; features / `num_heads` where left out.
        head_dim: Option<usize> [1..],
        /// The input or layer that gives the number of positions of each sample, `[batch]`: those
        /// beyond it are padding, which no position sees.
        lengths: Option<String>,
        /// The input or layer that is not zero where a position is padding, `[batch, length]`: no
        /// position sees it.
        key_padding_mask: Option<String>,
        /// The input or layer that numbers the documents that a sample is packed from, `[batch,
        /// length]`: a position sees only those of its own document; numbers below 0 are padding.
        documents: Option<String>,
        /// As `lengths`, of the memory.
        memory_lengths: Option<String>,
        /// As `key_padding_mask`, of the memory.
        memory_key_padding_mask: Option<String>,
        /// Learned biases in the projections and linear layers.
        bias: bool = true,
        /// First values of the weights of projections and linear layers; PyTorch's defaults where
        /// left out.
        init: Option<Initializer>,
    }
}

impl Layer for TransformerBlock {
    fn inputs(&self) -> RangeInclusive<usize> {
        1..=2
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let attention = MultiHeadAttention {
            num_heads: self.num_heads,
            num_kv_heads: self.num_kv_heads,
            head_dim: self.head_dim,
            causal: self.causal,
            window: self.window,
            positions: self.positions.clone(),
            lengths: self.lengths.clone(),
            key_padding_mask: self.key_padding_mask.clone(),
            documents: self.documents.clone(),
            bias: self.bias,
            dropout: self.dropout,
            init: self.init.clone(),
        };
        let memory = cx.others.clone();
        let of_memory = self.memory_lengths.is_some() || self.memory_key_padding_mask.is_some();
        if memory.is_empty() && of_memory {
            return Err(LayerError(
                "`memory_lengths` and `memory_key_padding_mask` need a memory: `from: [x, memory]`"
                    .into(),
            ));
        }
        let mut y =
            self.part(cx, x, "norm1", |cx, x| cx.inside("self_attn", &attention, x, vec![]))?;
        let mut last = "norm2";
        if !memory.is_empty() {
            let across = MultiHeadAttention {
                causal: false,
                window: None,
                positions: None,
                lengths: self.memory_lengths.clone(),
                key_padding_mask: self.memory_key_padding_mask.clone(),
                documents: None,
                ..attention
            };
            y = self.part(cx, y, last, |cx, y| cx.inside("multihead_attn", &across, y, memory))?;
            last = "norm3";
        }
        self.part(cx, y, last, |cx, y| self.feed_forward(cx, y))
    }
}

impl TransformerBlock {
    /// Adds what `body` makes of x to x, with a norm before or after.
    fn part(
        &self,
        cx: &mut LayerCx<'_>,
        x: ValueId,
        norm: &str,
        body: impl FnOnce(&mut LayerCx<'_>, ValueId) -> Result<ValueId, LayerError>,
    ) -> Result<ValueId, LayerError> {
        let input = if self.norm_first { self.norm(cx, x, norm)? } else { x };
        let y = body(cx, input)?;
        let y = Dropout { p: self.dropout }.build(cx, y)?;
        let sum = map::add(cx.graph, x, y)?;
        if self.norm_first { Ok(sum) } else { self.norm(cx, sum, norm) }
    }

    fn norm(&self, cx: &mut LayerCx<'_>, x: ValueId, name: &str) -> Result<ValueId, LayerError> {
        match self.norm {
            Norm::LayerNorm => {
                let mut norm: LayerNorm = all_defaults();
                norm.eps = self.eps;
                cx.inside(name, &norm, x, vec![])
            }
            Norm::RmsNorm => {
                let norm = RmsNorm { eps: Some(self.eps), elementwise_affine: true };
                cx.inside(name, &norm, x, vec![])
            }
        }
    }

    fn feed_forward(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let linear = |out_features: usize| Linear {
            out_features,
            bias: self.bias,
            init: self.init.clone(),
            bias_init: None,
        };
        let features = cx.graph.shape(x).last();
        let between = self.dim_feedforward;
        let gated = matches!(self.activation, Between::Swiglu | Between::Geglu);
        let first = linear(if gated { 2 * between } else { between });
        let mut y = cx.inside("linear1", &first, x, vec![])?;
        let activation: &dyn Layer = match self.activation {
            Between::Relu => &Relu {},
            Between::Gelu | Between::Geglu => &all_defaults::<Gelu>(),
            Between::Silu | Between::Swiglu => &Silu {},
        };
        if gated {
            let axis = cx.graph.shape(y).rank() - 1;
            let half = |start| Slice { axis, start, len: between };
            let (a, b) = (cx.graph.op(half(0), &[y])?, cx.graph.op(half(between), &[y])?);
            let a = activation.build(cx, a)?;
            y = map::mul(cx.graph, a, b)?;
        } else {
            y = activation.build(cx, y)?;
        }
        let y = Dropout { p: self.dropout }.build(cx, y)?;
        cx.inside("linear2", &linear(features), y, vec![])
    }
}
