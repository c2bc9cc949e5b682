//! The record of a sweep: its trials, and the jobs that they were run by.

use std::path::Path;

use serde_json::Value as Json;

use super::SweepError;
use super::db::{Db, Row};
use super::space::Values;
use crate::config::train::Mode;

/// What became of a trial or a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// To be run, or to be gone on with.
    Queued,
    /// Being run.
    Running,
    /// Trained to its end.
    Done,
    /// Trained for as long as the scheduler saw fit.
    Stopped,
    /// Its configuration is wrong.
    Invalid,
    /// The device cannot hold or run it.
    Impossible,
    /// Training went wrong, such as by a loss that is not a number.
    Failed,
}

const STATES: [(State, &str); 7] = [
    (State::Queued, "queued"),
    (State::Running, "running"),
    (State::Done, "done"),
    (State::Stopped, "stopped"),
    (State::Invalid, "invalid"),
    (State::Impossible, "impossible"),
    (State::Failed, "failed"),
];

impl State {
    /// Its name in the database and in tables.
    pub fn word(self) -> &'static str {
        STATES.iter().find(|(state, _)| *state == self).map_or("", |(_, word)| word)
    }

    /// Whether it ended without a value.
    pub fn is_wrong(self) -> bool {
        matches!(self, State::Failed | State::Invalid | State::Impossible)
    }

    /// Whether it is neither to be run nor being run.
    pub fn has_ended(self) -> bool {
        !matches!(self, State::Queued | State::Running)
    }

    fn of(word: &str) -> Result<Self, String> {
        let found = STATES.iter().find(|(_, name)| *name == word);
        found.map(|(state, _)| *state).ok_or_else(|| format!("`{word}` is no state of a trial"))
    }
}

/// A trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// Its number, from 0.
    pub number: usize,
    /// What it tries.
    pub values: Values,
    /// The seed of its run.
    pub seed: u64,
    /// What became of it.
    pub state: State,
    /// The last value of the metric, of a trial that is done or stopped.
    pub value: Option<f64>,
    /// Steps trained.
    pub steps: u64,
    /// Why it has no value.
    pub reason: Option<String>,
}

/// A stretch of a trial that is run at one go. Without a scheduler a trial is one job.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its number, from 0, in the order in which jobs were decided on.
    pub number: usize,
    /// The trial's number.
    pub trial: usize,
    /// Which rung of the scheduler it reaches, from 0.
    pub rung: usize,
    /// The last step; `None` for the run's end.
    pub until: Option<u64>,
    /// What became of it.
    pub state: State,
    /// The metric at its end.
    pub value: Option<f64>,
}

/// What a sweep does next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// A new trial of these values and this seed is run until the step of a rung.
    Begin(Values, u64, usize, Option<u64>),
    /// A trial goes on until the step of a rung.
    GoOn(usize, usize, Option<u64>),
    /// Nothing before a job has ended.
    Wait,
    /// Nothing any more.
    Over,
}

/// An open record.
pub struct Store {
    name: String,
    db: Db,
}

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS sweep (
        id BIGINT PRIMARY KEY CHECK (id = 0), definition TEXT NOT NULL,
        seconds DOUBLE PRECISION NOT NULL DEFAULT 0);
    CREATE TABLE IF NOT EXISTS trials (
        number BIGINT PRIMARY KEY, parameters TEXT NOT NULL, seed BIGINT NOT NULL,
        state TEXT NOT NULL, value DOUBLE PRECISION, steps BIGINT NOT NULL DEFAULT 0, reason TEXT);
    CREATE TABLE IF NOT EXISTS jobs (
        number BIGINT PRIMARY KEY, trial BIGINT NOT NULL, rung BIGINT NOT NULL, until BIGINT,
        state TEXT NOT NULL, value DOUBLE PRECISION);";
const TRIAL: &str = "number, parameters, seed, state, value, steps, reason";
const JOB: &str = "number, trial, rung, until, state, value";

