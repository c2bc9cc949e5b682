//! What the user is told about a layer that does not fit its input: the layer, its line, and what was
//! expected and found.

mod common;

/// The size of a sample, a list of layers that starts on line 6, and what the message must say.
const CASES: &[(&str, &str, &[&str])] = &[
    (
        "[3, 8, 8]",
        "- conv2d: {out_channels: 4, kernel_size: 3, padding: [1, 2, 3]}",
        &["or a list of 4 items (an integer >= 0 each) or `same`, got a list of 3", ":6:58"],
    ),
    (
        "[3, 8, 8]",
        "- conv2d: {out_channels: 4, kernel_size: 3, padding: sam}",
        &[":6:58", "did you mean `same`?"],
    ),
    (
        "[3, 8, 8]",
        "- conv2d: {out_channels: 4, kernel_size: 3, padding: 8, padding_mode: reflect}",
        &["`reflect` pads an axis of 8 by at most 7 on each side, but 8 are asked for", ":6:7"],
    ),
    (
        "[3, 8, 8]",
        "- conv2d: {out_channels: 4, kernel_size: 3, groups: 2}",
        &["cannot split 3 input channels into 2 groups"],
    ),
    (
        "[3, 8, 8]",
        "- conv1d: {out_channels: 4, kernel_size: 3}",
        &["`conv1d`: needs an input of [batch, channels, length], got [batch, 3, 8, 8]"],
    ),
    (
        "[3, 8, 8]",
        "- conv3d: {out_channels: 4, kernel_size: 3}",
        &["needs an input of [batch, channels, depth, height, width], got [batch, 3, 8, 8]"],
    ),
    (
        "[3, 8]",
        "- conv1d: {out_channels: 4, kernel_size: 3, padding: [2]}",
        &["expected an integer >= 0 or a list of 2 items (an integer >= 0 each) or `same`, got"],
    ),
    (
        "[3, 2, 8, 8]",
        "- conv3d: {out_channels: 4, kernel_size: 3}",
        &["a kernel of 3 with dilation 1 does not fit the padded input of 2"],
    ),
    (
        "[3, 8, 8]",
        "- conv_transpose2d: {out_channels: 4, kernel_size: 3, output_padding: 1}",
        &["`output_padding` must be below the stride 1, got 1"],
    ),
    (
        "[3, 8, 8]",
        "- conv_transpose2d: {out_channels: 4, kernel_size: 3, padding: 5}",
        &["`padding` of 5 leaves nothing of an output of 10"],
    ),
    ("[3, 8, 8]", "- pad: {padding: [1, 2, 3]}", &["two numbers for each of 1 to 3 axes"]),
    (
        "[3, 8]",
        "- pad: {padding: [1, 2, 3, 4, 5, 6]}",
        &["`padding` has numbers for 3 axes, but its input is [batch, 3, 8]"],
    ),
    ("[3, 8, 8]", "- crop: {cropping: [4, 4]}", &["cannot cut 8 elements off an axis of 8"]),
    ("[3, 8, 8]", "- upsample", &["needs either `size` or `scale_factor`"]),
    (
        "[3, 8, 8]",
        "- upsample: {scale_factor: [1.3, 2]}",
        &["`scale_factor` makes 10.4x16 of 8x8 pixels; give the `size` instead"],
    ),
    (
        "[3, 8, 8]",
        "- pixel_shuffle: {upscale_factor: 2}",
        &["cannot make 2x2 pixels of each 4 of 3 channels"],
    ),
    (
        "[3, 8, 8]",
        "- pixel_unshuffle: {downscale_factor: 3}",
        &["cannot split 8x8 pixels into squares of 3x3"],
    ),
    (
        "[3, 8, 8]",
        "- patch_embedding: {patch_size: [4, 3], embed_dim: 5}",
        &["cannot split 8x8 pixels into patches of 4x3"],
    ),
    (
        "[5, 4]",
        "- positional_embedding: {kind: sinusoidal, init: zeros}",
        &["`init` is for learned vectors"],
    ),
    (
        "[6, 4]",
        "- lstm: {hidden_size: 5, dropout: 0.2}",
        &["`dropout` acts between the layers of a stack, and `num_layers` is 1", ":6:7"],
    ),
    (
        "[4]",
        "- bilinear: {out_features: 5}",
        &["`bilinear` takes 2 inputs, got 1", "`from: [first, second]`"],
    ),
    (
        "[4]",
        "- linear: {name: a, out_features: 3}\n    - linear: {name: b, out_features: 3}\n    \
         - linear: {from: [a, b], out_features: 5}",
        &["`linear` takes one input", "bring several layers together"],
    ),
    (
        "[5, 4]",
        "- lstm: {hidden_size: 3, lengths: feature}",
        &[
            "`lengths: feature` names no input of the data and no layer before this one",
            "did you mean `features`?",
            ":6:7",
        ],
    ),
    (
        "[5, 4]",
        "- gru: {hidden_size: 3, lengths: features}",
        &[
            "`lengths: features` needs one number for each sample, [batch] or [batch, 1], got [batch, 5, 4]",
        ],
    ),
    (
        "[5, 4]",
        "- multi_head_attention: {num_heads: 2, documents: features}",
        &[
            "`documents: features` needs one number for each position of [batch, 5, 4], got [batch, 5, 4]",
        ],
    ),
    (
        "[5, 4]",
        "- multi_head_attention: {num_heads: 2, from: [features, features], documents: features}",
        &["`documents` is for one sequence: leave it out with a memory"],
    ),
    (
        "[5, 4]",
        "- transformer_block: {num_heads: 2, memory_lengths: features}",
        &["`memory_lengths` and `memory_key_padding_mask` need a memory: `from: [x, memory]`"],
    ),
];

#[test]
fn every_misfit_is_named_at_its_layer() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.yaml");
    for (shape, layers, wanted) in CASES {
        let text = format!(
            "version: 1\ndata: {{train: {{synthetic: {{kind: classification, samples: 8, \
             shape: {shape}, classes: 5}}}}}}\nloss: cross_entropy\nmodel:\n  layers:\n    {layers}\n\
             optimizer: {{sgd: {{lr: 0.1}}}}\ntrain: {{steps: 1, batch_size: 2}}\n"
        );
        std::fs::write(&path, &text).expect("written");
        let output = common::wootz()
            .args(["check", "--config"])
            .arg(&path)
            .output()
            .expect("the command runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{layers}\n{said}");
        for phrase in *wanted {
            assert!(said.contains(phrase), "{layers}: `{phrase}` is not in\n{said}");
        }
    }
}
