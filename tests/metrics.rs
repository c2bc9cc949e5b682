//! Every metric against scikit-learn and torchmetrics (tests/reference/metrics.py wrote the file), and
//! through training and evaluation on both executors.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::fs;
use std::path::Path;

use common::reference::Reference;
use common::wootz;
use serde::Deserialize;
use serde_json::Value as Json;
use wootz::config::metric::Metric;
use wootz::train::metrics::{Batch, Value, accumulator};

/// Largest accepted difference: both add in double precision, in another order.
const TOLERANCE: f64 = 1e-9;

#[derive(Deserialize)]
struct Case {
    name: String,
    kind: String,
    values: Vec<(String, Json)>,
}

/// A metric from its YAML.
fn metric(yaml: &str, kind: &str) -> Metric {
    let (data, loss) = match kind {
        "classes" => ("kind: classification, classes: 2", "cross_entropy"),
        "answers" => ("kind: classification, classes: 2", "binary_cross_entropy"),
        _ => ("kind: regression", "mse"),
    };
    let text = format!(
        "version: 1\ndata: {{train: {{synthetic: {{{data}, samples: 8, shape: [4]}}}}}}\n\
         model: {{layers: [flatten]}}\nloss: {loss}\nmetrics: [{yaml}]\n\
         optimizer: {{sgd: {{lr: 0.1}}}}\ntrain: {{steps: 1, batch_size: 1}}\n"
    );
    common::reference::load(&text).0.config.metrics[0].clone()
}

/// The metric over a set that comes in batches of seven.
fn measured(metric: &Metric, kind: &str, x: &[f32], y: &[u8], wide: usize) -> Value {
    const ROWS: usize = 7;
    let mut accumulator = accumulator(metric).unwrap();
    let floats: Vec<f32> = bytemuck::pod_collect_to_vec(y);
    let ids: Vec<i32> = bytemuck::pod_collect_to_vec(y);
    for (index, x) in x.chunks(ROWS * wide).enumerate() {
        let rows = index * ROWS..index * ROWS + x.len() / wide;
        let numbers = rows.start * wide..rows.end * wide;
        match kind {
            "classes" => {
                let targets: Vec<usize> = ids[rows].iter().map(|id| *id as usize).collect();
                accumulator.update(&Batch::Classes { logits: x, classes: wide, targets: &targets });
            }
            "answers" => {
                let targets: Vec<bool> = floats[numbers].iter().map(|y| *y == 1.0).collect();
                accumulator.update(&Batch::Answers { logits: x, labels: wide, targets: &targets });
            }
            _ => accumulator.update(&Batch::Numbers {
                values: x,
                outputs: wide,
                targets: &floats[numbers],
            }),
        }
    }
    accumulator.value()
}

/// All numbers of a value, in order.
fn flat(json: &Json) -> Vec<f64> {
    match json {
        Json::Array(items) => items.iter().flat_map(flat).collect(),
        number => vec![number.as_f64().unwrap()],
    }
}

#[test]
fn metrics_are_those_of_scikit_learn_and_torchmetrics() {
    let file = Reference::read("metrics");
    let cases: Vec<Case> = serde_json::from_str(&file.metadata["cases"]).unwrap();
    assert!(cases.len() > 10);
    for case in cases {
        let x = file.tensor(&format!("{}/x", case.name));
        let y = file.tensor(&format!("{}/y", case.name));
        let wide = x.dims[1];
        let x: Vec<f32> = bytemuck::pod_collect_to_vec(&x.bytes);
        for (yaml, wanted) in &case.values {
            let given = measured(&metric(yaml, &case.kind), &case.kind, &x, &y.bytes, wide);
            let given = match given {
                Value::Number(number) => vec![number],
                Value::Table(table) => flat(&table),
                Value::Undefined => panic!("{}: {yaml} is undefined", case.name),
            };
            let wanted = flat(wanted);
            assert_eq!(given.len(), wanted.len(), "{}: {yaml}", case.name);
            for (a, b) in given.iter().zip(&wanted) {
                assert!((a - b).abs() <= TOLERANCE, "{}: {yaml}: {a}, not {b}", case.name);
            }
        }
    }
}

#[test]
fn what_a_set_does_not_say_is_left_out() {
    let one_class = [2.0, -1.0, 1.0, 0.5];
    for yaml in ["roc_auc", "average_precision"] {
        let mut accumulator = accumulator(&metric(yaml, "classes")).unwrap();
        accumulator.update(&Batch::Classes { logits: &one_class, classes: 2, targets: &[0, 0] });
        assert_eq!(accumulator.value(), Value::Undefined, "{yaml}");
    }
    let mut accumulator = accumulator(&metric("r2", "numbers")).unwrap();
    accumulator.update(&Batch::Numbers { values: &[1.0, 2.0], outputs: 1, targets: &[3.0, 3.0] });
    assert_eq!(accumulator.value(), Value::Undefined);
}

const CONFIG: &str = "
version: 1
name: metrics
data:
  train: {synthetic: {kind: classification, samples: 120, shape: [6], classes: 7}}
  valid: {synthetic: {kind: classification, samples: 53, shape: [6], classes: 7, seed: 1}}
model:
  layers:
    - linear: {out_features: 16}
    - tanh
    - linear: {out_features: 7}
