//! Goes through the trials of a sweep.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use super::SweepError;
use super::schedule;
use super::space::Values;
use super::store::{Next, State, Store, Trial, cost};
use super::trial::Launcher;
pub use super::trial::run_folder;
use crate::config::Decode;
use crate::config::sweep::Sweep;
use crate::train::signals::{Signals, Stop};

/// How often a worker without work looks for some.
const LOOK: Duration = Duration::from_millis(50);

/// A sweep to run.
pub struct Work<'a> {
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
    /// Bytes that a trial is planned to hold; nothing if it cannot be planned.
    pub bytes: &'a (dyn Fn(&Values) -> Option<u64> + Sync),
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
pub fn run(work: &Work<'_>, signals: &Signals) -> Result<Option<Stop>, SweepError> {
    let Work { sweep, folder, program, device, .. } = *work;
    let mut store = Store::open(folder)?;
    let path = folder.join(".lock");
    let lock = File::create(&path).map_err(SweepError::io("create", &path))?;
    if lock.try_lock().is_err() {
        let reason = "another process runs this sweep";
        return Err(SweepError::Usage(format!("{}: {reason}", folder.display())));
    }
    let mut definition = sweep.to_json();
    definition["base"] = work.base.clone();
    store.define(&definition)?;
    store.requeue_running()?;
    let shared = Shared {
        work,
        store: Mutex::new(store),
        launcher: Launcher { sweep, folder, program, device, signals },
        memory: Memory::new(sweep.memory_gib.map(|gib| (gib * f64::powi(2.0, 30)) as u64)),
        counted: Mutex::new(Instant::now()),
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..sweep.parallel).map(|_| scope.spawn(|| shared.work())).collect();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    Ok(signals.stop())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the workers of a process have in common.
struct Shared<'a> {
    work: &'a Work<'a>,
    store: Mutex<Store>,
    launcher: Launcher<'a>,
    memory: Memory,
    /// Until when the time of the sweep has been counted.
    counted: Mutex<Instant>,
}

impl Shared<'_> {
    /// Runs jobs until there are none.
    fn work(&self) -> Result<(), SweepError> {
        let signals = self.launcher.signals;
        while signals.stop().is_none() {
            let claimed = locked(&self.store).claim()?;
            let Some((job, trial)) = claimed else {
                match self.extend()? {
                    Next::Begin(..) | Next::GoOn(..) => {}
                    Next::Wait => std::thread::sleep(LOOK),
                    Next::Over => break,
                }
                continue;
            };
            let bytes = match &self.memory.most {
                Some(_) => (self.work.bytes)(&trial.values).unwrap_or_default(),
                None => 0,
            };
            let room = self.memory.take(bytes);
            let trial = self.launcher.run(&job, trial)?;
            drop(room);
            locked(&self.store).record(&job, &trial)?;
            self.count()?;
            if trial.state.has_ended() {
                (self.work.ended)(&trial);
            }
        }
        Ok(())
    }

    /// Decides on the next job.
    fn extend(&self) -> Result<Next, SweepError> {
        let sweep = self.work.sweep;
        let seconds = self.count()?;
        let late = sweep.minutes.is_some_and(|minutes| seconds >= minutes * 60.0);
        locked(&self.store).extend(|trials, jobs| {
            let reached = sweep.target.is_some_and(|target| {
                let done = trials.iter().filter(|trial| trial.state == State::Done);
                let goal = cost(Some(target), sweep.mode);
                done.into_iter().any(|trial| cost(trial.value, sweep.mode) <= goal)
            });
            if late || reached { Next::Over } else { schedule::next(sweep, trials, jobs) }
        })
    }

    /// Counts the time since the last call to the sweep's; gives all of it, in seconds.
    fn count(&self) -> Result<f64, SweepError> {
        let mut counted = locked(&self.counted);
        let passed = counted.elapsed().as_secs_f64();
        *counted = Instant::now();
        locked(&self.store).add_seconds(passed)
    }
}

/// The memory that trials share.
struct Memory {
    most: Option<u64>,
    /// Bytes of the trials that run, and their number.
    taken: Mutex<(u64, usize)>,
    freed: Condvar,
}

/// A part of the memory, which is given back when this is dropped.
struct Room<'a> {
    memory: &'a Memory,
    bytes: u64,
}

impl Memory {
    fn new(most: Option<u64>) -> Self {
        Memory { most, taken: Mutex::new((0, 0)), freed: Condvar::new() }
    }

    /// Waits until there is room for so many bytes.
    fn take(&self, bytes: u64) -> Room<'_> {
        let full = |(taken, trials): &mut (u64, usize)| {
            *trials > 0 && self.most.is_some_and(|most| taken.saturating_add(bytes) > most)
        };
        let taken = self.freed.wait_while(locked(&self.taken), full);
        let mut taken = taken.unwrap_or_else(PoisonError::into_inner);
        *taken = (taken.0.saturating_add(bytes), taken.1 + 1);
        Room { memory: self, bytes }
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        let mut taken = locked(&self.memory.taken);
        *taken = (taken.0.saturating_sub(self.bytes), taken.1.saturating_sub(1));
        self.memory.freed.notify_all();
    }
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
