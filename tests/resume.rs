//! Exact resume: a run that is killed and resumed, at any moment and any number of times, ends
//! with the same bytes as one that never stopped.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::run_folder::{resume_flags, same_bytes};
use common::{Random, soak, wootz};

/// Dropout, augmentation, shuffling, batch norm, accumulation over windows of three with a short last one,
/// moments, clipping, schedule: all that could be forgotten. 150 samples in batches of 16 are ten
/// micro-batches, the last of 6: four windows an epoch.
const CONFIG: &str = "
version: 1
name: resume
seed: 7
data:
  train: {synthetic: {kind: classification, samples: 165, shape: [1, 6, 6], classes: 4}}
  valid: {split: 0.1}
  augment: [{random_crop: {padding: 1}}, horizontal_flip, {rotation: {degrees: 15}}, rand_augment, erasing]
model:
  layers:
    - conv2d: {out_channels: 6, kernel_size: 3, padding: 1}
    - batch_norm
    - relu
    - dropout: {p: 0.3}
    - flatten
    - linear: {out_features: 24}
    - gelu
    - dropout: {p: 0.2}
    - linear: {out_features: 4}
loss: cross_entropy
metrics: [accuracy]
optimizer: {adamw: {lr: 5.0e-3}}
schedule: {cosine: {warmup_steps: 5}}
train: {epochs: EPOCHS, batch_size: 16, accumulate: 3, clip_norm: 0.5}
checkpoint: {every_steps: 3, keep_last: 2, keep_best: {metric: valid/loss}}
";

struct Lab {
    folder: tempfile::TempDir,
    device: String,
}

impl Lab {
    fn new(device: &str, epochs: usize) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::write(folder.path().join("config.yaml"), CONFIG.replace("EPOCHS", &epochs.to_string()))
            .expect("a file");
        Lab { folder, device: device.to_owned() }
    }

    fn command(&self, run: &str, more: &[&str]) -> Command {
        let mut command = wootz();
        command
            .args(["train", "--device", &self.device, "--config"])
            .arg(self.folder.path().join("config.yaml"));
        command.arg("--run-dir").arg(self.folder.path().join(run)).args(more);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    fn finish(&self, run: &str, more: &[&str]) {
        let output = self.command(run, more).output().expect("wootz starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Starts the run, kills it after a while; tells whether it was still running.
    fn kill_after(&self, run: &str, more: &[&str], wait: Duration) -> bool {
        let mut child: Child = self.command(run, more).spawn().expect("wootz starts");
        sleep(wait);
        let running = child.try_wait().expect("a child").is_none();
        child.kill().expect("it can be killed");
        child.wait().expect("a child");
        running
    }

    fn resume_flags(&self, run: &str) -> Vec<&'static str> {
        resume_flags(&self.folder.path().join(run))
    }

    fn last(&self, run: &str) -> PathBuf {
        wootz::train::checkpoint::by_age(&self.folder.path().join(run)).pop().expect("a checkpoint")
    }
}

/// Kills runs at random moments until `rounds` kills hit a running process, each run twice where
/// it lives that long, and lets each end.
fn kills(device: &str, epochs: usize, rounds: usize, threads: &[&str]) {
    let lab = Lab::new(device, epochs);
    let begin = Instant::now();
    lab.finish("straight", &[]);
    let mut whole = begin.elapsed();
    let mut random = Random::new(11);
    let mut killed = 0;
    for round in 0.. {
        let run = format!("killed-{round}");
        let threads = threads[round % threads.len()];
        for _ in 0..2 {
            let wait = whole.mul_f64(random.uniform());
            let flags = lab.resume_flags(&run);
            if lab.kill_after(&run, &[&flags[..], &["--set", threads]].concat(), wait) {
                killed += 1;
            } else {
                // The run was over: the first one took longer, so aim earlier.
                whole = whole.mul_f64(0.8);
            }
        }
        let flags = lab.resume_flags(&run);
        lab.finish(&run, &[&flags[..], &["--set", threads]].concat());
        same_bytes(&lab.last("straight"), &lab.last(&run));
        if killed >= rounds {
            return;
        }
        assert!(round < 4 * rounds, "only {killed} kills hit a running process");
    }
}

#[test]
fn kill_and_resume_on_the_cpu_with_one_and_two_threads() {
    kills(
        "cpu",
        if soak() { 40 } else { 12 },
        if soak() { 50 } else { 20 },
        &["train.threads=1", "train.threads=2"],
    );
}

#[test]
fn kill_and_resume_on_the_gpu() {
    kills(
        &common::gpu(),
        if soak() { 12 } else { 3 },
        if soak() { 50 } else { 20 },
        &["train.threads=2"],
    );
}

#[test]
fn every_step_limit_resumes_to_the_same_bytes() {
    let lab = Lab::new("cpu", 6);
    lab.finish("straight", &[]);
    for k in [1, 2, 3, 5, 8, 11, 13, 17, 19, 23] {
        let run = format!("from-{k}");
        lab.finish(&run, &["--steps", &k.to_string()]);
        lab.finish(&run, &["--resume"]);
        same_bytes(&lab.last("straight"), &lab.last(&run));
    }
}

#[test]
fn a_signal_saves_and_the_run_goes_on_from_there() {
    let lab = Lab::new("cpu", 200);
    lab.finish("straight", &[]);
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let run = format!("signal-{signal}");
        let mut child = lab.command(&run, &[]).spawn().expect("wootz starts");
        while wootz::train::checkpoint::by_age(&lab.folder.path().join(&run)).is_empty() {
            sleep(Duration::from_millis(20));
        }
        let sent = Command::new("kill")
            .args(["-s", signal, &child.id().to_string()])
            .status()
            .expect("kill runs");
        assert!(sent.success());
        let status = child.wait().expect("a child");
        assert_eq!(status.code(), Some(code));
        let step = wootz::train::checkpoint::step_of(&lab.last(&run)).expect("a step");
        assert!((1..200 * 4).contains(&step), "step {step}");
        lab.finish(&run, &["--resume"]);
        same_bytes(&lab.last("straight"), &lab.last(&run));
    }
}

