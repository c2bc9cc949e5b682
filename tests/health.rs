//! Health rules, averages, groups and clipping in whole runs.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use common::wootz;
use serde_json::Value as Json;
use wootz::train::checkpoint::{self, NamedTensor, Snapshot};

const CONFIG: &str = "
version: 1
name: health
data:
  train: {synthetic: {kind: classification, samples: 80, shape: [6], classes: 3}}
  valid: {split: 0.2}
model:
  layers:
    - linear: {name: first, out_features: 8}
    - tanh
    - linear: {name: last, out_features: 3}
loss: cross_entropy
optimizer: {sgd: {lr: 0.1, momentum: 0.9, weight_decay: 0.01}}
train: {steps: 20, batch_size: 16}
checkpoint: {every_steps: 1, keep_last: 100}
";

struct Ran {
    folder: tempfile::TempDir,
    code: Option<i32>,
    said: String,
}

/// Trains with further sections.
fn train(sections: &str, device: &str, more: &[&str]) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.yaml"), format!("{CONFIG}{sections}")).unwrap();
    let output = wootz()
        .args(["train", "--device", device, "--config"])
        .arg(folder.path().join("config.yaml"))
        .arg("--run-dir")
        .arg(folder.path().join("run"))
        .args(more)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Ran { folder, code: output.status.code(), said }
}

