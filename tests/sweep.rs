//! Sweeps: one that is killed and goes on ends with the same trials and bytes as one that is not;
//! trials that cannot run or go wrong are results with reasons.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Random, wootz};
use serde_json::Value as Json;
use wootz::config::load_sweep;
use wootz::sweep::sobol::coordinate;
use wootz::sweep::space::{self, Draw};

const BASE: &str = "
version: 1
data:
  train: {synthetic: {kind: classification, samples: 150, shape: [12], classes: 4}}
  valid: {split: 0.1}
model:
  layers:
    - linear: {out_features: 24}
    - relu
    - dropout: {p: 0.2}
    - linear: {out_features: 4}
loss: cross_entropy
metrics: [accuracy]
optimizer: {adamw: {lr: 5.0e-3}}
train: {epochs: 150, batch_size: 8}
checkpoint: {every_steps: 20, keep_last: 2}
";

struct Lab(tempfile::TempDir);

impl Lab {
    /// A folder with the base and a sweep of the lines `more`.
    fn new(more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("base.yaml"), BASE).unwrap();
        let lab = Lab(folder);
        lab.sweep("straight", more);
        lab
    }

    fn sweep(&self, name: &str, more: &str) {
        let dir = self.0.path().display();
        let text = format!(
            "version: 1\nbase: base.yaml\ndir: {dir}\nmetric: valid/loss\nmode: min\nseed: 3\n{more}"
        );
        fs::write(self.0.path().join(format!("{name}.yaml")), text).unwrap();
    }

    fn command(&self, name: &str, part: &[&str]) -> Command {
        let mut command = wootz();
        command.arg("sweep").args(part).arg("--config");
        command.arg(self.0.path().join(format!("{name}.yaml")));
        command
    }

    fn output(&self, name: &str, part: &[&str]) -> String {
        let output = self.command(name, part).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn run(&self, name: &str) {
        self.output(name, &["--device", "cpu"]);
    }

    fn show(&self, name: &str, trial: usize) -> Json {
        serde_json::from_str(&self.output(name, &["show", &trial.to_string()])).unwrap()
    }

    fn table(&self, name: &str) -> String {
        let path = self.0.path().join("table.csv");
        self.output(name, &["export", "--csv", path.to_str().unwrap()]);
        fs::read_to_string(path).unwrap()
    }
}

/// The bytes of the newest checkpoint's tensors and optimizer in each trial's folder.
fn last_bytes(sweep: &Path, trials: usize) -> Vec<Vec<(PathBuf, Vec<u8>)>> {
    let of = |trial: usize| {
        let run = sweep.join("trials").join(format!("{trial:04}"));
        let mut steps: Vec<PathBuf> = fs::read_dir(&run)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("step-"))
            .collect();
        steps.sort();
        let newest = steps.pop().expect("a checkpoint");
        let files = fs::read_dir(&newest).unwrap().map(|entry| entry.unwrap().path());
        let tensors = files.filter(|path| path.extension().is_some_and(|e| e == "safetensors"));
        let mut found: Vec<(PathBuf, Vec<u8>)> = tensors
            .map(|path| (path.file_name().unwrap().into(), fs::read(&path).unwrap()))
            .collect();
        found.sort();
        assert!(!found.is_empty(), "{}", newest.display());
        found
    };
    (0..trials).map(of).collect()
}

