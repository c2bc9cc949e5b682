//! `multi_head_attention`.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::dropout::Dropout;
use super::init::{Fans, Initializer, Nothing, torch_default};
use super::lengths::{self, Seen};
use super::{Layer, LayerCx, LayerError, Mode, batch_shape};
use crate::config::macros::{options, tagged};
use crate::graph::ValueId;
use crate::ops::concat::{self, Slice};
use crate::ops::map::{self, Code};
use crate::ops::softmax::Softmax;
use crate::ops::{attention, matmul, rope};
use crate::plan::Init;

options! {
    /// Turns pairs of features of queries and keys by angles that grow with the position (Su et al.
    /// 2021): feature j and feature j + head_dim/2 by position·theta^(−2j/head_dim), as in GPT-NeoX
    /// and Llama.
    pub struct Rope {
        /// The base of the wavelengths.
        theta: f64 [1.0..] = 10000.0,
    }
}

tagged! {
    /// How attention knows positions.
    pub enum Positions {
        /// Rotary positions.
        Rope(Rope) = "rope",
        /// Scores fall with the distance, by a slope of each head (Press et al. 2022).
        Alibi(Nothing) = "alibi",
    }
}

options! {
    /// Scaled dot-product attention with several heads (Vaswani et al. 2017). Input and output
    /// `[batch, length, features]`; with `from: [x, memory]`, queries come from the first, and keys
    /// and values from the second, `[batch, memory length, features]`. Parameters as in PyTorch:
    /// `in_proj_weight` of `[3·features, features]` (queries, keys, values), `in_proj_bias`,
    /// `out_proj.weight`, `out_proj.bias`.
    pub struct MultiHeadAttention {
        /// Number of heads; must divide the features where `head_dim` is left out.
        num_heads: usize [1..],
        /// Heads of keys and values, each for several of queries (Ainslie et al. 2023); must divide
        /// `num_heads`, and is the same where left out.
        num_kv_heads: Option<usize> [1..],
        /// Features of a head; features / `num_heads` where left out.
        head_dim: Option<usize> [1..],
        /// Whether a position sees only itself and those before it.
        causal: bool = false,
        /// How many positions a position then sees, itself included; all where left out.
        window: Option<usize> [1..],
        /// How it knows positions; not at all where left out.
        positions: Option<Positions>,
        /// The input or layer that gives the number of positions of each sample, `[batch]`: those
        /// beyond it are padding, which no position sees. Positions of the memory where there is
        /// one.
        lengths: Option<String>,
        /// The input or layer that is not zero where a position is padding, `[batch, length]`: no
        /// position sees it. Positions of the memory where there is one.
        key_padding_mask: Option<String>,
        /// The input or layer that numbers the documents that a sample is packed from, `[batch,
        /// length]`: a position sees only those of its own document; numbers below 0 are padding.
        documents: Option<String>,
        /// Learned biases in the projections.
        bias: bool = true,
        /// Dropout on the attention weights.
        dropout: f64 [0.0..1.0] = 0.0,
        /// First values of both weights; PyTorch's defaults where left out.
        init: Option<Initializer>,
    }
}

/// Heads and their extents.
#[derive(Clone, Copy)]
struct Heads {
    queries: usize,
    keys: usize,
    /// Features of one.
    dim: usize,
}

impl Heads {
    fn query_width(&self) -> usize {
        self.queries * self.dim
    }

    /// Of keys, and of values.
    fn key_width(&self) -> usize {
        self.keys * self.dim
    }

    fn width(&self) -> usize {
        self.query_width() + 2 * self.key_width()
    }
}

fn sequence(cx: &LayerCx<'_>, x: ValueId) -> Result<[usize; 3], LayerError> {
    cx.float_dims(x)?.as_slice().try_into().map_err(|_| {
        let got = batch_shape(cx.graph.shape(x));
        LayerError(format!("needs an input of [batch, length, features], got {got}"))
    })
}

