//! The WGSL kernels of kernels/ and what is done with their text before a device sees it:
//! [`assemble`] puts libraries in and sets constants, [`check`] validates and translates.

mod assemble;
mod check;

pub use assemble::{AssembleError, Assembled, assemble};
pub use check::{Checked, Translation, check};

macro_rules! files {
    ($($stem:literal),* $(,)?) => {
        /// Every kernel file: stem and text. Adding one is one line here.
        pub const FILES: &[(&str, &str)] =
            &[$(($stem, include_str!(concat!("../../kernels/", $stem, ".wgsl")))),*];
    };
}

files! {
    "accumulate",
    "attention",
    "attention_grad_key",
    "attention_grad_query",
    "attention_matrix",
    "attention_matrix_key",
    "attention_matrix_query",
    "avg_pool2d",
    "batch_norm_grad_stats",
    "batch_stats",
    "canary",
    "class_cross_entropy",
    "clip_units",
    "concat",
    "conv2d",
    "conv2d_depthwise",
    "conv2d_grad_input",
    "conv2d_grad_weight",
    "cross_entropy",
    "cross_entropy_grad",
    "ctc",
    "embedding",
    "embedding_grad",
    "grad_scale",
    "grad_scale_finish",
    "layer_norm",
    "layer_norm_grad_finish",
    "layer_norm_grad_input",
    "layer_norm_grad_params",
    "lib/attention_grad_tile",
    "lib/attention_matrix",
    "lib/attention_open",
    "lib/attention_scores",
    "lib/attention_segments",
    "lib/attention_tile",
    "lib/conv2d_extents",
    "lib/conv2d_tile",
    "lib/cross_entropy_row",
    "lib/embedding_id",
    "lib/epilogue",
    "lib/globals",
    "lib/gru_cell",
    "lib/gru_cell_grad",
    "lib/lstm_cell",
    "lib/lstm_cell_grad",
    "lib/math",
    "lib/matrix16",
    "lib/matrix8",
    "lib/matrix_tile",
    "lib/operands",
    "lib/operands_aligned",
    "lib/philox",
    "lib/pool2d_window",
    "lib/recurrent",
    "lib/recurrent_lengths",
    "lib/recurrent_quads",
    "lib/recurrent_quads_aligned",
    "lib/recurrent_whole",
    "lib/reduce",
    "lib/rnn_cell",
    "lib/rnn_cell_grad",
    "lib/tile",
    "log_sum_exp",
    "matmul",
    "matmul_finish",
    "max",
    "max_pool2d",
    "permute",
    "pad",
    "one_hot",
    "reduce",
    "resize",
    "recurrent",
    "recurrent_grad",
    "rope",
    "softmax",
    "stats",
    "to_float",
    "tril",
    "unfold",
    "update_running",
}

/// A file's text.
fn file(stem: &str) -> Option<&'static str> {
    FILES.iter().find(|(name, _)| *name == stem).map(|(_, text)| *text)
}
