//! Goes through the trials of a sweep.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value as Json, json};

use super::SweepError;
use super::space;
use super::store::{Store, Trial};
use super::trial::Launcher;
pub use super::trial::run_folder;
use crate::config::Decode;
use crate::config::sweep::Sweep;
use crate::train::signals::{Signals, Stop};

/// A sweep to run.
pub struct Job<'a> {
    /// The sweep.
    pub sweep: &'a Sweep,
    /// Its base configuration as it was resolved.
    pub base: Json,
    /// Its folder.
    pub folder: &'a Path,
    /// The `wootz` program.
    pub program: &'a Path,
    /// The device instead of the configuration's.
    pub device: Option<&'a str>,
    /// Is told each trial that has ended.
    pub ended: &'a (dyn Fn(&Trial) + Sync),
}

/// The folder of a sweep; `file` is where it was read from.
pub fn folder(sweep: &Sweep, file: &Path) -> PathBuf {
    let stem = file.file_stem().map_or("sweep".into(), |stem| stem.to_string_lossy().into_owned());
    sweep.dir.join(sweep.name.as_ref().unwrap_or(&stem))
}

/// Runs what is left of a sweep; gives the signal that ended it, if one did.
///
/// # Errors
/// When another process runs it, its record is of another sweep, or files or processes fail.
pub fn run(job: &Job<'_>, signals: &Signals) -> Result<Option<Stop>, SweepError> {
    let Job { sweep, folder, program, device, .. } = *job;
    let store = Store::open(folder)?;
    let path = folder.join(".lock");
    let lock = File::create(&path).map_err(SweepError::io("create", &path))?;
    if lock.try_lock().is_err() {
        let reason = "another process runs this sweep";
        return Err(SweepError::Usage(format!("{}: {reason}", folder.display())));
    }
    let mut definition = sweep.to_json();
    definition["base"] = job.base.clone();
    store.define(&definition)?;
    store.requeue_running()?;
    let known = store.trials()?.len();
    for number in known..space::trials(sweep) {
        if let Some(values) = space::values(sweep, number) {
            store.add(number, &values, space::trial_seed(sweep, number))?;
        }
    }
    let store = Mutex::new(store);
    let launcher = Launcher { sweep, folder, program, device, signals };
    let work = || -> Result<(), SweepError> {
        while signals.stop().is_none() {
            let claimed = store.lock().unwrap_or_else(PoisonError::into_inner).claim()?;
            let Some(trial) = claimed else { break };
            let trial = launcher.run(trial)?;
            store.lock().unwrap_or_else(PoisonError::into_inner).record(&trial)?;
            if trial.state != super::store::State::Queued {
                (job.ended)(&trial);
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..sweep.parallel).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    Ok(signals.stop())
}

/// The words of a trial's values: `key=value` with blanks between.
pub fn words(trial: &Trial) -> String {
    let pairs = trial.values.iter().map(|(key, value)| format!("{key}={value}"));
    pairs.collect::<Vec<_>>().join(" ")
}

/// A trial as a JSON document.
pub fn document(trial: &Trial, folder: &Path) -> Json {
    json!({
        "trial": trial.number, "state": trial.state.word(), "value": trial.value,
        "steps": trial.steps, "seed": trial.seed, "values": trial.values, "reason": trial.reason,
        "run": run_folder(folder, trial.number),
    })
}