impl Layer for MultiHeadAttention {
    fn inputs(&self) -> RangeInclusive<usize> {
        1..=2
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let [batch, length, features] = sequence(cx, x)?;
        let heads = self.heads(features)?;
        let width = heads.width();
        let xavier = (6.0 / (features + width) as f64).sqrt() as f32;
        let fans = Fans { fan_in: features, fan_out: width };
        let weight = cx.weight(
            "in_proj_weight",
            [width, features],
            fans,
            &self.init,
            Init::Uniform(xavier),
        )?;
        let bias = match self.bias {
            true => Some(cx.param("in_proj_bias", [width], Init::Constant(0.0), false)?),
            false => None,
        };
        let mixed = match cx.others[..] {
            [memory] => self.across(cx, x, memory, heads, weight, bias)?,
            _ => self.within(cx, x, heads, weight, bias)?,
        };
        let width = heads.query_width();
        let mixed = cx.graph.reshape(mixed, [batch * length, width])?;
        let fans = Fans { fan_in: width, fan_out: features };
        let default = torch_default(width);
        let weight = cx.weight("out_proj.weight", [features, width], fans, &self.init, default)?;
        let mut y = matmul::matmul(cx.graph, mixed, weight, false, true)?;
        if self.bias {
            let bias = cx.param("out_proj.bias", [features], Init::Constant(0.0), false)?;
            y = map::add(cx.graph, y, bias)?;
        }
        Ok(cx.graph.reshape(y, [batch, length, features])?)
    }
}

impl MultiHeadAttention {
    fn heads(&self, features: usize) -> Result<Heads, LayerError> {
        let queries = self.num_heads;
        let keys = self.num_kv_heads.unwrap_or(queries);
        if !queries.is_multiple_of(keys) {
            return Err(LayerError(format!(
                "cannot share {keys} heads of keys among {queries} of queries"
            )));
        }
        if self.head_dim.is_none() && !features.is_multiple_of(queries) {
            return Err(LayerError(format!(
                "cannot split {features} features into {queries} heads"
            )));
        }
        if self.window.is_some() && !self.causal {
            return Err(LayerError("`window` needs `causal: true`".into()));
        }
        let dim = self.head_dim.unwrap_or(features / queries);
        if matches!(self.positions, Some(Positions::Rope(_))) && !dim.is_multiple_of(2) {
            return Err(LayerError(format!("`rope` turns pairs, but a head has {dim} features")));
        }
        Ok(Heads { queries, keys, dim })
    }

    fn seen(&self) -> Seen<'_> {
        Seen {
            lengths: self.lengths.as_deref(),
            key_padding_mask: self.key_padding_mask.as_deref(),
            documents: self.documents.as_deref(),
        }
    }

    /// Queries, keys and values from one sequence: `[batch, length, query width]`.
    fn within(
        &self,
        cx: &mut LayerCx<'_>,
        x: ValueId,
        heads: Heads,
        weight: ValueId,
        bias: Option<ValueId>,
    ) -> Result<ValueId, LayerError> {
        let mut qkv = project(cx, x, weight, bias)?;
        if let Some(Positions::Rope(Rope { theta })) = self.positions {
            let turned = heads.query_width() + heads.key_width();
            qkv = rope::rope(cx.graph, qkv, heads.dim, turned, theta)?;
        }
        if heads.keys < heads.queries {
            qkv = repeat_keys(cx, qkv, heads)?;
        }
        let mut operands = vec![qkv];
        operands.extend(self.seen().segments(cx, x)?);
        let stream = cx.stream();
        let op = attention::Attention {
            heads: heads.queries,
            causal: self.causal,
            window: self.window,
            alibi: matches!(self.positions, Some(Positions::Alibi(_))),
            dropout: if cx.mode == Mode::Train { self.dropout as f32 } else { 0.0 },
            stream,
        };
        Ok(cx.graph.apply(Arc::new(op), &operands)?[0])
    }

    /// Queries from one sequence, keys and values from another: `[batch, length, query width]`.
    fn across(
        &self,
        cx: &mut LayerCx<'_>,
        x: ValueId,
        memory: ValueId,
        heads: Heads,
        weight: ValueId,
        bias: Option<ValueId>,
    ) -> Result<ValueId, LayerError> {
        let ([batch, length, features], [batch_too, _, features_too]) =
            (sequence(cx, x)?, sequence(cx, memory)?);
        if (batch, features) != (batch_too, features_too) {
            let [x, memory] = [x, memory].map(|v| batch_shape(cx.graph.shape(v)));
            return Err(LayerError(format!(
                "queries come from {x}, so a memory of {memory} does not fit"
            )));
        }
        if self.causal || self.positions.is_some() {
            return Err(LayerError(
                "`causal` and `positions` are for one sequence: leave them out with a memory"
                    .into(),
            ));
        }
        if self.documents.is_some() {
            return Err(LayerError(
                "`documents` is for one sequence: leave it out with a memory".into(),
            ));
        }
        let valid = self.seen().valid(cx, memory)?;
        let Heads { queries, keys, dim } = heads;
        let mut projection = |from: ValueId, start: usize, len: usize| {
            let mut cut = |value| cx.graph.op(Slice { axis: 0, start, len }, &[value]);
            let (weight, bias) = (cut(weight)?, bias.map(&mut cut).transpose()?);
            project(cx, from, weight, bias)
        };
        let q = projection(x, 0, heads.query_width())?;
        let kv = projection(memory, heads.query_width(), 2 * heads.key_width())?;
        let of = |head: usize| head / (queries / keys) * dim;
        let q = stack(cx, q, dim, (0..queries).map(|head| head * dim))?;
        let k = stack(cx, kv, dim, (0..queries).map(of))?;
        let v = stack(cx, kv, dim, (0..queries).map(|head| heads.key_width() + of(head)))?;
        let products = matmul::matmul(cx.graph, q, k, false, true)?;
        let scores = map::scale(cx.graph, products, (1.0 / (dim as f64).sqrt()) as f32)?;
        let p = match valid {
            Some(valid) => lengths::masked_softmax(cx.graph, scores, valid)?,
            None => cx.graph.op(Softmax, &[scores])?,
        };
        let p = Dropout { p: self.dropout }.build(cx, p)?;
        let mixed = matmul::matmul(cx.graph, p, v, false, false)?;
        let mixed = cx.graph.reshape(mixed, [queries, batch, length, dim])?;
        let mut side_by_side = Vec::new();
        for start in 0..queries {
            let one = cx.graph.op(Slice { axis: 0, start, len: 1 }, &[mixed])?;
            side_by_side.push(cx.graph.reshape(one, [batch, length, dim])?);
        }
        Ok(concat::concat(cx.graph, &side_by_side, 2)?)
    }
}

