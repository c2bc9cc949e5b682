//! The learning-rate range test begins where training does, and leaves no trace.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use common::{gpu, wootz};

/// Dropout, shuffling, a norm's running statistics, moments: all that a trace could be left in.
const CONFIG: &str = "
version: 1
name: rates
seed: 7
data: {train: {synthetic: {kind: classification, samples: 150, shape: [1, 6, 6], classes: 4}}}
model:
  layers:
    - conv2d: {out_channels: 6, kernel_size: 3}
    - batch_norm
    - relu
    - dropout: {p: 0.3}
    - flatten
    - linear: {out_features: 4}
loss: cross_entropy
optimizer: {adamw: {lr: 5.0e-3}}
schedule: {constant: {warmup_steps: 5}}
train: {epochs: 4, batch_size: 16, accumulate: 3}
checkpoint: {every_steps: 3, keep_last: 2, dir: DIR}
";

struct Lab {
    folder: tempfile::TempDir,
    device: String,
}

impl Lab {
    fn new(device: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("runs").display().to_string();
        fs::write(folder.path().join("config.yaml"), CONFIG.replace("DIR", &dir)).unwrap();
        Lab { folder, device: device.to_owned() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, command: &str, more: &[&str]) -> String {
        let mut wootz = wootz();
        wootz.args([command, "--device", &self.device, "--config"]).arg(self.path("config.yaml"));
        let output = wootz.args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn train(&self, run: &str, more: &[&str]) {
        let run = self.path(run).display().to_string();
        self.run("train", &[&["--run-dir", &run], more].concat());
    }

    fn points(&self, more: &[&str]) -> Json {
        serde_json::from_str(&self.run("find-lr", &[&["--json"], more].concat())).unwrap()
    }
}

/// Every file below a folder.
fn content(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(content(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    found
}

fn leaves_no_trace_on(device: &str) {
    let lab = Lab::new(device);
    lab.train("straight", &[]);
    lab.train("run", &["--steps", "7"]);
    let before = content(lab.folder.path());
    let run = lab.path("run").display().to_string();
    let found = lab.points(&["--from", &run, "--steps", "20", "--end", "0.1"]);
    assert_eq!(content(lab.folder.path()), before, "the test left a trace");
    assert_eq!(found, lab.points(&["--from", &run, "--steps", "20", "--end", "0.1"]));
    lab.train("run", &["--resume"]);
    let last = |run: &str| wootz::train::checkpoint::by_age(&lab.path(run)).pop().unwrap();
    for name in ["model.safetensors", "optimizer.safetensors", "state.json"] {
        let [a, b] = ["straight", "run"].map(|run| fs::read(last(run).join(name)).unwrap());
        assert!(a == b, "{name} differs after the test");
    }
}

#[test]
fn it_leaves_no_trace_on_the_cpu() {
    leaves_no_trace_on("cpu");
}

#[test]
fn it_leaves_no_trace_on_the_gpu() {
    leaves_no_trace_on(&gpu());
}

/// Where the rates are those of a run's schedule, the losses are those of the run, from its start
/// and from a checkpoint.
#[test]
fn its_losses_are_those_of_a_run_with_these_rates() {
    let lab = Lab::new("cpu");
    // Over ten steps from 0.001 to 0.512 the rate doubles each step.
    let schedule = "schedule={exponential: {gamma: 2.0}}";
    lab.train("run", &["--set", schedule, "--set", "optimizer.adamw.lr=0.001", "--steps", "10"]);
    let metrics = fs::read_to_string(lab.path("run").join("metrics.jsonl")).unwrap();
    let lines = metrics.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
    let trained: Vec<f64> = lines.filter_map(|line| line["train/loss"].as_f64()).collect();
    let found = lab.points(&["--start", "0.001", "--end", "0.512", "--steps", "10"]);
    let points = found["points"].as_array().unwrap();
    assert_eq!(points.len(), 10);
    for (index, (point, trained)) in points.iter().zip(&trained).enumerate() {
        let rate = 0.001 * f64::powi(2.0, index as i32);
        assert!((point["lr"].as_f64().unwrap() / rate - 1.0).abs() < 1e-9);
        let loss = point["loss"].as_f64().unwrap();
        // The rates differ in the last bit of f64, which a step may carry into that of f32.
        assert!((loss - trained).abs() < 1e-5 * trained, "step {}: {loss} {trained}", index + 1);
    }
}

#[test]
fn a_divergence_ends_it_and_the_table_holds_its_points() {
    let lab = Lab::new("cpu");
    let csv = lab.path("rates.csv").display().to_string();
    let more = ["--set", "optimizer={sgd: {lr: 0.1}}", "--end", "1e6", "--csv", &csv];
    let found = lab.points(&more);
    assert_eq!(found["diverged"], true);
    let points = found["points"].as_array().unwrap();
    assert!((20..100).contains(&points.len()), "{} points", points.len());
    let (steepest, least) = (found["steepest"].as_f64().unwrap(), found["least"].as_f64().unwrap());
    assert!(1e-7 < steepest && steepest < least && least < 1e6, "{steepest} {least}");
    let mut reader = csv::Reader::from_path(&csv).unwrap();
    assert_eq!(reader.headers().unwrap(), vec!["lr", "loss", "smoothed", "slope"]);
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), points.len());
    for (row, point) in rows.iter().zip(points) {
        for (cell, key) in row.iter().zip(["lr", "loss", "smoothed", "slope"]) {
            assert_eq!(cell.parse().ok(), point[key].as_f64(), "{key} of {row:?}");
        }
    }
    let plot = lab.run("find-lr", &more[..4]);
    for words in ["•", "steepest fall", "a tenth of the least", "the loss diverges after"] {
        assert!(plot.contains(words), "`{words}` is not in:\n{plot}");
    }
}

#[test]
fn rates_that_make_no_sense_are_refused() {
    let lab = Lab::new("cpu");
    for (more, words) in [
        (["--start", "1", "--end", "0.1"], "is not below"),
        (["--start", "0", "--end", "0.1"], "above 0"),
        (["--from", "nowhere", "--end", "0.1"], "no such run"),
    ] {
        let output =
            wootz().args(["find-lr", "--config"]).arg(lab.path("config.yaml")).args(more).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(words), "`{words}` is not in: {said}");
    }
}
