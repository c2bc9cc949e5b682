//! The model language: every example of its page fits, and what is frozen is frozen.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::path::Path;

use common::reference;
use wootz::graph::TensorType;
use wootz::layers::{Body, BuildError, InputSpec, Mode, Registry};

/// The graph of a `model` section for images of `[3, 8, 8]`.
fn build(model: &str) -> Result<(Body, Registry), BuildError> {
    let (_, model) = reference::load(&format!(
        "version: 1\ndata: {{train: {{synthetic: {{kind: classification, samples: 8, shape: [3, 8, 8], classes: 5}}}}}}\n\
         loss: cross_entropy\noptimizer: {{sgd: {{lr: 0.1}}}}\ntrain: {{steps: 1, batch_size: 2}}\n{model}\n"
    ));
    let inputs = [InputSpec { name: "features".into(), sample: TensorType::f32([3, 8, 8]) }];
    let mut registry = Registry::default();
    let body = model.body(&mut registry, &inputs, 2, Mode::Train)?;
    Ok((body, registry))
}

#[test]
fn every_example_of_the_page_fits() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/model-language.md");
    let page = std::fs::read_to_string(page).unwrap();
    let examples: Vec<&str> = (page.split("```yaml\n").skip(1))
        .map(|rest| rest.split("```").next().unwrap())
        .filter(|text| text.starts_with("model:"))
        .collect();
    assert!(examples.len() >= 10, "the page has only {} examples", examples.len());
    for example in examples {
        let (body, _) = build(example).unwrap_or_else(|error| panic!("{example}{error:?}"));
        assert_eq!(body.graph.shape(body.outputs[0]).dims()[0], 2, "{example}");
    }
}

#[test]
fn patterns_freeze_what_they_fit() {
    let layers = "layers: [flatten, {linear: {name: a, out_features: 4}}, {linear: {name: b, out_features: 5}}]";
    for (freeze, frozen, rows) in [
        ("[a.*]", vec!["a.weight", "a.bias"], [false, true]),
        ("[\"*.bias\"]", vec!["a.bias", "b.bias"], [true, true]),
        ("[b.weight, b.bias]", vec!["b.weight", "b.bias"], [true, false]),
    ] {
        let (body, registry) = build(&format!("model:\n  freeze: {freeze}\n  {layers}")).unwrap();
        let params = registry.params.iter().zip(&registry.trained);
        let found: Vec<&str> =
            params.filter(|(_, trained)| !**trained).map(|(p, _)| p.name.as_str()).collect();
        assert_eq!(found, frozen, "{freeze}");
        let trainable: Vec<bool> = body.rows[1..].iter().map(|row| row.trainable).collect();
        assert_eq!(trainable, rows, "{freeze}");
    }
}

#[test]
fn a_pattern_that_fits_nothing_is_an_error() {
    let layers = "layers: [flatten, {linear: {name: a, out_features: 5}}]";
    for (pattern, note) in
        [("a", "`a.*` fits all parameters of that layer"), ("a.wieght", "did you mean `a.weight`?")]
    {
        let error = build(&format!("model:\n  freeze: [{pattern}]\n  {layers}")).unwrap_err();
        assert_eq!(error.message, format!("`{pattern}` fits no parameter"));
        assert_eq!(error.note.as_deref(), Some(note));
        assert_eq!((error.path.as_str(), error.span.line), ("model.freeze", 7));
    }
}

/// A model with every kind of parameter that a decay could apply to.
const PARAMETERS: &str = "model:
  layers:
    - conv2d: {out_channels: 4, kernel_size: 3}
    - batch_norm
    - group_norm: {num_groups: 2}
    - instance_norm: {affine: true}
    - prelu: {num_parameters: 4}
    - scale
    - squeeze_excite: {squeeze_channels: 2}
    - flatten: {start_dim: 2}
    - layer_norm
    - rms_norm
    - multi_head_attention: {num_heads: 2}
    - flatten
    - linear: {out_features: 5}";

