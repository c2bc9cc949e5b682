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