impl Ran {
    fn run(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    fn at(&self, step: u64) -> Snapshot {
        checkpoint::load(&self.run().join(format!("step-{step:08}"))).unwrap()
    }

    fn metrics(&self) -> Vec<Json> {
        let text = fs::read_to_string(self.run().join("metrics.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn rates(&self) -> BTreeMap<u64, f64> {
        let lines = self.metrics();
        let steps = lines.iter().filter(|line| line["lr"].is_number());
        let rates: Vec<(u64, f64)> = steps
            .map(|line| (line["step"].as_u64().unwrap(), line["lr"].as_f64().unwrap()))
            .collect();
        let map: BTreeMap<u64, f64> = rates.iter().copied().collect();
        assert_eq!(map.len(), rates.len(), "each step has one line: {rates:?}");
        map
    }
}

fn floats(tensor: &NamedTensor) -> Vec<f32> {
    bytemuck::pod_collect_to_vec(&tensor.bytes)
}

fn skips_on(device: &str) {
    let ran = train("health: {not_finite: skip}", device, &["--inject-fault", "nan-batch:4"]);
    assert_eq!(ran.code, Some(0), "{}", ran.said);
    assert!(ran.said.contains("step 4: the loss is not finite; left out"), "{}", ran.said);
    assert_eq!((ran.at(3).model, ran.at(3).optimizer), (ran.at(4).model, ran.at(4).optimizer));
    assert_ne!(ran.at(4).model, ran.at(5).model);
    assert_eq!(ran.at(20).state.health.skipped, 1);
    let skipped: Vec<Json> =
        ran.metrics().into_iter().filter(|line| line["skipped"] == true).collect();
    assert!(skipped.len() == 1 && skipped[0]["step"] == 4, "{skipped:?}");
}

#[test]
fn a_step_that_is_not_finite_can_be_left_out() {
    skips_on("cpu");
    skips_on(&common::gpu());
}

fn rolls_back_on(device: &str) {
    let more = ["--inject-fault", "nan-batch:4", "--set", "checkpoint.every_steps=2"];
    let ran = train("health: {not_finite: rollback, lr_factor: 0.25}", device, &more);
    assert_eq!(ran.code, Some(0), "{}", ran.said);
    assert!(ran.said.contains("back to step 2, learning rate times 0.25"), "{}", ran.said);
    assert_eq!(ran.at(20).state.health.rollbacks, 1);
    let rates = ran.rates();
    assert_eq!(rates.len(), 20);
    assert_eq!((rates[&2], rates[&3]), (0.1, 0.025));
}

#[test]
fn a_step_that_is_not_finite_can_send_the_run_back() {
    rolls_back_on("cpu");
    rolls_back_on(&common::gpu());
}

#[test]
fn a_run_without_checkpoint_goes_back_to_its_start() {
    let more = ["--inject-fault", "nan-batch:4", "--set", "checkpoint.every_steps=100"];
    let ran = train("health: {not_finite: rollback, lr_factor: 1.0}", "cpu", &more);
    assert!(ran.said.contains("back to step 0"), "{}", ran.said);
    let straight = train("", "cpu", &["--set", "checkpoint.every_steps=100"]);
    assert_eq!(ran.at(20).model, straight.at(20).model);
    assert_eq!(ran.at(20).optimizer, straight.at(20).optimizer);
}

#[test]
fn a_run_goes_back_only_so_often() {
    let rule = "health: {exploding_gradient: {norm: 1.0e-9, action: rollback}, max_rollbacks: 2}";
    let ran = train(rule, "cpu", &[]);
    assert_eq!(ran.code, Some(5), "{}", ran.said);
    for words in ["step 1", "above 1.000e-9", "gone back 2 times", "health.max_rollbacks"] {
        assert!(ran.said.contains(words), "`{words}` is not in: {}", ran.said);
    }
}

#[test]
fn rules_stop_the_run_and_name_what_they_saw() {
    for (rule, words) in [
        ("exploding_gradient: {norm: 1.0e-6, action: stop}", ["the gradient's norm", "step 1:"]),
        ("vanishing_gradient: {norm: 1.0e6, steps: 5, action: stop}", ["for 5 steps", "step 5:"]),
        ("plateau: {steps: 4, min_delta: 100.0, action: stop}", ["not been below", "step 5:"]),
        ("loss_spike: {factor: 1.0001, window: 2, action: stop}", ["times its mean", "samples "]),
    ] {
        let ran = train(&format!("health: {{{rule}}}"), "cpu", &[]);
        assert_eq!(ran.code, Some(5), "{rule}: {}", ran.said);
        let name = rule.split(':').next().unwrap();
        for words in words.into_iter().chain([format!("health.{name}").as_str(), "samples "]) {
            assert!(ran.said.contains(words), "`{words}` is not in: {}", ran.said);
        }
    }
}

#[test]
fn a_warning_comes_once_while_its_rule_strikes() {
    let ran = train("health: {vanishing_gradient: {norm: 1.0e6, steps: 3}}", "cpu", &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.said);
    assert_eq!(ran.said.matches("warning: step 3: the gradient's norm").count(), 1, "{}", ran.said);
    assert_eq!(ran.said.matches("health.vanishing_gradient").count(), 1, "{}", ran.said);
}

/// The average that `weight` gives from the weights of all steps, against the one that was kept.
fn averages(section: &str, device: &str, weight: impl Fn(u64) -> f64) {
    let ran = train(&format!("average: {section}"), device, &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.said);
    let mut wanted: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for step in 1..=20 {
        let Snapshot { model, average, .. } = ran.at(step);
        assert_eq!(average.len(), 4);
        for (raw, kept) in model.iter().zip(&average) {
            assert_eq!(raw.name, kept.name);
            let raw = floats(raw);
            let mean = wanted.entry(kept.name.clone()).or_insert_with(|| vec![0.0; raw.len()]);
            for ((mean, raw), kept) in mean.iter_mut().zip(raw).zip(floats(kept)) {
                *mean += weight(step) * (f64::from(raw) - *mean);
                assert!((*mean - f64::from(kept)).abs() < 1e-6, "step {step}: {kept}, not {mean}");
            }
        }
    }
    let measured = ran.metrics().into_iter().rev().find_map(|line| line["average/loss"].as_f64());
    let output = wootz()
        .args(["eval", "--average", "--json", "--device", device, "--run"])
        .arg(ran.run())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Json = serde_json::from_slice(&output.stdout).unwrap();
    let again = document["metrics"]["valid/loss"].as_f64().unwrap();
    assert!((again - measured.unwrap()).abs() < 1e-6, "{again}, not {measured:?}");
}

#[test]
fn the_moving_average_is_kept_and_measured() {
    for device in ["cpu", &common::gpu()] {
        averages("{ema: {decay: 0.8}}", device, |step| if step == 1 { 1.0 } else { 0.2 });
    }
}

#[test]
fn the_mean_of_snapshots_is_kept_and_measured() {
    averages("{swa: {start_step: 8, every_steps: 4}}", "cpu", |step| match step {
        ..=8 => 1.0,
        12 | 16 | 20 => 1.0 / ((step - 4) / 4) as f64,
        _ => 0.0,
    });
}

#[test]
fn groups_have_their_own_rates_and_frozen_ones_stay() {
    let groups =
        "param_groups: [{params: first.*, trainable: false}, {params: \"*.bias\", lr_factor: 0.5}]";
    let ran = train(groups, "cpu", &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.said);
    let of = |step: u64, name: &str| {
        let model = ran.at(step).model;
        floats(model.iter().find(|tensor| tensor.name == name).unwrap())
    };
    assert_eq!(of(1, "first.weight"), of(20, "first.weight"));
    assert_ne!(of(1, "last.bias"), of(20, "last.bias"));
    assert_eq!(ran.at(20).optimizer.len(), 2, "frozen parameters have no moments");
    let output = wootz()
        .args(["plan", "--device", "cpu", "--config"])
        .arg(ran.folder.path().join("config.yaml"))
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    for words in ["frozen", "first.weight, first.bias", "× 0.5"] {
        assert!(shown.contains(words), "`{words}` is not in: {shown}");
    }
    let none = train("param_groups: [{params: second.*}]", "cpu", &[]);
    assert_eq!(none.code, Some(2), "{}", none.said);
    assert!(none.said.contains("no parameter is named `second.*`"), "{}", none.said);
    assert!(none.said.contains("(param_groups[0])"), "{}", none.said);
    let muon = "optimizer={muon: {lr: 0.02, adamw_params: [first.weight, wte.*]}}";
    let none = train("", "cpu", &["--set", muon]);
    assert_eq!(none.code, Some(2), "{}", none.said);
    for words in ["no parameter is named `wte.*`", "(optimizer.muon.adamw_params)"] {
        assert!(none.said.contains(words), "`{words}` is not in: {}", none.said);
    }
}

#[test]
fn clipping_by_value_bounds_each_step() {
    let more = ["--set", "optimizer={sgd: {lr: 1.0}}", "--set", "train.clip_value=0.01"];
    let ran = train("", "cpu", &more);
    let (before, after) = (ran.at(1).model, ran.at(2).model);
    let steps = before.iter().zip(&after).flat_map(|(a, b)| {
        floats(a).into_iter().zip(floats(b)).map(|(a, b)| (a - b).abs()).collect::<Vec<_>>()
    });
    let steps: Vec<f32> = steps.collect();
    assert!(steps.iter().all(|step| *step <= 0.010_001), "{steps:?}");
    assert!(steps.iter().filter(|step| **step > 0.009_999).count() > 5, "{steps:?}");
}

#[test]
fn adaptive_clipping_bounds_each_row_by_its_weights() {
    let more =
        ["--set", "optimizer={sgd: {lr: 1.0}}", "--set", "train.clip_adaptive={clip_factor: 0.01}"];
    let ran = train("", "cpu", &more);
    let weights = |step: u64| {
        let model = ran.at(step).model;
        floats(model.iter().find(|tensor| tensor.name == "first.weight").unwrap())
    };
    let norm = |row: &[f32]| row.iter().map(|x| f64::from(x * x)).sum::<f64>().sqrt();
    for (before, after) in weights(1).chunks(6).zip(weights(2).chunks(6)) {
        let moved: Vec<f32> = before.iter().zip(after).map(|(a, b)| a - b).collect();
        assert!(norm(&moved) <= 0.010_01 * norm(before), "{moved:?}");
        assert!(norm(&moved) > 0.009 * norm(before), "{moved:?}");
    }
}