#[test]
fn damaged_checkpoints_are_passed_over_aloud_and_a_run_is_never_overwritten() {
    let lab = Lab::new("cpu", 6);
    lab.finish("run", &[]);
    let again = lab.command("run", &[]).output().expect("wootz starts");
    assert_eq!(again.status.code(), Some(2), "a folder that holds a run must not be trained into");
    let (last, bytes) =
        (lab.last("run"), fs::read(lab.last("run").join("model.safetensors")).unwrap());
    lab.finish("straight", &[]);
    fs::write(last.join("model.safetensors"), &bytes[..bytes.len() / 2]).unwrap();
    let resumed = lab.command("run", &["--resume"]).output().expect("wootz starts");
    let said = String::from_utf8_lossy(&resumed.stderr).into_owned();
    assert!(resumed.status.success(), "{said}");
    assert!(said.contains("passed over") && said.contains("model.safetensors"), "{said}");
    same_bytes(&lab.last("straight"), &lab.last("run"));
    for checkpoint in wootz::train::checkpoint::by_age(&lab.folder.path().join("run")) {
        fs::write(checkpoint.join("state.json"), "{}").unwrap();
    }
    let refused = lab.command("run", &["--resume"]).output().expect("wootz starts");
    assert_eq!(
        refused.status.code(),
        Some(1),
        "with no whole checkpoint a run must not start anew"
    );
}

#[test]
fn another_configuration_is_refused_with_the_list_of_differences() {
    let lab = Lab::new("cpu", 3);
    lab.finish("run", &["--steps", "3"]);
    let output = lab
        .command("run", &["--resume", "--set", "optimizer.adamw.lr=0.1"])
        .output()
        .expect("wootz starts");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("optimizer.adamw.lr: 0.005 then, 0.1 now"), "{said}");
}

