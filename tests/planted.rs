//! `wootz verify` on kernels with a defect: each of these is found, and the op is named. The defects
//! are put into the assembled text of one kernel; everything else is as users have it.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use common::{gpu, wootz};

const IMAGES: &str = "
version: 1
name: images
data: {train: {synthetic: {kind: classification, classes: 7, samples: 32, shape: [3, 9, 11]}}}
model:
  layers:
    - conv2d: {out_channels: 5, kernel_size: 3, padding: 1}
    - batch_norm
    - relu
    - max_pool2d: {kernel_size: 3, stride: 2, padding: 1}
    - conv2d: {out_channels: 6, kernel_size: 3, stride: 2, padding: 1}
    - tanh
    - avg_pool2d: {kernel_size: 2, stride: 1}
    - flatten
    - linear: {out_features: 37}
    - relu
    - linear: {out_features: 7}
loss: cross_entropy
optimizer: {sgd: {lr: 0.1}}
train: {steps: 1, batch_size: 5}
";

const TOKENS: &str = "
version: 1
name: tokens
data: {train: {synthetic: {kind: tokens, classes: 13, samples: 32, shape: [37]}}}
model:
  layers:
    - embedding: {name: wte, num_embeddings: $classes, embedding_dim: 24}
    - positional_embedding: {name: wpe}
    - residual:
        layers:
          - layer_norm: {name: ln_1}
          - multi_head_attention: {name: attn, num_heads: 3, causal: true}
    - residual:
        layers:
          - rms_norm: {name: ln_2}
          - linear: {name: fc, out_features: 70}
          - gelu
          - linear: {name: proj, out_features: 24}
    - linear: {name: head, out_features: $classes}
loss: cross_entropy
optimizer: {sgd: {lr: 0.1}}
train: {steps: 1, batch_size: 3}
";

const SEQUENCES: &str = "
version: 1
name: sequences
data: {train: {synthetic: {kind: regression, samples: 32, shape: [9, 6], outputs: 3}}}
model:
  layers:
    - lstm: {name: lstm, hidden_size: 11}
    - transpose: {dim0: 1, dim1: 2}
    - softmax
    - parallel:
        merge: concat
        branches:
          - - linear: {name: left, out_features: 5}
          - - linear: {name: right, out_features: 7}
    - group_norm: {num_groups: 1}
    - mean: {dims: [1]}
    - linear: {name: head, out_features: 3}
loss: mse
optimizer: {sgd: {lr: 0.1}}
train: {steps: 1, batch_size: 5}
";

/// A defect, where it is put, and the op that verify must name.
struct Planted {
    what: &'static str,
    config: &'static str,
    kernel: &'static str,
    old: &'static str,
    new: &'static str,
    op: &'static str,
}

macro_rules! planted {
    ($($what:literal: $config:ident, $kernel:literal, $old:literal => $new:literal, $op:literal;)*) => {
        &[$(Planted {
            what: $what, config: $config, kernel: $kernel, old: $old, new: $new, op: $op,
        }),*]
    };
}

