//! Layers: one file each, with its YAML options, shapes, parameters, and how it is built from ops.
//!
//! [`Model::decode`] reads the `model` section; [`Model::forward`] builds the graph for a batch
//! size and a mode. Adding a layer is one file and one line in `layers!`.

mod activation;
mod adaptive_pool;
mod attention;
mod batch_norm;
mod bilinear;
mod class_token;
mod conv1d;
mod conv2d;
mod conv3d;
mod conv_transpose1d;
mod conv_transpose2d;
mod convolution;
mod cx;
mod dot_interaction;
mod dropout;
mod embedding;
mod forward;
mod freeze;
mod group_norm;
pub mod init;
pub mod json_schema;
mod l2_normalize;
mod language;
mod layer_norm;
mod lengths;
mod linear;
pub mod loss;
mod model;
mod named;
mod pad;
mod patch_embedding;
mod permute;
mod pixel_shuffle;
mod pool;
mod recurrent;
mod reduce;
mod scale;
mod shape;
mod slice;
mod squeeze_excite;
mod template;
mod transformer_block;
mod upsample;

use std::fmt::Debug;
use std::ops::RangeInclusive;

use crate::config::decode::{Cx, Decode};
use crate::config::node::Node;
use crate::config::reference::schema_markdown;
use crate::config::schema::Schema;
use crate::graph::ValueId;

pub use cx::{LayerCx, LayerError, Mode, Registry, batch_shape};
pub use forward::{Built, LossSpec};
pub use language::Model;
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
    "bilinear" => bilinear::Bilinear,
    "dot_interaction" => dot_interaction::DotInteraction,
    "conv1d" => conv1d::Conv1d,
    "conv2d" => conv2d::Conv2d,
    "max_pool1d" => pool::MaxPool1d,
    "conv3d" => conv3d::Conv3d,
    "conv_transpose1d" => conv_transpose1d::ConvTranspose1d,
    "conv_transpose2d" => conv_transpose2d::ConvTranspose2d,
    "pad" => pad::Pad,
    "crop" => pad::Crop,
    "upsample" => upsample::Upsample,
    "pixel_shuffle" => pixel_shuffle::PixelShuffle,
    "pixel_unshuffle" => pixel_shuffle::PixelUnshuffle,
    "max_pool2d" => pool::MaxPool2d,
    "avg_pool1d" => pool::AvgPool1d,
    "avg_pool2d" => pool::AvgPool2d,
    "lp_pool1d" => pool::LpPool1d,
    "lp_pool2d" => pool::LpPool2d,
    "adaptive_avg_pool1d" => adaptive_pool::AdaptiveAvgPool1d,
    "adaptive_avg_pool2d" => adaptive_pool::AdaptiveAvgPool2d,
    "adaptive_max_pool1d" => adaptive_pool::AdaptiveMaxPool1d,
    "adaptive_max_pool2d" => adaptive_pool::AdaptiveMaxPool2d,
    "global_avg_pool" => adaptive_pool::GlobalAvgPool,
    "global_max_pool" => adaptive_pool::GlobalMaxPool,
    "batch_norm" => batch_norm::BatchNorm,
    "layer_norm" => layer_norm::LayerNorm,
    "rms_norm" => layer_norm::RmsNorm,
    "group_norm" => group_norm::GroupNorm,
    "instance_norm" => group_norm::InstanceNorm,
    "relu" => activation::Relu,
    "leaky_relu" => activation::LeakyRelu,
    "prelu" => activation::Prelu,
    "relu6" => activation::Relu6,
    "elu" => activation::Elu,
    "selu" => activation::Selu,
    "celu" => activation::Celu,
    "gelu" => activation::Gelu,
    "silu" => activation::Silu,
    "mish" => activation::Mish,
    "hard_swish" => activation::HardSwish,
    "tanh" => activation::Tanh,
    "sigmoid" => activation::Sigmoid,
    "hard_sigmoid" => activation::HardSigmoid,
    "softplus" => activation::Softplus,
    "softsign" => activation::Softsign,
    "glu" => activation::Glu,
    "softmax" => activation::Softmax,
    "log_softmax" => activation::LogSoftmax,
    "squeeze_excite" => squeeze_excite::SqueezeExcite,
    "l2_normalize" => l2_normalize::L2Normalize,
    "scale" => scale::Scale,
    "dropout" => dropout::Dropout,
    "dropout2d" => dropout::Dropout2d,
    "stochastic_depth" => dropout::StochasticDepth,
    "embedding" => embedding::Embedding,
    "patch_embedding" => patch_embedding::PatchEmbedding,
    "class_token" => class_token::ClassToken,
    "positional_embedding" => embedding::PositionalEmbedding,
    "multi_head_attention" => attention::MultiHeadAttention,
    "transformer_block" => transformer_block::TransformerBlock,
    "rnn" => recurrent::Rnn,
    "lstm" => recurrent::Lstm,
    "gru" => recurrent::Gru,
    "flatten" => shape::Flatten,
    "reshape" => shape::Reshape,
    "permute" => permute::Permute,
    "transpose" => permute::Transpose,
    "slice" => slice::Slice,
    "split" => slice::Split,
    "mean" => reduce::Mean,
    "sum" => reduce::Sum,
    "max" => reduce::Max,
}

/// The reference of all layers in Markdown, from their options.
pub fn reference() -> String {
    let sections: Vec<String> =
        TABLE.iter().map(|entry| schema_markdown(entry.word, &(entry.schema)())).collect();
    sections.join("\n")
}
