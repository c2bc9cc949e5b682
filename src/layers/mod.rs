//! Layers: one file each, with its YAML options, shapes, parameters, and how it is built from ops.
//!
//! [`Model::decode`] reads the `model` section; [`Model::forward`] builds the graph for a batch
//! size and a mode. Adding a layer is one file and one line in `layers!`.

mod activation;
mod attention;
mod batch_norm;
mod conv2d;
mod cx;
mod dropout;
mod embedding;
mod forward;
pub mod init;
mod language;
mod layer_norm;
mod linear;
mod loss;
mod model;
mod pool;
mod recurrent;
mod shape;
mod transformer_block;

use std::fmt::Debug;
use std::ops::RangeInclusive;

use crate::config::decode::{Cx, Decode};
use crate::config::node::Node;
use crate::config::reference::schema_markdown;
use crate::config::schema::Schema;
use crate::graph::ValueId;

pub use cx::{LayerCx, LayerError, Mode, Registry, batch_shape};
pub use forward::Built;
pub use language::Model;
pub use loss::Loss;
pub use model::{Body, BuildError, InputSpec, Row};

/// A layer of the model language.
pub trait Layer: Debug + Send + Sync {
    /// Adds the layer to the graph; returns its output.
    ///
    /// # Errors
    /// When an input does not fit; the message says what was expected and found.
    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError>;

    /// How many inputs it takes; those after the first are [`LayerCx::others`].
    fn inputs(&self) -> RangeInclusive<usize> {
        1..=1
    }

    /// Whether it may declare parameters: a layer that does not needs no name for its path.
    fn has_parameters(&self) -> bool {
        true
    }
}

/// A layer's row in the table.
pub struct Entry {
    /// Its word in the language.
    pub word: &'static str,
    /// Its options.
    pub schema: fn() -> Schema,
    /// Reads its options.
    pub decode: fn(&Node, &mut Cx) -> Option<Box<dyn Layer>>,
}

macro_rules! layers {
    ($($word:literal => $layer:ty),* $(,)?) => {
        /// Every layer, by its word.
        pub static TABLE: &[Entry] = &[$(Entry {
            word: $word,
            schema: <$layer as Decode>::schema,
            decode: |node, cx| Some(Box::new(<$layer as Decode>::decode(node, cx)?)),
        }),*];
    };
}

layers! {
    "linear" => linear::Linear,
    "conv2d" => conv2d::Conv2d,
    "max_pool2d" => pool::MaxPool2d,
    "avg_pool2d" => pool::AvgPool2d,
    "global_avg_pool" => pool::GlobalAvgPool,
    "batch_norm" => batch_norm::BatchNorm,
    "layer_norm" => layer_norm::LayerNorm,
    "relu" => activation::Relu,
    "gelu" => activation::Gelu,
    "tanh" => activation::Tanh,
    "sigmoid" => activation::Sigmoid,
    "silu" => activation::Silu,
    "softmax" => activation::Softmax,
    "dropout" => dropout::Dropout,
    "embedding" => embedding::Embedding,
    "positional_embedding" => embedding::PositionalEmbedding,
    "multi_head_attention" => attention::MultiHeadAttention,
    "transformer_block" => transformer_block::TransformerBlock,
    "rnn" => recurrent::Rnn,
    "lstm" => recurrent::Lstm,
    "gru" => recurrent::Gru,
    "flatten" => shape::Flatten,
    "reshape" => shape::Reshape,
}

/// The reference of all layers in Markdown, from their options.
pub fn reference() -> String {
    let sections: Vec<String> =
        TABLE.iter().map(|entry| schema_markdown(entry.word, &(entry.schema)())).collect();
    sections.join("\n")
}