const PLANTED: &[Planted] = planted! {
    "a wrong stride of an operand":
        TOKENS, "matmul", "var i = m * dims.k + k;" => "var i = m * dims.n + k;", "matmul";
    "swapped rows and columns of an operand":
        TOKENS, "matmul", "i = n * dims.k + k;" => "i = k * dims.n + n;", "matmul";
    "missing barriers around the tiles":
        TOKENS, "matmul", "workgroupBarrier();" => "", "matmul";
    "every second step of the sums left out":
        TOKENS, "matmul", "term += DEPTH" => "term += 2u * DEPTH", "matmul";
    "a bound that leaves the last column out":
        TOKENS, "matmul", "(n < vec4<u32>(dims.n))" => "(n + 1u < vec4<u32>(dims.n))", "matmul";
    "an epilogue without its bias":
        IMAGES, "matmul", "let v0_1 = in1[" => "let v0_1 = 0.0 * in1[", "matmul";
    "a wrong padding":
        IMAGES, "conv2d", " - PAD_TOP;" => ";", "conv2d";
    "a window's row and column swapped":
        IMAGES, "conv2d_grad_input", "KERNEL_COLS) * DILATION_ROWS" => "KERNEL_ROWS) * 0u",
        "conv2d_grad_input";
    "the last sample left out of a sum":
        IMAGES, "conv2d_grad_weight", "part_of(dims.batch * OUT_PIXELS)"
            => "part_of((dims.batch - 1u) * OUT_PIXELS)", "conv2d_grad_weight";
    "one channel's values for all":
        IMAGES, "batch_stats", "* dims.channels + c)" => "* dims.channels)", "batch_stats";
    "a missing mean":
        IMAGES, "batch_norm_grad_stats", "(f32(x[at]) - mu) * r" => "f32(x[at]) * r",
        "batch_norm_grad_stats";
    "the smallest in the place of the largest":
        IMAGES, "max_pool2d", "> top ||" => "< top ||", "max_pool2d";
    "a wrong divisor":
        IMAGES, "avg_pool2d", "total / divisor(o_row, o_col)" => "total / 3.0", "avg_pool2d";
    "an exponential without its shift":
        SEQUENCES, "softmax", "- top) * scale" => ") * scale", "softmax";
    "a wrong divisor of a variance":
        TOKENS, "layer_norm", "/ n + dims.eps" => "/ (n - 1.0) + dims.eps", "layer_norm";
    "a missing term of a gradient":
        TOKENS, "layer_norm_grad_input", " * r * gx_mean" => " * 0.0", "layer_norm_grad_input";
    "every second row left out of a sum":
        TOKENS, "layer_norm_grad_params", "row += 4u" => "row += 8u", "layer_norm_grad_params";
    "columns that are off by one":
        TOKENS, "embedding", "+ i % dims.width" => "+ (i + 1u) % dims.width", "embedding";
    "a list that begins at its second place":
        TOKENS, "embedding_grad", "var k = quarter;" => "var k = quarter + 1u;", "embedding_grad";
    "a label that is off by one":
        TOKENS, "cross_entropy_grad", "j == label" => "j + 1u == label", "cross_entropy_grad";
    "a missing scale of the scores":
        TOKENS, "attention", "return product * dims.scale;" => "return product;", "attention";
    "gradients of keys and values swapped":
        TOKENS, "attention_grad_key", "1u, across + 0u * 8u, d_key" => "2u, across + 0u * 8u, d_key",
        "attention_grad";
    "two gates swapped":
        SEQUENCES, "recurrent", "let i = safe_sigmoid(sums[0]" => "let i = safe_sigmoid(sums[1]",
        "recurrent";
    "joined parts that lie on each other":
        SEQUENCES, "concat", "dims.out_row + dims.to + j" => "dims.out_row + j", "concat";
    "a row's stride for a column's":
        SEQUENCES, "permute", "dims.column_step" => "1u", "permute";
    "a tree of sums that stops early":
        IMAGES, "reduce", "+ partial[local + 64u])" => ")", "reduce";
};

/// The exit code and what was said.
fn verify(folder: &Path, config: &str, fault: Option<&str>) -> (Option<i32>, String) {
    // One at a time, as all tests that use a device.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let path = folder.join("config.yaml");
    std::fs::write(&path, config).unwrap();
    let mut command = wootz();
    command.args(["verify", "--repeats", "1", "--device", &gpu(), "--config"]).arg(&path);
    if let Some(fault) = fault {
        command.args(["--inject-fault", fault]);
    }
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn every_planted_defect_is_found_and_its_op_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut missed = Vec::new();
    for Planted { what, config, kernel, old, new, op } in PLANTED {
        let fault = format!("edit-kernel:{kernel}:{old}=>{new}");
        let (code, said) = verify(folder.path(), config, Some(&fault));
        if code != Some(4) || !said.contains(&format!("`{op}` is off by")) {
            missed.push(format!("{what} in `{kernel}`: exit {code:?}, {said}"));
        }
    }
    assert!(missed.is_empty(), "{} of {}: {missed:#?}", missed.len(), PLANTED.len());
}

#[test]
fn sound_kernels_pass() {
    let folder = tempfile::tempdir().unwrap();
    for config in [IMAGES, TOKENS, SEQUENCES] {
        let (code, said) = verify(folder.path(), config, None);
        assert_eq!(code, Some(0), "{said}");
        assert!(
            said.contains("agree with double precision") && said.contains("worst: `"),
            "{said}"
        );
    }
}

#[test]
fn a_defect_that_no_kernel_can_have_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (code, said) = verify(folder.path(), IMAGES, Some("edit-kernel:matmul:no such text=>"));
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("no kernel `matmul` with `no such text`"), "{said}");
    let (code, said) = verify(folder.path(), IMAGES, Some("edit-kernel:matmul"));
    assert_eq!(code, Some(2), "{said}");
}
