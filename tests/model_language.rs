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