#[test]
fn only_weights_of_products_decay() {
    let (_, registry) = build(PARAMETERS).unwrap();
    let decayed: Vec<&str> =
        registry.params.iter().filter(|p| p.decay).map(|p| p.name.as_str()).collect();
    let wanted = [
        "0.weight",
        "6.fc1.weight",
        "6.fc2.weight",
        "10.in_proj_weight",
        "10.out_proj.weight",
        "12.weight",
    ];
    assert_eq!(decayed, wanted);
    assert_eq!(registry.params.len(), 23);
}

#[test]
fn rows_count_every_parameter_once() {
    let (body, registry) = build(PARAMETERS).unwrap();
    let total: usize = registry.params.iter().map(|p| p.shape.elements()).sum();
    assert_eq!(body.rows.iter().map(|row| row.parameters).sum::<usize>(), total);
    assert_eq!(body.rows[6].parameters, 4 * 2 + 2 + 2 * 4 + 4);
}

/// Layers over images of `[3, 8, 8]`, and what is said of them.
const MISFITS: &[(&str, &str)] = &[
    ("permute: {dims: [0, 2, 1]}", "needs 4 `dims` for its input [batch, 3, 8, 8], got [0, 2, 1]"),
    ("permute: {dims: [1, 0, 2, 3]}", "needs `dims` that begin with 0: the batch stays in front"),
    ("permute: {dims: [0, 1, 1, 2]}", "has axis 1 twice in `dims`"),
    ("transpose: {dim0: 0, dim1: 1}", "works within samples, but axis 0 of its input"),
    ("softmax: {dim: 4}", "has no axis 4 in its input [batch, 3, 8, 8]"),
    ("softmax: {dim: -5}", "has no axis -5 in its input [batch, 3, 8, 8]"),
    ("slice: {dim: 1, start: 2, end: 2}", "has nothing to take from 2 up to 2 of 3 elements"),
    ("slice: {dim: 1, start: -4}", "has nothing to take from -1 up to 3 of 3 elements"),
    ("split: {split_size: 2, index: 2, dim: 1}", "has no part 2: 3 elements are split into 2"),
    (
        "split: {split_size: [1, 1], index: 0, dim: 1}",
        "have the sum 2, but the axis has 3 elements",
    ),
    ("split: {split_size: 0, index: 0, dim: 1}", "`split_size` must be at least 1"),
    ("mean: {dims: [1, -3]}", "has axis -3 twice in `dims`"),
    ("flatten: {start_dim: 3, end_dim: 2}", "`start_dim` 3 lies after `end_dim` 2"),
    ("glu: {dim: 1}", "cannot halve an axis of 3"),
    ("prelu: {num_parameters: 2}", "has 3 channels, but `num_parameters` is 2: give 1 or 3"),
    ("group_norm: {num_groups: 2}", "cannot split 3 channels into 2 groups"),
    (
        "max_pool1d: {kernel_size: 2}",
        "needs an input of [batch, channels, length], got [batch, 3, 8, 8]",
    ),
    (
        "lp_pool2d: {norm_type: 2, kernel_size: 9}",
        "a window of 9x9 does not fit the padded input of 8x8",
    ),
    (
        "avg_pool2d: {kernel_size: 2, padding: 2}",
        "`padding` [2, 2] is more than half of the window [2, 2]",
    ),
];

#[test]
fn what_does_not_fit_is_said() {
    for (layer, said) in MISFITS {
        let error = build(&format!("model:\n  layers: [{{{layer}}}]")).unwrap_err();
        assert!(error.message.contains(said), "{layer}: {}", error.message);
        let from = "its input comes from the data's features";
        assert_eq!(error.note.as_deref(), Some(from), "{layer}");
    }
    let rows = "model:\n  layers: [flatten, {linear: {name: a, out_features: 5}}, {concat: {from: [a, a], dim: 2}}]";
    let error = build(rows).unwrap_err();
    assert_eq!(error.message, "`concat` has no axis 2 in its input [batch, 5]");
}