impl Store {
    /// Opens the record in a folder, and begins it where there is none.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn open(folder: &Path) -> Result<Self, SweepError> {
        std::fs::create_dir_all(folder).map_err(SweepError::io("create", folder))?;
        let path = folder.join("sweep.sqlite");
        let name = path.display().to_string();
        let open = || {
            let mut db = Db::sqlite(&path)?;
            db.batch(TABLES)?;
            Ok(db)
        };
        match open() {
            Ok(db) => Ok(Store { name, db }),
            Err(reason) => Err(SweepError::Store { name, reason }),
        }
    }

    /// Whether a folder holds a record.
    pub fn exists(folder: &Path) -> bool {
        folder.join("sweep.sqlite").exists()
    }

    fn tried<T>(
        &mut self,
        body: impl FnOnce(&mut Db) -> Result<T, String>,
    ) -> Result<T, SweepError> {
        body(&mut self.db).map_err(|reason| SweepError::Store { name: self.name.clone(), reason })
    }

    /// Keeps what the sweep is, the first time; later it must be the same.
    ///
    /// # Errors
    /// When the record is of another sweep.
    pub fn define(&mut self, definition: &Json) -> Result<(), SweepError> {
        let kept = self.tried(|db| {
            let insert = "INSERT INTO sweep (id, definition) VALUES (0, $1) ON CONFLICT DO NOTHING";
            db.rows(insert, &[definition.to_string().as_str().into()])?;
            db.rows("SELECT definition FROM sweep", &[])
        })?;
        let kept = kept.first().and_then(|row| row.text(0)).unwrap_or_default();
        let kept: Json = serde_json::from_str(kept).unwrap_or_default();
        let other: Vec<&str> = ["base", "metric", "mode", "sampler", "scheduler", "seed", "space"]
            .into_iter()
            .filter(|key| kept[*key] != definition[*key])
            .collect();
        if other.is_empty() {
            return Ok(());
        }
        Err(SweepError::Usage(format!(
            "{} was begun with another `{}`: give the sweep another `name`, or put it back",
            self.name,
            other.join("`, `")
        )))
    }

    /// Takes up again what a process that is gone was running.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn requeue_running(&mut self) -> Result<(), SweepError> {
        self.tried(|db| {
            db.batch(
                "UPDATE jobs SET state = 'queued' WHERE state = 'running';
                 UPDATE trials SET state = 'queued' WHERE state = 'running';",
            )
        })
    }

    /// Takes the first queued job, which is running from then on, and its trial.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn claim(&mut self) -> Result<Option<(Job, Trial)>, SweepError> {
        self.tried(|db| {
            db.transaction(|db| {
                let take = format!(
                    "UPDATE jobs SET state = 'running' WHERE number = (SELECT number FROM jobs \
                     WHERE state = 'queued' ORDER BY number LIMIT 1) RETURNING {JOB}"
                );
                let Some(job) = db.rows(&take, &[])?.first().map(job).transpose()? else {
                    return Ok(None);
                };
                let update = format!(
                    "UPDATE trials SET state = 'running' WHERE number = $1 RETURNING {TRIAL}"
                );
                let rows = db.rows(&update, &[job.trial.into()])?;
                Ok(rows.first().map(trial).transpose()?.map(|trial| (job, trial)))
            })
        })
    }

    /// Adds the next job as `decide` finds it from all trials and jobs; gives what it found.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn extend(
        &mut self,
        decide: impl FnOnce(&[Trial], &[Job]) -> Next,
    ) -> Result<Next, SweepError> {
        self.tried(|db| {
            db.transaction(|db| {
                let (trials, jobs) = (trials(db)?, jobs(db)?);
                let next = decide(&trials, &jobs);
                let (trial, rung, until) = match &next {
                    Next::Wait | Next::Over => return Ok(next),
                    Next::GoOn(trial, rung, until) => {
                        let update = "UPDATE trials SET state = 'queued' WHERE number = $1";
                        db.rows(update, &[(*trial).into()])?;
                        (*trial, *rung, *until)
                    }
                    Next::Begin(values, seed, rung, until) => {
                        let insert = "INSERT INTO trials (number, parameters, seed, state) \
                                      VALUES ($1, $2, $3, 'queued')";
                        let text = serde_json::json!(values).to_string();
                        let row = [trials.len().into(), text.as_str().into(), (*seed).into()];
                        db.rows(insert, &row)?;
                        (trials.len(), *rung, *until)
                    }
                };
                let insert = "INSERT INTO jobs (number, trial, rung, until, state) \
                              VALUES ($1, $2, $3, $4, 'queued')";
                db.rows(insert, &[jobs.len().into(), trial.into(), rung.into(), until.into()])?;
                Ok(next)
            })
        })
    }

    /// Writes down what became of a job and its trial.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn record(&mut self, job: &Job, trial: &Trial) -> Result<(), SweepError> {
        let Trial { number, state, value, steps, reason, .. } = trial;
        self.tried(|db| {
            db.transaction(|db| {
                let update = "UPDATE jobs SET state = $2, value = $3 WHERE number = $1";
                db.rows(update, &[job.number.into(), state.word().into(), (*value).into()])?;
                let update = "UPDATE trials SET state = $2, value = $3, steps = $4, reason = $5 \
                              WHERE number = $1";
                let (state, reason) = (state.word().into(), reason.as_deref().into());
                db.rows(
                    update,
                    &[(*number).into(), state, (*value).into(), (*steps).into(), reason],
                )
            })
        })
        .map(|_| ())
    }

    /// Queues the last job of a trial that went wrong again.
    ///
    /// # Errors
    /// When the trial did not go wrong, or the record cannot be written.
    pub fn retry(&mut self, trial: &Trial) -> Result<(), SweepError> {
        let Trial { number, state, .. } = trial;
        if !state.is_wrong() {
            let reason = "only `failed`, `invalid` and `impossible` ones are tried again";
            return Err(SweepError::Usage(format!("trial {number} is {}: {reason}", state.word())));
        }
        self.tried(|db| {
            db.transaction(|db| {
                let update = "UPDATE trials SET state = 'queued', reason = NULL WHERE number = $1";
                db.rows(update, &[(*number).into()])?;
                let update = "UPDATE jobs SET state = 'queued' WHERE number = \
                              (SELECT MAX(number) FROM jobs WHERE trial = $1)";
                db.rows(update, &[(*number).into()])
            })
        })
        .map(|_| ())
    }

    /// Adds to the time that the sweep has run; gives all of it, in seconds.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn add_seconds(&mut self, seconds: f64) -> Result<f64, SweepError> {
        let update = "UPDATE sweep SET seconds = seconds + $1 RETURNING seconds";
        let rows = self.tried(|db| db.rows(update, &[seconds.into()]))?;
        Ok(rows.first().and_then(|row| row.real(0)).unwrap_or_default())
    }

    /// All trials by number.
    ///
    /// # Errors
    /// When the record cannot be read.
    pub fn trials(&mut self) -> Result<Vec<Trial>, SweepError> {
        self.tried(trials)
    }

    /// All jobs by number.
    ///
    /// # Errors
    /// When the record cannot be read.
    pub fn jobs(&mut self) -> Result<Vec<Job>, SweepError> {
        self.tried(jobs)
    }
}

