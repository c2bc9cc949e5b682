//! Forty kills over four configurations, at random moments of a step or a window and after a random
//! number of bytes of a checkpoint: each run is resumed and ends with the same bytes as one that was
//! never stopped.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::run_folder::{resume_flags, same_bytes};
use common::{Random, gpu, wootz};
use wootz::train::checkpoint::{self, by_age, step_of};

/// Batch norm, dropout, shuffling; windows of two or three micro-batches with a short last one.
const COMMON: &str = "
version: 1
name: kills
seed: 5
data:
  train: {synthetic: {kind: classification, samples: 110, shape: [1, 6, 6], classes: 4}}
  valid: {split: 0.1}
  augment: [{random_crop: {padding: 1}}]
model:
  layers:
    - conv2d: {out_channels: 4, kernel_size: 3, padding: 1}
    - batch_norm
    - relu
    - dropout: {p: 0.3}
    - flatten
    - linear: {out_features: 4}
loss: cross_entropy
metrics: [accuracy]
checkpoint: {every_steps: 2, keep_last: 2, keep_best: {metric: valid/loss}}
";

struct Lab {
    folder: tempfile::TempDir,
    device: String,
}

impl Lab {
    fn new(device: &str, sections: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("config.yaml"), format!("{COMMON}{sections}")).unwrap();
        Lab { folder, device: device.to_owned() }
    }

    fn run(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, run: &str) -> Command {
        let mut command = wootz();
        command.args(["train", "--device", &self.device, "--config"]);
        command.arg(self.folder.path().join("config.yaml"));
        command.arg("--run-dir").arg(self.run(run)).args(resume_flags(&self.run(run)));
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    fn finish(&self, run: &str) {
        let output = self.command(run).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn last(&self, run: &str) -> PathBuf {
        by_age(&self.run(run)).pop().expect("a checkpoint")
    }

    /// Starts or resumes the run and waits until it trains: its records are open, its device ready.
    fn train(&self, run: &str) -> Child {
        let begin = fs::metadata(self.run(run).join("run.json")).and_then(|m| m.modified()).ok();
        let child = self.command(run).spawn().unwrap();
        let now = || fs::metadata(self.run(run).join("run.json")).and_then(|m| m.modified()).ok();
        let waiting = Instant::now();
        while now() == begin && waiting.elapsed() < Duration::from_secs(60) {
            sleep(Duration::from_millis(1));
        }
        child
    }
}

/// What a checkpoint's files have in bytes.
fn bytes_of(checkpoint: &std::path::Path) -> usize {
    let files = fs::read_dir(checkpoint).unwrap();
    files.map(|file| file.unwrap().metadata().unwrap().len() as usize).sum()
}

/// Ten kills: five at random moments of training, five at random bytes of a checkpoint.
fn ten_kills(device: &str, sections: &str, seed: u64) {
    let lab = Lab::new(device, sections);
    let mut straight = lab.train("straight");
    let begin = Instant::now();
    assert!(straight.wait().unwrap().success());
    let mut training = begin.elapsed();
    let whole = lab.last("straight");
    let (end, bytes) = (step_of(&whole).unwrap(), bytes_of(&whole));
    let mut random = Random::new(seed);
    let (mut killed, mut run) = (0, 0);
    while killed < 5 {
        let name = format!("moment-{run}");
        let mut child = lab.train(&name);
        sleep(training.mul_f64(random.uniform()));
        let running = child.try_wait().unwrap().is_none();
        child.kill().unwrap();
        child.wait().unwrap();
        killed += usize::from(running);
        if !running {
            // The run was over: aim earlier.
            training = training.mul_f64(0.7);
        }
        assert!(run < 40, "only {killed} kills hit a running process");
        run += usize::from(!running || random.below(2) == 0);
    }
    (0..=run).for_each(|run| {
        let name = format!("moment-{run}");
        lab.finish(&name);
        same_bytes(&whole, &lab.last(&name));
    });
    for run in 0..5 {
        let (name, step) = (format!("save-{run}"), 1 + random.below(end as usize));
        let place = format!("stall-save:{step}:{}", random.below(bytes));
        let mut child = lab.command(&name).args(["--inject-fault", &place]).spawn().unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        let stalled = said.lines().any(|line| line.unwrap() == "stalled");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(stalled, "{place} was not reached");
        let half = fs::read_dir(lab.run(&name)).unwrap().flatten();
        let half = half.filter(|e| e.file_name().to_string_lossy().starts_with(".writing-"));
        assert_eq!(half.count(), 1, "{place}: the kill fell into no saving");
        for before in by_age(&lab.run(&name)) {
            assert!(step_of(&before).unwrap() < step.next_multiple_of(2) as u64 + 1);
            checkpoint::load(&before).expect("what was there before is whole");
        }
        lab.finish(&name);
        same_bytes(&whole, &lab.last(&name));
    }
}

#[test]
fn adamw_with_a_moving_average_and_windows_of_three() {
    ten_kills(
        "cpu",
        "optimizer: {adamw: {lr: 5.0e-3}}\nschedule: {cosine: {warmup_steps: 3}}\n\
         average: {ema: {decay: 0.9}}\ntrain: {epochs: 5, batch_size: 16, accumulate: 3, clip_norm: 0.5}\n",
        1,
    );
}

#[test]
fn momentum_with_a_plateau_and_an_early_stop() {
    ten_kills(
        "cpu",
        "optimizer: {sgd: {lr: 0.1, momentum: 0.9, nesterov: true}}\n\
         schedule: {reduce_on_plateau: {patience: 0, factor: 0.5, threshold: 0.2}}\n\
         early_stop: {patience: 3, min_delta: 0.3}\ntrain: {epochs: 30, batch_size: 32}\n",
        2,
    );
}

#[test]
fn muon_with_a_mean_of_snapshots_and_health_rules() {
    ten_kills(
        "cpu",
        "optimizer: {muon: {lr: 0.02}}\nschedule: {wsd: {warmup_steps: 2, decay_steps: 6}}\n\
         average: {swa: {start_step: 5, every_steps: 3}}\n\
         health: {loss_spike: {factor: 1.01, window: 2}, plateau: {steps: 2, window: 3}}\n\
         train: {epochs: 5, batch_size: 16, accumulate: 2, threads: 2}\n",
        3,
    );
}

#[test]
fn mixed_precision_with_windows_of_two() {
    ten_kills(
        &gpu(),
        "precision: mixed\noptimizer: {nadam: {lr: 5.0e-3}}\n\
         train: {epochs: 3, batch_size: 16, accumulate: 2}\n",
        4,
    );
}
