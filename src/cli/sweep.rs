//! `sweep`: many runs of one configuration, and what became of them.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;

use super::CliError;
use super::session::{Session, UNKNOWN_CLASSES};
use crate::config::diagnostic::Diagnostic;
use crate::config::sweep::Sweep;
use crate::config::{self, Decode, Override};
use crate::device::gpu;
use crate::layers::Model;
use crate::ops::Target;
use crate::plan::report;
use crate::sweep::run::{self, Work, document, run_folder, words};
use crate::sweep::space::{self, Values};
use crate::sweep::store::{State, Store, Trial, best};
use crate::train::signals::Signals;

/// Which sweep, and what of it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  wootz sweep --config configs/sweeps/digits-grid.yaml          run it, or go on with it
  wootz sweep status --config configs/sweeps/digits-grid.yaml
  wootz sweep best --config configs/sweeps/digits-grid.yaml --write best.yaml")]
pub struct SweepArgs {
    /// The sweep.
    #[arg(short, long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Run on this device instead of the configuration's.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// Show how many trials are in which state, and a line for each.
    Status,
    /// Show the best trial.
    Best {
        /// Write its configuration to this file.
        #[arg(long, value_name = "FILE")]
        write: Option<PathBuf>,
    },
    /// Show all that is known of a trial.
    Show {
        /// Its number.
        trial: usize,
    },
    /// Queue trials that went wrong again, for the next start of the sweep. They go on from their
    /// last checkpoints.
    Retry {
        /// Their numbers; all of them without.
        trials: Vec<usize>,
    },
    /// Write all trials as a table.
    Export {
        /// The file.
        #[arg(long, value_name = "FILE")]
        csv: PathBuf,
    },
}

/// Runs a sweep or shows a part of it.
pub fn run(args: SweepArgs) -> Result<u8, CliError> {
    let Some(file) = &args.config else {
        return Err(CliError::Usage("name the sweep with `--config FILE`".into()));
    };
    let runs = args.part.is_none();
    let sweep = config::load_sweep(file, |sweep, key| runs.then(|| fault(sweep, key)).flatten())?;
    let folder = run::folder(&sweep, file);
    let Some(part) = &args.part else { return go(&args, &sweep, &folder) };
    if !Store::exists(&folder) {
        return Err(CliError::Usage(format!("{}: this sweep has not begun", folder.display())));
    }
    let mut store = Store::open(&folder)?;
    match part {
        Part::Status => status(&mut store)?,
        Part::Best { write } => {
            let trials = store.trials()?;
            let best = best(&trials, sweep.mode);
            let best = best.ok_or_else(|| CliError::Usage("no trial is done yet".into()))?;
            line(best);
            if let Some(path) = write {
                let from = run_folder(&folder, best.number).join("config.yaml");
                std::fs::copy(&from, path).map_err(|e| cannot_write(path, &e))?;
            }
        }
        Part::Show { trial } => {
            let found = store.trials()?.into_iter().find(|t| t.number == *trial);
            let found =
                found.ok_or_else(|| CliError::Usage(format!("there is no trial {trial}")))?;
            super::print(&format!("{:#}", document(&found, &folder)));
        }
        Part::Retry { trials } => retry(&mut store, trials)?,
        Part::Export { csv } => export(&sweep, &store.trials()?, csv)?,
    }
    Ok(0)
}

fn go(args: &SweepArgs, sweep: &Sweep, folder: &Path) -> Result<u8, CliError> {
    let base = config::load(&sweep.base, &[])?.config.to_json();
    let program = std::env::current_exe()
        .map_err(|e| CliError::Usage(format!("cannot find this program's file: {e}")))?;
    let signals =
        Signals::watch().map_err(|e| CliError::Usage(format!("cannot watch for signals: {e}")))?;
    let device = args.device.as_deref();
    super::eprint(&format!("sweep folder: {}", folder.display()));
    let ended = |trial: &Trial| super::eprint(&words_of(trial));
    let bytes = |values: &Values| planned_bytes(sweep, values, device).ok();
    let work =
        Work { sweep, base, folder, program: &program, device, bytes: &bytes, ended: &ended };
    let stop = run::run(&work, &signals)?;
    let trials = Store::open(folder)?.trials()?;
    super::print(&counts(&trials));
    if let Some(best) = best(&trials, sweep.mode) {
        super::print(&format!("best: {}", words_of(best)));
    }
    Ok(stop.map_or(0, |stop| stop.exit_code()))
}

