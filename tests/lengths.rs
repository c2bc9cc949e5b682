//! Samples of different lengths, from a table to trained parameters: what stands in the padding
//! changes nothing.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::fs;

use common::{gpu, wootz};

const STEPS: usize = 6;

const RECURRENT: &str = "
    - reshape: {shape: [6, 1]}
    - gru: {name: gru, hidden_size: 5, bidirectional: true, lengths: steps}
    - lstm: {name: lstm, hidden_size: 4, bidirectional: true, output: last, lengths: steps}
    - linear: {out_features: 2}
";

const ATTENTION: &str = "
    - reshape: {shape: [6, 1]}
    - linear: {out_features: 8}
    - transformer_block: {name: block, num_heads: 2, dim_feedforward: 8, lengths: steps}
    - slice: {dim: 1, end: 1}
    - flatten
    - linear: {out_features: 2}
";

/// A table of 24 samples of up to six steps, with `padding` after the last one.
fn table(padding: &str) -> String {
    let names: Vec<String> = (0..STEPS).map(|step| format!("t{step}")).collect();
    let mut text = format!("{},steps,y\n", names.join(","));
    for row in 0..24 {
        let length = 1 + row % STEPS;
        for step in 0..STEPS {
            let value = format!("{}", (row * 7 + step * 3) % 11);
            text.push_str(if step < length { &value } else { padding });
            text.push(',');
        }
        text.push_str(&format!("{length},{}\n", row % 2));
    }
    text
}

/// The parameters after a few steps on such a table.
fn trained(layers: &str, padding: &str, device: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    fs::write(&path, table(padding)).unwrap();
    let columns: Vec<String> = (0..STEPS).map(|step| format!("t{step}")).collect();
    let config = format!(
        "version: 1\ndata:\n  train:\n    csv: {{path: {}, target: y, task: classification, \
         inputs: {{features: [{}], steps: [steps]}}}}\nmodel:\n  layers:{layers}loss: cross_entropy\n\
         optimizer: {{adam: {{lr: 0.01}}}}\ntrain: {{steps: 6, batch_size: 8}}\n\
         checkpoint: {{every_steps: 6}}\n",
        path.display(),
        columns.join(", ")
    );
    fs::write(folder.path().join("config.yaml"), config).unwrap();
    let run = folder.path().join("run");
    let output = wootz()
        .args(["train", "--device", device, "--config"])
        .arg(folder.path().join("config.yaml"))
        .arg("--run-dir")
        .arg(&run)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let newest = wootz::train::checkpoint::by_age(&run).pop().expect("a checkpoint");
    fs::read(newest.join("model.safetensors")).unwrap()
}

fn padding_changes_nothing(layers: &str, device: &str) {
    assert_eq!(trained(layers, "0", device), trained(layers, "-37.5", device), "on {device}");
}

#[test]
fn padding_of_recurrent_layers_changes_nothing() {
    padding_changes_nothing(RECURRENT, "cpu");
    padding_changes_nothing(RECURRENT, &gpu());
}

#[test]
fn padding_of_attention_changes_nothing() {
    padding_changes_nothing(ATTENTION, "cpu");
    padding_changes_nothing(ATTENTION, &gpu());
}
