//! One trial: a `wootz train` of its own, and what its run folder says afterwards.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value as Json;

use super::SweepError;
use super::store::{Job, State, Trial};
use crate::config::sweep::Sweep;
use crate::train::run_dir::holds_run;
use crate::train::signals::Signals;

/// Most characters of a reason that are kept.
const LONGEST_REASON: usize = 2000;

/// What trials are run with.
pub struct Launcher<'a> {
    /// The sweep.
    pub sweep: &'a Sweep,
    /// Its folder.
    pub folder: &'a Path,
    /// The `wootz` program.
    pub program: &'a Path,
    /// The device instead of the configuration's.
    pub device: Option<&'a str>,
    /// What the person asks.
    pub signals: &'a Signals,
}

/// The run folder of a trial.
pub fn run_folder(folder: &Path, number: usize) -> PathBuf {
    folder.join("trials").join(format!("{number:04}"))
}

impl Launcher<'_> {
    /// Runs a job of a trial from the run's start or from its last checkpoint; gives the trial with
    /// what became of it, still queued if a signal ended it.
    ///
    /// # Errors
    /// When no process can be started or its files cannot be read.
    pub fn run(&self, job: &Job, mut trial: Trial) -> Result<Trial, SweepError> {
        let run = run_folder(self.folder, trial.number);
        let log = run.with_extension("log");
        let parent = self.folder.join("trials");
        fs::create_dir_all(&parent).map_err(SweepError::io("create", &parent))?;
        let file = File::create(&log).map_err(SweepError::io("create", &log))?;
        let mut command = Command::new(self.program);
        // Its input is a pipe that closes with this process, however that ends; then it ends too.
        command.args(["train", "--json", "--end-with-stdin", "--config"]).arg(&self.sweep.base);
        if !trial.values.contains_key("seed") {
            command.args(["--set", &format!("seed={}", trial.seed)]);
        }
        for (key, value) in &trial.values {
            command.args(["--set", &format!("{key}={value}")]);
        }
        self.device.iter().for_each(|device| _ = command.args(["--device", device]));
        command.arg("--run-dir").arg(&run);
        job.until.iter().for_each(|step| _ = command.args(["--steps", &step.to_string()]));
        if holds_run(&run) {
            command.arg("--resume");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file);
        let mut child = command.spawn().map_err(SweepError::io("start", self.program))?;
        let (mut input, output) = (child.stdin.take(), child.stdout.take());
        let status = loop {
            let ended = child.try_wait().map_err(SweepError::io("wait for", self.program))?;
            if let Some(status) = ended {
                break status;
            }
            if self.signals.stop().is_some() {
                input = None;
            }
            sleep(Duration::from_millis(20));
        };
        drop(input);
        if self.signals.stop().is_some() && !status.success() {
            trial.state = State::Queued;
            return Ok(trial);
        }
        let (steps, value, names) = measured(&run, &self.sweep.metric);
        trial.steps = steps;
        trial.reason = reason(&log);
        trial.state = match status.code() {
            Some(0) => ended(output),
            Some(2) => State::Invalid,
            Some(4) => State::Impossible,
            _ => State::Failed,
        };
        if !trial.state.is_wrong() {
            trial.value = value.filter(|value| value.is_finite());
            trial.reason = None;
            if trial.value.is_none() {
                trial.state = State::Failed;
                let metric = &self.sweep.metric;
                trial.reason =
                    Some(format!("no finite `{metric}` was measured; there are: {names}"));
            }
        } else if trial.reason.is_none() {
            trial.reason = Some(format!("the process ended without an error: {status}"));
        }
        Ok(trial)
    }
}

/// Whether a run came to its end or only to the step that was asked for, from its result.
fn ended(output: Option<ChildStdout>) -> State {
    let mut text = String::new();
    output.map(|mut output| output.read_to_string(&mut text));
    let result: Json = serde_json::from_str(&text).unwrap_or_default();
    let early = result["early_stop"] == Json::Bool(true);
    let short = result["step"].as_u64() < result["total_steps"].as_u64();
    if short && !early { State::Stopped } else { State::Done }
}

/// Steps, the last value of the metric, and the names of all metrics, from `metrics.jsonl`.
fn measured(run: &Path, metric: &str) -> (u64, Option<f64>, String) {
    let (mut steps, mut value, mut names) = (0, None, Vec::new());
    for line in fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default().lines() {
        let Ok(Json::Object(line)) = serde_json::from_str(line) else { continue };
        steps = line.get("step").and_then(Json::as_u64).unwrap_or(steps);
        value = line.get(metric).map_or(value, Json::as_f64);
        for name in line.keys().filter(|name| name.contains('/')) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
    }
    (steps, value, names.join(", "))
}

/// What the log says of the end: from its first error on; nothing where it names none.
fn reason(log: &Path) -> Option<String> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("error")).collect();
    let said: String = lines.join("\n").trim().chars().take(LONGEST_REASON).collect();
    (!said.is_empty()).then_some(said)
}