/// Bytes of the plan of a trial.
fn planned_bytes(sweep: &Sweep, values: &Values, device: Option<&str>) -> Result<u64, CliError> {
    let sets: Vec<String> = values.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let session = Session::open_file(&sweep.base, &sets, device)?;
    let target = session.device()?.target();
    let compiled = session.compile(&target)?;
    let staging = match target {
        Target::Cpu => 0,
        Target::Gpu(_) => gpu::staging_bytes(&compiled.plan),
    };
    Ok(report::total_bytes(&compiled.plan) + staging)
}

/// Draws that are looked at for a key's first values.
const DRAWS: usize = 64;

/// What is wrong with a key of the space itself, whatever its value.
fn fault(sweep: &Sweep, key: &str) -> Option<Diagnostic> {
    let draws = (0..DRAWS).map(|number| space::random(sweep, number));
    let mut found = None;
    // Where a key fits one of several sections only, the fault must be there for each of them.
    for values in draws.filter(|values| values.contains_key(key)).take(4) {
        let sets = values.iter().map(|(key, value)| Override::new(format!("{key}={value}")));
        let sets: Vec<Override> = sets.collect();
        let variables = |name: &str| std::env::var(name).ok();
        let model =
            |node: &config::Node, cx: &mut config::Cx| Model::decode(node, UNKNOWN_CLASSES, cx);
        let error = config::load_with(&sweep.base, &sets, &variables, model).err()?;
        let (file, end) = (format!("--set {key}="), key.chars().count());
        let of_key = |d: &&&Diagnostic| {
            let source = error.sources().get(d.span.file);
            source.name.starts_with(&file) && d.span.column as usize <= end
        };
        found = Some((*error.diagnostics().iter().find(of_key)?).clone());
    }
    found
}

fn retry(store: &mut Store, numbers: &[usize]) -> Result<(), CliError> {
    let trials = store.trials()?;
    if let Some(number) = numbers.iter().find(|number| **number >= trials.len()) {
        return Err(CliError::Usage(format!("there is no trial {number}")));
    }
    let wanted = trials.iter().filter(|trial| match numbers {
        [] => trial.state.is_wrong(),
        some => some.contains(&trial.number),
    });
    let wanted: Vec<&Trial> = wanted.collect();
    wanted.iter().try_for_each(|trial| store.retry(trial))?;
    super::print(&format!("{} trials queued again", wanted.len()));
    Ok(())
}

fn words_of(trial: &Trial) -> String {
    let result = match (&trial.value, &trial.reason) {
        (Some(value), _) => format!("{value}"),
        (None, Some(reason)) => reason.lines().next().unwrap_or_default().to_owned(),
        (None, None) => String::new(),
    };
    format!("trial {}  {}  {}  {result}", trial.number, words(trial), trial.state.word())
}

fn line(trial: &Trial) {
    super::print(words_of(trial).trim_end());
}

fn counts(trials: &[Trial]) -> String {
    use State::{Done, Failed, Impossible, Invalid, Queued, Running, Stopped};
    let of = |state: State| trials.iter().filter(|trial| trial.state == state).count();
    let parts = [Done, Stopped, Failed, Invalid, Impossible, Running, Queued]
        .map(|state| (of(state), state));
    let shown = parts.iter().filter(|(count, _)| *count > 0);
    let shown: Vec<String> = shown.map(|(n, state)| format!("{n} {}", state.word())).collect();
    format!("{} trials: {}", trials.len(), shown.join(", "))
}

fn status(store: &mut Store) -> Result<(), CliError> {
    let trials = store.trials()?;
    super::print(&counts(&trials));
    trials.iter().for_each(line);
    Ok(())
}

fn export(sweep: &Sweep, trials: &[Trial], path: &Path) -> Result<(), CliError> {
    let write = || -> Result<(), csv::Error> {
        let mut table = csv::Writer::from_path(path)?;
        let head = ["trial", "state", "value", "steps", "seed", "reason"];
        table.write_record(head.into_iter().chain(sweep.space.keys().map(String::as_str)))?;
        for trial in trials {
            let value = trial.value.map(|value| json!(value).to_string()).unwrap_or_default();
            let mut row = vec![trial.number.to_string(), trial.state.word().to_owned(), value];
            row.extend([trial.steps.to_string(), trial.seed.to_string()]);
            row.push(trial.reason.clone().unwrap_or_default());
            row.extend(sweep.space.keys().map(|key| match trial.values.get(key) {
                Some(serde_json::Value::String(text)) => text.clone(),
                other => other.map(ToString::to_string).unwrap_or_default(),
            }));
            table.write_record(row)?;
        }
        Ok(table.flush()?)
    };
    write().map_err(|e| cannot_write(path, &e))
}

fn cannot_write(path: &Path, error: &dyn std::fmt::Display) -> CliError {
    CliError::Sweep(format!("cannot write {}: {error}", path.display()))
}
