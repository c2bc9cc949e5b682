//! `embedding` and `positional_embedding`.

use std::sync::Arc;

use super::init::{Fans, Initializer};
use super::{Layer, LayerCx, LayerError, batch_shape};
use crate::config::macros::{choices, options};
use crate::graph::{DType, ValueId};
use crate::ops::{embedding, map};
use crate::plan::Init;

options! {
    /// A learned vector for each id. Input ids `[batch, …]`, output `[batch, …, embedding_dim]`;
    /// `weight` of `[num_embeddings, embedding_dim]`. Whole numbers up to 16,777,216, as columns of
    /// tables give them, are ids too; any other number gives NaN, which stops the run.
    pub struct Embedding {
        /// Number of ids.
        num_embeddings: usize [1..],
        /// Size of a vector.
        embedding_dim: usize [1..],
        /// An id that stands for nothing: its vector starts as zeros and is not trained.
        padding_idx: Option<usize>,
        /// First values; normal with standard deviation 1 where left out, as in PyTorch.
        init: Option<Initializer>,
    }
}

choices! {
    /// Where the vectors of positions come from.
    pub enum Positions {
        /// They are learned.
        Learned = "learned",
        /// Sines and cosines of falling frequencies (Vaswani et al. 2017).
        Sinusoidal = "sinusoidal",
    }
}

options! {
    /// Adds a vector for each position. Input and output `[batch, length, features]`; learned ones
    /// are the `weight` of `[max_length, features]`.
    pub struct PositionalEmbedding {
        /// Whether the vectors are learned.
        kind: Positions = Positions::Learned,
        /// The longest input; the input's own length where left out.
        max_length: Option<usize>,
        /// First values of learned vectors; normal with standard deviation 1 where left out.
        init: Option<Initializer>,
    }
}

const STANDARD: Init = Init::Normal { mean: 0.0, std: 1.0 };

/// `[length, features]`: sin(p / 10000^(2i / features)) at position p and feature 2i, and the cosine
/// of the same at 2i + 1 (Vaswani et al. 2017, section 3.5).
fn sinusoids(length: usize, features: usize) -> Arc<[f32]> {
    let element = |at: usize| {
        let (position, feature) = (at / features, at % features);
        let power = (feature - feature % 2) as f64 / features as f64;
        let angle = position as f64 / 10_000_f64.powf(power);
        (if feature % 2 == 0 { angle.sin() } else { angle.cos() }) as f32
    };
    (0..length * features).map(element).collect()
}

impl Layer for Embedding {
    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        if cx.graph.ty(x).dtype != DType::I32 && cx.graph.producer(x).is_some() {
            return Err(LayerError(
                "needs ids as the data gives them, but its input holds numbers that a layer computed"
                    .into(),
            ));
        }
        let fans = Fans { fan_in: self.embedding_dim, fan_out: self.num_embeddings };
        let shape = [self.num_embeddings, self.embedding_dim];
        let mut init = self.init.as_ref().map_or(STANDARD, |init| init.resolve(fans));
        if let Some(row) = self.padding_idx {
            if row >= self.num_embeddings {
                return Err(LayerError(format!(
                    "`padding_idx` is {row}, but the ids go up to {}",
                    self.num_embeddings - 1
                )));
            }
            let first = row * self.embedding_dim;
            init = Init::ZerosWithin(Box::new(init), first..first + self.embedding_dim);
        }
        let weight = cx.param("weight", shape, init, true)?;
        Ok(cx.graph.op(embedding::Embedding { padding: self.padding_idx }, &[weight, x])?)
    }
}

impl Layer for PositionalEmbedding {
    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let dims = cx.float_dims(x)?;
        let [_, length, features] = dims[..] else {
            let got = batch_shape(cx.graph.shape(x));
            return Err(LayerError(format!(
                "needs an input of [batch, length, features], got {got}"
            )));
        };
        let longest = self.max_length.unwrap_or(length);
        if longest != length {
            return Err(LayerError(format!(
                "`max_length` is {longest}, but its input has length {length}"
            )));
        }
        if self.kind == Positions::Sinusoidal {
            if self.init.is_some() {
                return Err(LayerError("`init` is for learned vectors".into()));
            }
            let table = cx.graph.table(sinusoids(length, features), [length, features])?;
            return Ok(map::add(cx.graph, x, table)?);
        }
        let fans = Fans { fan_in: features, fan_out: longest };
        let weight = cx.weight("weight", [longest, features], fans, &self.init, STANDARD)?;
        Ok(map::add(cx.graph, x, weight)?)
    }
}
