//! Accumulation is exact: however the samples of a step are split into batches, the losses are the
//! same, where targets are ignored, classes have weights, or several outputs have losses too.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::fs;
use std::path::Path;

use common::wootz;
use serde_json::Value as Json;

const CONFIG: &str = "
version: 1
name: accumulation
seed: 3
data:
  train: {synthetic: {kind: KIND, samples: 44, shape: [6]}}
  valid: {synthetic: {kind: KIND, samples: 13, shape: [6], seed: 1}}
model:
  layers:
    - linear: {name: first, out_features: 16}
    - tanh: {name: hidden}
    - linear: {name: code, out_features: 6}
    - linear: {name: head, from: hidden, out_features: 5}
  OUTPUTS
loss: LOSS
optimizer: {sgd: {lr: 0.05, momentum: 0.9}}
train: {steps: 50, batch_size: 8}
";

const CLASSES: &str = "classification, classes: 5";
const NUMBERS: &str = "regression, outputs: 5";
/// With one loss, of the first output.
const ONE: &str = "outputs: [head, code]";

/// A name, what the targets are, the model's outputs, and the loss section with what follows it.
const CASES: &[(&str, &str, &str, &str)] = &[
    (
        "ignored",
        CLASSES,
        ONE,
        "{cross_entropy: {ignore_index: 2}}\npenalties: [{layer: code, l2: 0.01}]",
    ),
    (
        "weights",
        CLASSES,
        "",
        "{head: {loss: {cross_entropy: {weight: [1, 0.2, 3, 0.5, 2], label_smoothing: 0.1}}}, code: {loss: mse, target: features, weight: 0}}",
    ),
    (
        "nll",
        CLASSES,
        "",
        "{head: {loss: {nll: {weight: [1, 0.2, 3, 0.5, 0], ignore_index: 1}}, weight: 0.1}, code: {loss: huber, target: features, weight: 2}}",
    ),
    (
        "several",
        CLASSES,
        "",
        "{head: {loss: {cross_entropy: {ignore_index: 0}}, weight: 0.3, metrics: [accuracy, f1]}, code: {loss: smooth_l1, target: features, weight: 2}}\npenalties: [{layer: hidden, l1: 0.001, l2: 0.002}]",
    ),
    ("numbers", NUMBERS, "", "{head: {loss: mse}, code: {loss: l1, target: features}}"),
    (
        "soft",
        NUMBERS,
        "",
        "{head: {loss: {binary_cross_entropy: {pos_weight: [1, 2, 3, 4, 5]}}}, code: {loss: mse, target: features, weight: 0.5}}",
    ),
];

/// The losses and the other reported parts of each step, then the validation's.
fn run(folder: &Path, config: &Path, batch: usize, accumulate: usize, device: &str) -> Vec<Json> {
    let run = folder.join(format!("{device}-{batch}x{accumulate}"));
    let output = wootz()
        .args(["train", "--device", device, "--set", &format!("train.batch_size={batch}")])
        .args(["--set", &format!("train.accumulate={accumulate}"), "--config"])
        .arg(config)
        .arg("--run-dir")
        .arg(&run)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The reported losses, penalties and shares of a line; not times and the like.
fn parts(line: &Json) -> impl Iterator<Item = (&String, f64)> {
    let reported = line.as_object().unwrap().iter().filter(|(name, _)| name.contains('/'));
    reported.map(|(name, value)| (name, value.as_f64().unwrap()))
}

fn compare(name: &str, one: &[Json], other: &[Json], tolerance: f64) {
    let lines = |all: &[Json]| -> Vec<Json> {
        all.iter().filter(|line| parts(line).count() > 0).cloned().collect()
    };
    let train = |line: &&Json| line.get("train/loss").is_some();
    let (one, other) = (lines(one), lines(other));
    assert_eq!(one.iter().filter(train).count(), 50, "{name}");
    let of = |all: &[Json]| -> Vec<(u64, String, f64)> {
        let each = |line: &Json| {
            let step = line["step"].as_u64().unwrap();
            parts(line).map(|(part, v)| (step, part.clone(), v)).collect::<Vec<_>>()
        };
        all.iter().flat_map(each).collect()
    };
    let (one, other) = (of(&one), of(&other));
    assert!(!one.is_empty() && one.len() == other.len(), "{name}");
    for ((step, part, a), (at, same, b)) in one.iter().zip(&other) {
        assert_eq!((step, part), (at, same), "{name}");
        let scale = a.abs().max(1.0);
        assert!((a - b).abs() <= tolerance * scale, "{name}, step {step}, {part}: {a} and {b}");
    }
}

#[test]
fn every_split_of_a_step_gives_the_same_losses() {
    for (name, kind, outputs, loss) in CASES {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.yaml");
        let text = CONFIG.replace("KIND", kind).replace("OUTPUTS", outputs).replace("LOSS", loss);
        fs::write(&config, text).unwrap();
        let whole = run(folder.path(), &config, 8, 1, "cpu");
        for (batch, accumulate) in [(4, 2), (2, 4), (1, 8)] {
            let split = run(folder.path(), &config, batch, accumulate, "cpu");
            compare(&format!("{name}, {batch}x{accumulate}"), &whole, &split, 1e-6);
        }
        let gpu = common::gpu();
        if *name == "several" {
            let split = run(folder.path(), &config, 2, 4, &gpu);
            compare("on a GPU", &whole, &split, 1e-4);
        }
    }
}
