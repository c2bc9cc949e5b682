//! A slip anywhere in a configuration is rejected at its line.

mod common;

use common::mutate::{Random, mutate};
use wootz::config::load_with;

const FULL: &str = "\
version: 1
name: full
seed: 7
device: auto
precision: f32
data:
  train:
    idx: {images: data/images.gz, labels: data/labels.gz, scale: 16}
  valid: {split: 0.1}
  test:
    idx:
      images: data/test-images.gz
      labels: data/test-labels.gz
  normalize:
    mean: [0.1307]
    std: [0.3081]
  augment:
    - random_crop: {padding: 2}
    - horizontal_flip: {p: 0.25}
model:
  layers: [flatten, relu]
loss:
  cross_entropy:
    label_smoothing: 0.1
    ignore_index: -1
metrics: [accuracy]
optimizer:
  sgd:
    lr: 0.1
    momentum: 0.9
    nesterov: true
    weight_decay: 5e-4
    decay: weights
schedule:
  cosine: {warmup_steps: 200, min_lr: 1e-5, total_steps: 4000}
train:
  epochs: 30
  batch_size: 128
  accumulate: 2
  clip_norm: 1.0
  eval_every_steps: 100
  drop_last: false
  shuffle: true
  threads: 2
checkpoint:
  every_steps: 500
  every_epochs: 1
  keep_last: 3
  keep_best: {metric: valid/accuracy, mode: max}
  dir: checkpoints
early_stop:
  metric: valid/loss
  mode: min
  patience: 3
  min_delta: 1e-3
";

/// Lines of `FULL` that `layers` reads, not `config`.
fn is_model(line: usize) -> bool {
    FULL.lines().nth(line - 1).is_some_and(|l| l.trim_start().starts_with("layers:"))
}

#[test]
fn every_slip_is_rejected_at_its_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("full.yaml");
    let load = |text: &str| {
        std::fs::write(&path, text).expect("written");
        load_with(&path, &[], &|_| None, |_, _| Some(()))
    };
    load(FULL).expect("valid before it is broken");

    let mut random = Random(1);
    for round in 0..600 {
        let mutant = mutate(FULL, &mut random, is_model);
        let Err(errors) = load(&mutant.text) else {
            panic!("round {round}: accepted although {}\n{}", mutant.what, mutant.text);
        };
        let lines: Vec<usize> = errors.diagnostics().iter().map(|d| d.span.line as usize).collect();
        assert!(
            mutant.lines.iter().any(|line| lines.contains(line)),
            "round {round}: {} but errors are at {lines:?}:\n{errors}",
            mutant.what,
        );
    }
}