/// x·Wᵀ + b for each position.
fn project(
    cx: &mut LayerCx<'_>,
    x: ValueId,
    weight: ValueId,
    bias: Option<ValueId>,
) -> Result<ValueId, LayerError> {
    let [batch, length, features] = sequence(cx, x)?;
    let width = cx.graph.shape(weight).dims()[0];
    let rows = cx.graph.reshape(x, [batch * length, features])?;
    let mut y = matmul::matmul(cx.graph, rows, weight, false, true)?;
    if let Some(bias) = bias {
        y = map::add(cx.graph, y, bias)?;
    }
    Ok(cx.graph.reshape(y, [batch, length, width])?)
}

/// Columns of `[batch, length, width]` from each start on, one head above another: `[heads·batch,
/// length, dim]`.
fn stack(
    cx: &mut LayerCx<'_>,
    value: ValueId,
    dim: usize,
    starts: impl Iterator<Item = usize>,
) -> Result<ValueId, LayerError> {
    let cut = |start| cx.graph.op(Slice { axis: 2, start, len: dim }, &[value]);
    let heads: Vec<ValueId> = starts.map(cut).collect::<Result<_, _>>()?;
    Ok(concat::concat(cx.graph, &heads, 0)?)
}

/// Packed projections with a head of keys and of values for each of queries.
fn repeat_keys(cx: &mut LayerCx<'_>, qkv: ValueId, heads: Heads) -> Result<ValueId, LayerError> {
    let [batch, length, _] = sequence(cx, qkv)?;
    let (start, len) = (heads.query_width(), 2 * heads.key_width());
    let q = cx.graph.op(Slice { axis: 2, start: 0, len: start }, &[qkv])?;
    let kv = cx.graph.op(Slice { axis: 2, start, len }, &[qkv])?;
    let rows = batch * length * 2 * heads.keys;
    let kv = cx.graph.reshape(kv, [rows, 1, heads.dim])?;
    let again = Code::of(|code| code.input(0));
    let kv = map::apply(cx.graph, again, &[kv], [rows, heads.queries / heads.keys, heads.dim])?;
    let kv = cx.graph.reshape(kv, [batch, length, 2 * heads.query_width()])?;
    Ok(concat::concat(cx.graph, &[q, kv], 2)?)
}
