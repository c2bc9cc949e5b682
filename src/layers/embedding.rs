//! `embedding` and `positional_embedding`.

use super::init::{Fans, Initializer};
use super::{Layer, LayerCx, LayerError, batch_shape};
use crate::config::macros::options;
use crate::graph::{DType, ValueId};
use crate::ops::{embedding, map};
use crate::plan::Init;

options! {
    /// A learned vector for each id. Input ids `[batch, …]`, output `[batch, …, embedding_dim]`;
    /// `weight` of `[num_embeddings, embedding_dim]`.
    pub struct Embedding {
        /// Number of ids.
        num_embeddings: usize [1..],
        /// Size of a vector.
        embedding_dim: usize [1..],
        /// First values; normal with standard deviation 1 where left out, as in PyTorch.
        init: Option<Initializer>,
    }
}

options! {
    /// Adds a learned vector for each position. Input and output `[batch, length, features]`;
    /// `weight` of `[max_length, features]`.
    pub struct PositionalEmbedding {
        /// The longest input; the input's own length where left out.
        max_length: Option<usize>,
        /// First values; normal with standard deviation 1 where left out.
        init: Option<Initializer>,
    }
}

const STANDARD: Init = Init::Normal { mean: 0.0, std: 1.0 };

impl Layer for Embedding {
    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        if cx.graph.ty(x).dtype != DType::I32 {
            return Err(LayerError("needs class or token ids, but its input holds numbers".into()));
        }
        let fans = Fans { fan_in: self.embedding_dim, fan_out: self.num_embeddings };
        let shape = [self.num_embeddings, self.embedding_dim];
        let weight = cx.weight("weight", shape, fans, &self.init, STANDARD)?;
        Ok(cx.graph.op(embedding::Embedding, &[weight, x])?)
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
        let fans = Fans { fan_in: features, fan_out: longest };
        let weight = cx.weight("weight", [longest, features], fans, &self.init, STANDARD)?;
        Ok(map::add(cx.graph, x, weight)?)
    }
}