loss: {cross_entropy: LOSS}
metrics: [accuracy, {top_k: {k: 3}}, precision, recall, f1, {f1: {average: micro}}, {f1: {average: per_class}}, confusion_matrix, roc_auc, average_precision, calibration_error, mean_iou MORE]
optimizer: {adam: {lr: 0.01}}
train: {epochs: 4, batch_size: 16}
checkpoint: {keep_best: {metric: valid/f1}}
early_stop: {metric: valid/calibration_error, patience: 50}
";

fn json_of(arguments: &[&str]) -> Json {
    let output = wootz().args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Largest difference of two evaluations with the same names, relative where values are above 1.
fn difference(one: &Json, other: &Json) -> f64 {
    let (one, other) = (one.as_object().unwrap(), other.as_object().unwrap());
    assert!(one.keys().eq(other.keys()), "{one:?}\n{other:?}");
    let pairs = one.values().zip(other.values()).flat_map(|(a, b)| {
        let (a, b) = (flat(a), flat(b));
        assert_eq!(a.len(), b.len());
        a.into_iter().zip(b)
    });
    pairs.map(|(a, b)| (a - b).abs() / a.abs().max(1.0)).fold(0.0, f64::max)
}

#[test]
fn evaluation_is_over_the_whole_set_whatever_the_batches_and_the_device() {
    for (loss, more) in [("{}", ", perplexity"), ("{weight: [1, 2, 3, 1, 2, 3, 1]}", "")] {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.yaml");
        fs::write(&config, CONFIG.replace("LOSS", loss).replace("MORE", more)).unwrap();
        let run = folder.path().join("run");
        let (config, run) = (config.to_str().unwrap(), run.to_str().unwrap());
        let done =
            json_of(&["train", "--json", "--device", "cpu", "--config", config, "--run-dir", run]);
        assert_eq!(done["best"]["metric"], "valid/f1");
        let evaluate = |device: &str, batch: usize| {
            let batch = format!("train.batch_size={batch}");
            let arguments =
                ["eval", "--json", "--last", "--device", device, "--set", &batch, "--run", run];
            json_of(&arguments)["metrics"].clone()
        };
        let whole = evaluate("cpu", 53);
        for name in ["valid/loss", "valid/top_3", "valid/f1_micro", "valid/roc_auc"] {
            assert!(whole[name].is_number(), "{name} in {whole}");
        }
        assert_eq!(flat(&whole["valid/confusion_matrix"]).iter().sum::<f64>(), 53.0);
        assert_eq!(flat(&whole["valid/f1_per_class"]).len(), 7);
        assert_eq!(whole["valid/accuracy"], whole["valid/f1_micro"]);
        let trained = done["metrics"].as_object().unwrap();
        assert_eq!(trained["valid/f1"], evaluate("cpu", 16)["valid/f1"]);
        for batch in [1, 7, 16] {
            let parts = evaluate("cpu", batch);
            assert!(difference(&whole, &parts) <= 1e-6, "{batch}: {whole}\n{parts}");
        }
        let gpu = evaluate(&common::gpu(), 16);
        assert!(difference(&whole, &gpu) <= 1e-4, "{whole}\n{gpu}");
        if !more.is_empty() {
            let (perplexity, loss) =
                (whole["valid/perplexity"].as_f64(), whole["valid/loss"].as_f64());
            assert!((perplexity.unwrap() - loss.unwrap().exp()).abs() < 1e-9);
        }
        let lines = fs::read_to_string(Path::new(run).join("metrics.jsonl")).unwrap();
        let last: Json = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
        assert_eq!(flat(&last["valid/confusion_matrix"]).len(), 49);
    }
}

#[test]
fn bits_per_byte_counts_bytes_and_not_characters() {
    let folder = tempfile::tempdir().unwrap();
    let text = "aé€b".repeat(40);
    let (file, config) = (folder.path().join("text.txt"), folder.path().join("config.yaml"));
    fs::write(&file, &text).unwrap();
    let run = folder.path().join("run");
    fs::write(
        &config,
        format!(
            "version: 1\nname: text\ndata: {{train: {{text: {{path: {file:?}, context: 8}}}}, valid: {{split: 0.25}}}}\n\
             model: {{layers: [{{embedding: {{num_embeddings: $classes, embedding_dim: 4}}}}, {{linear: {{out_features: $classes}}}}]}}\n\
             loss: cross_entropy\nmetrics: [bits_per_byte]\noptimizer: {{adam: {{lr: 0.01}}}}\n\
             train: {{epochs: 1, batch_size: 4}}\n"
        ),
    )
    .unwrap();
    let done = json_of(&[
        "train",
        "--json",
        "--device",
        "cpu",
        "--config",
        config.to_str().unwrap(),
        "--run-dir",
        run.to_str().unwrap(),
    ]);
    let value = |name: &str| done["metrics"][name].as_f64().unwrap();
    // 40 characters are held out: four windows of 8 targets, which are 8 rounds of 7 bytes.
    let (characters, bytes) = (32.0, 56.0);
    let wanted = value("valid/loss") * characters / bytes / std::f64::consts::LN_2;
    assert!((value("valid/bits_per_byte") - wanted).abs() < 1e-6, "{done}");
}