#[test]
fn a_sweep_killed_five_times_ends_with_the_same_bytes() {
    let space = "space:
  optimizer.adamw.lr: {log_uniform: [1.0e-4, 1.0e-1]}
  model.layers[2].dropout.p: {uniform: [0.0, 0.5]}
trials: 6
";
    let lab = Lab::new(space);
    lab.run("straight");
    lab.sweep("killed", &format!("{space}parallel: 2\n"));
    let mut random = Random::new(5);
    let mut killed = 0;
    for _ in 0..5 {
        let mut child = lab
            .command("killed", &["--device", "cpu"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(150 + random.below(250) as u64));
        killed += usize::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(killed >= 3, "only {killed} of five kills came before the end");
    lab.run("killed");
    assert_eq!(lab.table("straight"), lab.table("killed"));
    let folders = ["straight", "killed"].map(|name| last_bytes(&lab.0.path().join(name), 6));
    assert_eq!(folders[0], folders[1]);
}

#[test]
fn ten_trials_straight_are_four_and_six_more() {
    let space = "space: {optimizer.adamw.lr: {log_uniform: [1.0e-4, 1.0e-1]}, train.epochs: {choice: [1]}}\n";
    let lab = Lab::new(&format!("{space}trials: 10\n"));
    lab.run("straight");
    for trials in [4, 10] {
        lab.sweep("later", &format!("{space}trials: {trials}\n"));
        lab.run("later");
    }
    assert_eq!(lab.table("straight"), lab.table("later"));
    assert_eq!(lab.table("later").lines().count(), 11);
}

const HALVING: &str =
    "space: {optimizer.adamw.lr: {log_uniform: [1.0e-5, 1.0e-1]}, train.epochs: {choice: [50]}}
trials: 9
sampler: random
scheduler: {asha: {first: 40}}
";

#[test]
fn successive_halving_goes_on_from_checkpoints_and_survives_kills() {
    let lab = Lab::new(HALVING);
    lab.sweep("whole", HALVING.split("sampler").next().unwrap());
    for _ in 0..3 {
        let mut child = lab
            .command("straight", &["--device", "cpu"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(400));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    lab.run("straight");
    lab.sweep("again", HALVING);
    lab.run("again");
    assert_eq!(lab.table("straight"), lab.table("again"));
    let folders = ["straight", "again"].map(|name| last_bytes(&lab.0.path().join(name), 9));
    assert_eq!(folders[0], folders[1]);

    lab.run("whole");
    let steps = |name: &str, trial| lab.show(name, trial)["steps"].as_u64().unwrap();
    let sum = |name: &str| (0..9).map(|trial| steps(name, trial)).sum::<u64>();
    assert!(sum("straight") * 5 <= sum("whole") * 2, "{} of {}", sum("straight"), sum("whole"));
    let best: Json = (0..9)
        .map(|trial| lab.show("straight", trial))
        .find(|trial| trial["state"] == "done")
        .expect("the best one came to its end");
    // A trial that went on is the run that was never stopped.
    let whole = lab.show("whole", best["trial"].as_u64().unwrap() as usize);
    assert_eq!((&best["values"], &best["value"]), (&whole["values"], &whole["value"]));
}

#[test]
fn a_sweep_ends_when_its_target_or_time_is_reached() {
    let space = "space: {optimizer.adamw.lr: {log_uniform: [1.0e-4, 1.0e-1]}, train.epochs: {choice: [1]}}\n";
    let lab = Lab::new(&format!("{space}trials: 10\ntarget: 100\n"));
    lab.run("straight");
    assert!(lab.output("straight", &["status"]).starts_with("1 trials: 1 done"));
    lab.sweep("short", &format!("{space}trials: 1000\nminutes: 0.02\n"));
    lab.run("short");
    let trials = lab.table("short").lines().count() - 1;
    assert!((1..1000).contains(&trials), "{trials} trials");
    lab.run("short");
    assert_eq!(lab.table("short").lines().count() - 1, trials, "its time is over");
}

#[test]
fn trials_that_do_not_fit_together_run_one_after_the_other() {
    let lab = Lab::new(
        "space: {optimizer.adamw.lr: {log_uniform: [1.0e-4, 1.0e-1]}, train.epochs: {choice: [10]}}
trials: 4
parallel: 2
memory_gib: 1.0e-6
",
    );
    lab.run("straight");
    let time = |path: PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    let mut spans: Vec<_> = (0..4)
        .map(|trial| lab.0.path().join(format!("straight/trials/{trial:04}")))
        .map(|run| (time(run.join("config.yaml")), time(run.join("metrics.jsonl"))))
        .collect();
    spans.sort();
    assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{spans:?}");
}

#[test]
fn what_goes_wrong_is_a_result_with_a_reason() {
    let lab = Lab::new(
        "space:
  optimizer.adamw.lr: {choice: [1.0e-3, 1.0e+38]}
  model.layers[0].linear.out_features: {choice: [8, 0]}
  train.epochs: {choice: [2]}
sampler: grid
",
    );
    lab.run("straight");
    let trials: Vec<Json> = (0..4).map(|trial| lab.show("straight", trial)).collect();
    let states: Vec<&str> = trials.iter().map(|t| t["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["done", "failed", "invalid", "invalid"]);
    let reason = |trial: usize| trials[trial]["reason"].as_str().unwrap().to_owned();
    assert!(reason(1).contains("not finite"), "{}", reason(1));
    assert!(reason(2).contains("model.layers[0].linear.out_features"), "{}", reason(2));

    let best = lab.0.path().join("best.yaml");
    lab.output("straight", &["best", "--write", best.to_str().unwrap()]);
    let output = wootz().args(["check", "--config"]).arg(&best).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(fs::read_to_string(&best).unwrap().contains("out_features: 8"));
}

#[test]
fn a_trials_value_is_that_of_the_same_run_of_train() {
    let lab = Lab::new("space: {optimizer.adamw.lr: {uniform: [1.0e-3, 1.0e-2]}}\ntrials: 1\n");
    lab.run("straight");
    let trial = lab.show("straight", 0);
    let lr = trial["values"]["optimizer.adamw.lr"].as_f64().unwrap();
    let output = wootz()
        .args(["train", "--json", "--device", "cpu", "--config"])
        .arg(lab.0.path().join("base.yaml"))
        .args(["--set", &format!("seed={}", trial["seed"])])
        .args(["--set", &format!("optimizer.adamw.lr={lr}"), "--run-dir"])
        .arg(lab.0.path().join("alone"))
        .output()
        .unwrap();
    let alone: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(alone["metrics"]["valid/loss"], trial["value"]);
    assert_eq!(alone["step"], trial["steps"]);
}

#[test]
fn a_grid_has_each_combination_once() {
    let lab = Lab::new(
        "space:
  loss.cross_entropy.label_smoothing: {tied: \"model.layers[2].dropout.p\"}
  model.layers[1]: {choice: [relu, gelu]}
  model.layers[2].dropout.p: {quantised: {low: 0.0, high: 0.2, step: 0.1}}
  optimizer.adamw.lr: {choice: [0.001, 0.002], when: {\"model.layers[1]\": gelu}}
  train.epochs: {int: [1, 1]}
sampler: grid
",
    );
    lab.run("straight");
    let trials: Vec<Json> =
        (0..9).map(|trial| lab.show("straight", trial)["values"].clone()).collect();
    let gelu = trials.iter().filter(|values| values["model.layers[1]"] == "gelu").count();
    assert_eq!(gelu, 6, "three dropouts and two learning rates");
    for values in &trials {
        let tied = &values["loss.cross_entropy.label_smoothing"];
        assert_eq!(tied, &values["model.layers[2].dropout.p"]);
        let has_lr = values.get("optimizer.adamw.lr").is_some();
        assert_eq!(has_lr, values["model.layers[1]"] == "gelu", "{values}");
    }
    assert!(lab.output("straight", &["status"]).starts_with("9 trials: 9 done"));
}

#[test]
fn mistakes_in_a_sweep_are_found_at_their_line() {
    for (lines, said) in [
        ("space: {seed: {chioce: [1]}}\nsampler: grid\n", "did you mean `choice`?"),
        ("space: {seed: {uniform: [0, 1]}}\nsampler: grid\n", "a grid needs a list of values"),
        ("space: {seed: {uniform: [1, 0]}}\ntrials: 3\n", "the first bound is above the second"),
        ("space: {seed: {tied: sead}}\ntrials: 3\n", "`tied` of `seed` names `sead`"),
        ("space: {seed: {int: [0, 1]}}\n", "missing key `trials`"),
        (
            "space: {seed: {choice: [0, 1]}}\nsampler: cma_es\ntrials: 3\n",
            "`cma_es` varies numbers",
        ),
        (
            "space: {seed: {int: [0, 1]}}\nsampler: cma_es\ntrials: 3\nscheduler: {asha: {first: 5}}\n",
            "trained to their ends",
        ),
        ("space: {optimizer.adamw.lrr: {uniform: [0, 1]}}\ntrials: 3\n", "unknown key `lrr`"),
        ("space:\n  model.layers[9]: {choice: [relu]}\nsampler: grid\n", "past the end"),
        (
            "space: {\"model.layers[0].linear.out_feature\": {int: [4, 8]}}\ntrials: 3\n",
            "did you mean `out_features`?",
        ),
    ] {
        let lab = Lab::new(lines);
        let output = lab.command("straight", &[]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(said) && text.contains("straight.yaml:"), "{text}");
        assert!(!lab.0.path().join("straight").exists(), "no trial has begun");
    }
}

#[test]
fn a_key_of_one_of_several_sections_is_no_mistake() {
    let lab = Lab::new(
        "space:
  optimizer: {choice: [{sgd: {lr: 0.1}}, {adamw: {lr: 0.01}}]}
  optimizer.sgd.momentum: {choice: [0.5, 0.9], when: {optimizer: {sgd: {lr: 0.1}}}}
  model.layers[1]: {choice: [relu, {leaky_relu: {negative_slope: 0.2}}]}
  train.epochs: {choice: [1]}
sampler: grid
",
    );
    lab.run("straight");
    assert!(lab.output("straight", &["status"]).starts_with("6 trials: 6 done"));
}

#[test]
fn what_went_wrong_is_tried_again() {
    let lab = Lab::new("");
    let file = lab.0.path().join("optimizer.yaml");
    let space = format!(
        "space: {{optimizer: {{choice: [{:?}, {{sgd: {{lr: 0.1}}}}]}}, train.epochs: {{choice: [1]}}}}
sampler: grid
",
        file.display()
    );
    lab.sweep("straight", &space);
    lab.run("straight");
    assert_eq!(lab.show("straight", 0)["state"], "invalid");
    fs::write(&file, "adamw: {lr: 0.01}").unwrap();
    let output = lab.command("straight", &["retry", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("trial 1 is done"));
    assert_eq!(lab.output("straight", &["retry"]), "1 trials queued again\n");
    lab.run("straight");
    assert_eq!(lab.show("straight", 0)["state"], "done");
}

/// Points of scipy's `qmc.Sobol(d=12, scramble=False)`: dimensions 0, 1, 2, 5, 9 and 11 of points
/// 1, 2, 3, 5, 17, 40 and 63.
#[test]
fn sobol_points_are_scipys() {
    let known = [
        (1, [0.5, 0.5, 0.5, 0.5, 0.5, 0.5]),
        (2, [0.75, 0.25, 0.25, 0.75, 0.75, 0.75]),
        (3, [0.25, 0.75, 0.75, 0.25, 0.25, 0.25]),
        (5, [0.875, 0.875, 0.125, 0.625, 0.125, 0.875]),
        (17, [0.59375, 0.96875, 0.96875, 0.46875, 0.65625, 0.90625]),
        (40, [0.234375, 0.078125, 0.265625, 0.734375, 0.359375, 0.890625]),
        (63, [0.015625, 0.796875, 0.359375, 0.140625, 0.578125, 0.671875]),
    ];
    for (point, expected) in known {
        let found = [0, 1, 2, 5, 9, 11]
            .map(|dimension| f64::from(coordinate(dimension, point)) * f64::powi(2.0, -32));
        assert_eq!(found, expected, "point {point}");
    }
}

#[test]
fn sobol_draws_fill_the_space_evenly() {
    let lab = Lab::new(
        "space:
  optimizer.adamw.lr: {log_uniform: [1.0e-4, 1.0]}
  model.layers[2].dropout.p: {uniform: [0.0, 0.8]}
sampler: sobol
trials: 16
",
    );
    let sweep = load_sweep(&lab.0.path().join("straight.yaml"), |_, _| None).unwrap();
    let mut cells = [[0; 4]; 4];
    for trial in 0..16 {
        let Draw::Values(values) = space::draw(&sweep, trial, &[]) else { panic!("values") };
        let lr = values["optimizer.adamw.lr"].as_f64().unwrap().log10() + 4.0;
        let p = values["model.layers[2].dropout.p"].as_f64().unwrap() / 0.2;
        cells[lr as usize][p as usize] += 1;
    }
    assert_eq!(cells, [[1; 4]; 4], "a point in each sixteenth");
}

#[test]
fn another_space_under_the_same_name_is_refused() {
    let lab = Lab::new("space: {train.epochs: {choice: [1]}}\nsampler: grid\n");
    lab.run("straight");
    lab.sweep("straight", "space: {train.epochs: {choice: [2]}}\nsampler: grid\n");
    let output = lab.command("straight", &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("another `space`"));
}
