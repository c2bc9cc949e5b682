//! Several inputs and several outputs.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::fs;

use common::wootz;

const CONFIG: &str = "
version: 1
name: several
data:
  train: {csv: {path: CSV, target: y, task: classification, inputs: {deep: [a, b], wide: [c]}}}
  valid: {split: 0.2}
model:
  layers:
    - linear: {name: one, from: deep, out_features: 8}
    - relu: {name: hidden}
    - linear: {name: two, from: wide, out_features: 8}
    - add: {name: sum, from: [hidden, two]}
    - linear: {name: head, out_features: 2}
  outputs: [head, sum]
loss: cross_entropy
metrics: [accuracy]
optimizer: {adam: {lr: 0.05}}
train: {epochs: 30, batch_size: 20}
checkpoint: {every_epochs: 30}
";

/// The class is decided by `a` and `c` together: neither input alone tells it.
#[test]
fn named_inputs_feed_their_layers_and_outputs_are_predicted() {
    let folder = tempfile::tempdir().unwrap();
    let rows = (0..200).map(|i| {
        let (a, b, c) = (i % 7 - 3, i % 5 - 2, (i * 3) % 11 - 5);
        format!("{a},{b},{c},{}\n", i32::from(a + c > 0))
    });
    let csv = folder.path().join("rows.csv");
    fs::write(&csv, format!("a,b,c,y\n{}", rows.collect::<String>())).unwrap();
    let config = folder.path().join("config.yaml");
    fs::write(&config, CONFIG.replace("CSV", csv.to_str().unwrap())).unwrap();
    for device in ["cpu".to_owned(), common::gpu()] {
        let run = folder.path().join(&device);
        let mut command = wootz();
        command.args(["train", "--json", "--device", &device, "--config"]).arg(&config);
        let output = command.arg("--run-dir").arg(&run).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let accuracy = result["metrics"]["valid/accuracy"].as_f64().unwrap();
        assert!(accuracy >= 0.9, "{device}: {accuracy}");
    }
    let run = folder.path().join("cpu");
    let output = wootz().args(["predict", "--device", "cpu", "--run"]).arg(run).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 40);
    let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(first["outputs"]["sum"].as_array().unwrap().len(), 8, "{first}");
}

const CATEGORIES: &str = "
version: 1
name: categories
data:
  train:
    csv:
      path: CSV
      target: y
      task: classification
      inputs: {first: [first], second: [second], dense: [size]}
  valid: {split: 0.2}
model:
  layers:
    - embedding: {name: e1, from: first, num_embeddings: 7, embedding_dim: 4}
    - embedding: {name: e2, from: second, num_embeddings: 5, embedding_dim: 4, padding_idx: 0}
    - linear: {name: bottom, from: dense, out_features: 4}
    - reshape: {name: vector, shape: [1, 4]}
    - concat: {from: [vector, e1, e2], dim: 1}
    - dot_interaction: {name: pairs}
    - concat: {from: [bottom, pairs]}
    - linear: {name: top1, out_features: 16}
    - relu
    - linear: {name: top2, out_features: 1}
loss: binary_cross_entropy
metrics: [roc_auc]
optimizer: {adam: {lr: 0.05}}
train: {epochs: EPOCHS, batch_size: 20}
";

/// The class is whether two categories belong together, which only their product tells.
#[test]
fn columns_of_ids_are_embedded() {
    let folder = tempfile::tempdir().unwrap();
    let row = |i: usize, wrong: &str| {
        let (first, second) = (i % 7, i / 7 % 5);
        format!("{first}{wrong},{second},{},{}\n", i % 3, usize::from(first % 2 == second % 2))
    };
    let csv = folder.path().join("rows.csv");
    let config = folder.path().join("config.yaml");
    let train = |device: &str, epochs: &str| {
        let text = CATEGORIES.replace("CSV", csv.to_str().unwrap()).replace("EPOCHS", epochs);
        fs::write(&config, text).unwrap();
        let mut command = wootz();
        command.args(["train", "--json", "--device", device, "--config"]).arg(&config);
        command.arg("--run-dir").arg(folder.path().join(format!("{device}-{epochs}")));
        command.output().unwrap()
    };
    let rows: String = (0..210).map(|i| row(i, "")).collect();
    fs::write(&csv, format!("first,second,size,y\n{rows}")).unwrap();
    for device in ["cpu".to_owned(), common::gpu()] {
        let output = train(&device, "40");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let auc = result["metrics"]["valid/roc_auc"].as_f64().unwrap();
        assert!(auc >= 0.95, "{device}: {auc}");
    }
    // A number that is no id stops the run.
    let rows: String = (0..210).map(|i| row(i, if i % 2 == 0 { ".5" } else { "" })).collect();
    fs::write(&csv, format!("first,second,size,y\n{rows}")).unwrap();
    for device in ["cpu".to_owned(), common::gpu()] {
        let output = train(&device, "1");
        assert_eq!(output.status.code(), Some(5), "{output:?}");
    }
}