#[test]
fn an_older_checkpoint_goes_on_in_a_folder_of_its_own() {
    let lab = Lab::new("cpu", 6);
    lab.finish("straight", &[]);
    let older = wootz::train::checkpoint::by_age(&lab.folder.path().join("straight")).remove(0);
    let older = older.to_str().unwrap();
    let config = lab.folder.path().join("config.yaml");
    let mut command = wootz();
    command.args(["train", "--device", "cpu", "--config"]).arg(&config).args(["--resume", older]);
    let refused = command.output().expect("wootz starts");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("newer") && said.contains("--run-dir"), "{said}");
    lab.finish("branch", &["--resume", older]);
    same_bytes(&lab.last("straight"), &lab.last("branch"));
}

/// Frozen layers, weight decay on everything, momentum: what is not trained must not move.
const FROZEN: &str = "
version: 1
name: frozen
data: {train: {synthetic: {kind: classification, samples: 64, shape: [6], classes: 3}}}
model:
  layers:
    - linear: {name: fixed, out_features: 8, trainable: false}
    - relu
    - linear: {name: head, out_features: 3}
loss: cross_entropy
optimizer: OPTIMIZER
train: {steps: 12, batch_size: 16}
checkpoint: {every_steps: 4, keep_last: 9}
";

#[test]
fn frozen_parameters_keep_their_bits_and_resume_exactly() {
    for optimizer in [
        "{adamw: {lr: 0.1, weight_decay: 0.1, decay: all}}",
        "{adam: {lr: 0.1, weight_decay: 0.1, decay: all}}",
        "{sgd: {lr: 0.1, momentum: 0.9, weight_decay: 0.1, decay: all}}",
    ] {
        let lab = Lab::new("cpu", 1);
        let config = FROZEN.replace("OPTIMIZER", optimizer);
        fs::write(lab.folder.path().join("config.yaml"), config).unwrap();
        lab.finish("straight", &[]);
        lab.finish("resumed", &["--steps", "5"]);
        lab.finish("resumed", &["--resume"]);
        same_bytes(&lab.last("straight"), &lab.last("resumed"));
        let weights = |path: &Path| {
            let model = wootz::train::checkpoint::load(path).unwrap().model;
            model.into_iter().filter(|tensor| tensor.name.starts_with("fixed")).collect::<Vec<_>>()
        };
        let all = wootz::train::checkpoint::by_age(&lab.folder.path().join("straight"));
        assert_eq!(weights(&all[0]).len(), 2);
        assert_eq!(weights(&all[0]), weights(&all[2]), "{optimizer}");
    }
}