/// The best of the trials that are done, of equals the first; where none is, of those stopped.
pub fn best(trials: &[Trial], mode: Mode) -> Option<&Trial> {
    let of = |state: State| {
        let found = trials.iter().filter(move |trial| trial.state == state);
        let cost = |trial: &Trial| cost(trial.value, mode);
        found.min_by(|a, b| cost(a).total_cmp(&cost(b)))
    };
    of(State::Done).or_else(|| of(State::Stopped))
}

/// A value as a cost, of which less is better; infinite where there is none.
pub fn cost(value: Option<f64>, mode: Mode) -> f64 {
    let sign = if mode == Mode::Min { 1.0 } else { -1.0 };
    value.map_or(f64::INFINITY, |value| sign * value)
}

fn trials(db: &mut Db) -> Result<Vec<Trial>, String> {
    let rows = db.rows(&format!("SELECT {TRIAL} FROM trials ORDER BY number"), &[])?;
    rows.iter().map(trial).collect()
}

fn jobs(db: &mut Db) -> Result<Vec<Job>, String> {
    let rows = db.rows(&format!("SELECT {JOB} FROM jobs ORDER BY number"), &[])?;
    rows.iter().map(job).collect()
}

fn trial(row: &Row) -> Result<Trial, String> {
    let values = serde_json::from_str(row.text(1).unwrap_or_default());
    Ok(Trial {
        number: row.int(0) as usize,
        values: values.map_err(|error| format!("the values of a trial: {error}"))?,
        seed: row.int(2),
        state: State::of(row.text(3).unwrap_or_default())?,
        value: row.real(4),
        steps: row.int(5),
        reason: row.text(6).map(str::to_owned),
    })
}

fn job(row: &Row) -> Result<Job, String> {
    Ok(Job {
        number: row.int(0) as usize,
        trial: row.int(1) as usize,
        rung: row.int(2) as usize,
        until: row.maybe_int(3),
        state: State::of(row.text(4).unwrap_or_default())?,
        value: row.real(5),
    })
}