/// Sections that keep something of their own between steps.
const KEEPERS: [&str; 6] = [
    "
optimizer: {nadam: {lr: 5.0e-3, weight_decay: 0.1}}
schedule: {reduce_on_plateau: {patience: 0, factor: 0.5, threshold: 0.2}}
average: {ema: {decay: 0.9}}
",
    "
optimizer: {muon: {lr: 0.02, adamw_params: [\"8.*\"]}}
schedule: {wsd: {warmup_steps: 2, decay_steps: 6}}
average: {swa: {start_step: 5, every_steps: 3}}
param_groups: [{params: \"0.*\", lr_factor: 0.5}, {params: \"5.bias\", trainable: false}]
",
    "
optimizer: {adafactor: {lr: 0.05}}
schedule: {chained: {schedules: [constant, {exponential: {gamma: 0.9}}], milestones: [7]}}
health: {loss_spike: {factor: 1.01, window: 2}, plateau: {steps: 2, window: 3}}
",
    "
optimizer: {lamb: {lr: 0.02}}
schedule: one_cycle
health: {vanishing_gradient: {norm: 100.0, steps: 3}}
",
    "optimizer: {adam: {lr: 5.0e-3, amsgrad: true}}",
    "optimizer: {rmsprop: {lr: 1.0e-3, centered: true, momentum: 0.5}}",
];

fn keepers(device: &str, sections: &[&str], stops: &[&str]) {
    for sections in sections {
        let lab = Lab::new(device, 4);
        let config = CONFIG.replace("EPOCHS", "4");
        let config: String = config
            .lines()
            .filter(|line| !line.starts_with("optimizer") && !line.starts_with("schedule"))
            .map(|line| format!("{line}\n"))
            .collect();
        let config = format!("{config}{sections}").replace(
            "clip_norm: 0.5",
            "clip_norm: 0.5, clip_value: 0.05, clip_adaptive: {clip_factor: 0.1}, gradient_noise: {eta: 1.0e-4}",
        );
        fs::write(lab.folder.path().join("config.yaml"), config).unwrap();
        lab.finish("straight", &[]);
        for stop in stops {
            let run = format!("from-{stop}");
            lab.finish(&run, &["--steps", stop]);
            lab.finish(&run, &["--resume"]);
            same_bytes(&lab.last("straight"), &lab.last(&run));
        }
    }
}

#[test]
fn what_optimizers_schedules_averages_and_rules_keep_is_resumed() {
    keepers("cpu", &KEEPERS, &["3", "6", "13"]);
}

#[test]
fn what_they_keep_on_the_gpu_is_resumed() {
    keepers(&common::gpu(), &KEEPERS[..2], &["6"]);
}

#[test]
fn the_loss_scale_of_mixed_precision_is_resumed() {
    let mixed = "precision: mixed\noptimizer: {adamw: {lr: 5.0e-3}}";
    keepers(&common::gpu(), &[mixed], &["6", "13"]);
}

#[test]
fn sigusr1_saves_and_the_run_goes_on() {
    let lab = Lab::new("cpu", 200);
    let rare = ["--set", "checkpoint.every_steps=100000", "--set", "checkpoint.keep_best=null"];
    lab.finish("straight", &rare);
    let mut child = lab.command("run", &rare).spawn().expect("wootz starts");
    let metrics = lab.folder.path().join("run/metrics.jsonl");
    while fs::metadata(&metrics).map_or(0, |file| file.len()) == 0 {
        sleep(Duration::from_millis(5));
    }
    let sent = Command::new("kill").args(["-s", "USR1", &child.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
    assert_eq!(child.wait().expect("a child").code(), Some(0));
    let steps: Vec<u64> = wootz::train::checkpoint::by_age(&lab.folder.path().join("run"))
        .iter()
        .filter_map(|path| wootz::train::checkpoint::step_of(path))
        .collect();
    assert!(steps.len() == 2 && steps[0] < 800 && steps[1] == 800, "{steps:?}");
    same_bytes(&lab.last("straight"), &lab.last("run"));
}

#[test]
fn checkpoints_by_the_clock_change_nothing() {
    let lab = Lab::new("cpu", 6);
    let rare = ["--set", "checkpoint.every_steps=1000"];
    lab.finish("straight", &rare);
    let often = ["--set", "checkpoint.every_minutes=0.00001", "--set", "checkpoint.keep_last=100"];
    lab.finish("run", &[&rare[..], &often].concat());
    let saved = wootz::train::checkpoint::by_age(&lab.folder.path().join("run")).len();
    assert!(saved > 12, "{saved} checkpoints");
    same_bytes(&lab.last("straight"), &lab.last("run"));
}

#[test]
fn a_rolled_back_run_goes_on_to_the_same_bytes() {
    let lab = Lab::new("cpu", 6);
    let keep = ["--set", "checkpoint.keep_last=100"];
    lab.finish("straight", &keep);
    lab.finish("run", &keep);
    let folder = lab.folder.path().join("run");
    let back = |to: &str| {
        let mut command = wootz();
        command.arg("rollback").arg("--run-dir").arg(&folder).args(["--to", to]);
        let output = command.output().expect("wootz starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = back("7");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("no checkpoint of step 7; there are 3, "), "{said}");
    assert_eq!(back("9").0, Some(0));
    let last = lab.last("run");
    assert_eq!(wootz::train::checkpoint::step_of(&last), Some(9));
    let lines = fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    let last_line = lines.lines().last().unwrap();
    assert!(last_line.contains("\"step\":9"), "{last_line}");
    lab.finish("run", &[&keep[..], &["--resume"]].concat());
    same_bytes(&lab.last("straight"), &lab.last("run"));
}

#[test]
fn a_run_that_ended_goes_on_when_its_epochs_are_raised() {
    let lab = Lab::new("cpu", 6);
    let steady = ["--set", "schedule={constant: {}}"];
    lab.finish("straight", &steady);
    lab.finish("run", &[&steady[..], &["--set", "train.epochs=3"]].concat());
    lab.finish("run", &[&steady[..], &["--resume"]].concat());
    same_bytes(&lab.last("straight"), &lab.last("run"));
}

#[test]
fn changes_are_allowed_when_that_is_said() {
    let lab = Lab::new("cpu", 3);
    lab.finish("run", &["--steps", "3"]);
    let changes = ["--resume", "--set", "optimizer.adamw.lr=0.1", "--allow-changes"];
    let output = lab.command("run", &changes).output().expect("wootz starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("optimizer.adamw.lr: 0.005 then, 0.1 now"), "{said}");
    assert_eq!(wootz::train::checkpoint::step_of(&lab.last("run")), Some(12));
}

#[test]
fn a_run_that_stopped_early_stays_stopped() {
    let lab = Lab::new("cpu", 30);
    let rules = ["--set", "early_stop.patience=2", "--set", "early_stop.min_delta=5"];
    lab.finish("run", &rules);
    let last = lab.last("run");
    lab.finish("run", &[&rules[..], &["--resume"]].concat());
    assert_eq!(lab.last("run"), last);
    assert!(wootz::train::checkpoint::step_of(&last).unwrap() < 30 * 4);
}

#[test]
fn two_processes_do_not_train_into_one_folder() {
    let lab = Lab::new("cpu", 400);
    let mut first = lab.command("run", &[]).spawn().expect("wootz starts");
    while !lab.folder.path().join("run/run.json").exists() {
        sleep(Duration::from_millis(10));
    }
    let second = lab.command("run", &["--resume"]).output().expect("wootz starts");
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    first.kill().unwrap();
    first.wait().unwrap();
    assert_eq!(second.status.code(), Some(2), "{said}");
    assert!(said.contains("another process"), "{said}");
}

#[test]
fn other_data_is_noticed() {
    let lab = Lab::new("cpu", 2);
    let csv = |sign: &str| -> String {
        let rows = (0..40).map(|i| format!("{sign}{},{},{}\n", i % 7, i % 5, i % 2));
        format!("a,b,y\n{}", rows.collect::<String>())
    };
    let data = lab.folder.path().join("rows.csv");
    fs::write(&data, csv("")).unwrap();
    let config = FROZEN.replace("OPTIMIZER", "{sgd: {lr: 0.1}}").replace(
        "synthetic: {kind: classification, samples: 64, shape: [6], classes: 3}",
        &format!("csv: {{path: {}, target: y, task: classification}}", data.display()),
    );
    fs::write(lab.folder.path().join("config.yaml"), config).unwrap();
    lab.finish("run", &["--steps", "4"]);
    fs::write(&data, csv("-")).unwrap();
    let resumed = lab.command("run", &["--resume"]).output().expect("wootz starts");
    let said = String::from_utf8_lossy(&resumed.stderr).into_owned();
    assert_eq!(resumed.status.code(), Some(2), "{said}");
    assert!(said.contains("other data"), "{said}");
}
