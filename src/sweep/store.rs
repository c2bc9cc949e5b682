//! The record of trials: one SQLite database in the sweep's folder.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::Value as Json;

use super::SweepError;
use super::space::Values;
use crate::config::train::Mode;

/// What became of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// To be run, or to be gone on with.
    Queued,
    /// Being run.
    Running,
    /// Trained to its end.
    Done,
    /// Its configuration is wrong.
    Invalid,
    /// The device cannot hold or run it.
    Impossible,
    /// Training went wrong, such as by a loss that is not a number.
    Failed,
}

const STATES: [(State, &str); 6] = [
    (State::Queued, "queued"),
    (State::Running, "running"),
    (State::Done, "done"),
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

    fn of(word: &str) -> Option<Self> {
        STATES.iter().find(|(_, name)| *name == word).map(|(state, _)| *state)
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
    /// The last value of the metric, of a trial that is done.
    pub value: Option<f64>,
    /// Steps trained.
    pub steps: u64,
    /// Why it has no value.
    pub reason: Option<String>,
}

/// An open record.
pub struct Store {
    path: PathBuf,
    db: Connection,
}

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS sweep (id INTEGER PRIMARY KEY CHECK (id = 0), definition TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS trials (
        number INTEGER PRIMARY KEY, parameters TEXT NOT NULL, seed INTEGER NOT NULL,
        state TEXT NOT NULL, value REAL, steps INTEGER NOT NULL DEFAULT 0, reason TEXT);";

impl Store {
    /// Opens the record in a folder, and begins it where there is none.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn open(folder: &Path) -> Result<Self, SweepError> {
        std::fs::create_dir_all(folder).map_err(SweepError::io("create", folder))?;
        let path = folder.join("sweep.sqlite");
        let open = || {
            let db = Connection::open(&path)?;
            db.busy_timeout(Duration::from_secs(10))?;
            db.pragma_update(None, "journal_mode", "WAL")?;
            db.execute_batch(TABLES)?;
            Ok(db)
        };
        match open() {
            Ok(db) => Ok(Store { path, db }),
            Err(source) => Err(SweepError::Store { path, source }),
        }
    }

    /// Whether a folder holds a record.
    pub fn exists(folder: &Path) -> bool {
        folder.join("sweep.sqlite").exists()
    }

    fn tried<T>(&self, result: rusqlite::Result<T>) -> Result<T, SweepError> {
        result.map_err(|source| SweepError::Store { path: self.path.clone(), source })
    }

    /// Keeps what the sweep is, the first time; later it must be the same.
    ///
    /// # Errors
    /// When the record is of another sweep.
    pub fn define(&self, definition: &Json) -> Result<(), SweepError> {
        let query = "SELECT definition FROM sweep";
        let kept: Option<String> =
            self.tried(self.db.query_row(query, [], |row| row.get(0)).optional())?;
        let Some(kept) = kept else {
            let insert = "INSERT INTO sweep (id, definition) VALUES (0, ?1)";
            return self.tried(self.db.execute(insert, [definition.to_string()])).map(|_| ());
        };
        let kept: Json = serde_json::from_str(&kept).unwrap_or_default();
        let other: Vec<&str> = ["base", "metric", "mode", "sampler", "seed", "space"]
            .into_iter()
            .filter(|key| kept[*key] != definition[*key])
            .collect();
        if other.is_empty() {
            return Ok(());
        }
        Err(SweepError::Usage(format!(
            "{} was begun with another `{}`: give the sweep another `name`, or put it back",
            self.path.display(),
            other.join("`, `")
        )))
    }

    /// Takes up again what a process that is gone was running.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn requeue_running(&self) -> Result<(), SweepError> {
        let update = "UPDATE trials SET state = 'queued' WHERE state = 'running'";
        self.tried(self.db.execute(update, [])).map(|_| ())
    }

    /// Adds a trial, queued.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn add(&self, number: usize, values: &Values, seed: u64) -> Result<(), SweepError> {
        let insert =
            "INSERT INTO trials (number, parameters, seed, state) VALUES (?1, ?2, ?3, 'queued')";
        let text = serde_json::json!(values).to_string();
        self.tried(self.db.execute(insert, params![number as i64, text, seed as i64])).map(|_| ())
    }

    /// Takes the first queued trial, which is running from then on.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn claim(&self) -> Result<Option<Trial>, SweepError> {
        let update = "UPDATE trials SET state = 'running' WHERE number =
            (SELECT MIN(number) FROM trials WHERE state = 'queued') RETURNING *";
        self.tried(self.db.query_row(update, [], trial).optional())
    }

    /// Writes down what became of a trial.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn record(&self, trial: &Trial) -> Result<(), SweepError> {
        let update =
            "UPDATE trials SET state = ?2, value = ?3, steps = ?4, reason = ?5 WHERE number = ?1";
        let Trial { number, state, value, steps, reason, .. } = trial;
        let row = params![*number as i64, state.word(), value, *steps as i64, reason];
        self.tried(self.db.execute(update, row)).map(|_| ())
    }

    /// Queues a trial that went wrong again.
    ///
    /// # Errors
    /// When it did not go wrong, or the record cannot be written.
    pub fn retry(&self, trial: &Trial) -> Result<(), SweepError> {
        let Trial { number, state, .. } = trial;
        if !state.is_wrong() {
            let reason = "only `failed`, `invalid` and `impossible` ones are tried again";
            return Err(SweepError::Usage(format!("trial {number} is {}: {reason}", state.word())));
        }
        let update = "UPDATE trials SET state = 'queued', reason = NULL WHERE number = ?1";
        self.tried(self.db.execute(update, [*number as i64])).map(|_| ())
    }

    /// All trials by number.
    ///
    /// # Errors
    /// When the record cannot be read.
    pub fn trials(&self) -> Result<Vec<Trial>, SweepError> {
        let read = || {
            let mut query = self.db.prepare("SELECT * FROM trials ORDER BY number")?;
            let rows = query.query_map([], trial)?;
            rows.collect()
        };
        self.tried(read())
    }

    /// The trial with the best value; of equals the first.
    ///
    /// # Errors
    /// When the record cannot be read.
    pub fn best(&self, mode: Mode) -> Result<Option<Trial>, SweepError> {
        let sign = if mode == Mode::Min { 1.0 } else { -1.0 };
        let cost = |trial: &Trial| trial.value.map_or(f64::INFINITY, |value| sign * value);
        let done = self.trials()?.into_iter().filter(|trial| trial.value.is_some());
        Ok(done.min_by(|a, b| cost(a).total_cmp(&cost(b))))
    }
}

fn trial(row: &Row<'_>) -> rusqlite::Result<Trial> {
    let bad = |what: &str| rusqlite::Error::InvalidColumnName(what.to_owned());
    let (text, word): (String, String) = (row.get("parameters")?, row.get("state")?);
    Ok(Trial {
        number: row.get::<_, i64>("number")? as usize,
        values: serde_json::from_str(&text).map_err(|_| bad("parameters"))?,
        seed: row.get::<_, i64>("seed")? as u64,
        state: State::of(&word).ok_or_else(|| bad("state"))?,
        value: row.get("value")?,
        steps: row.get::<_, i64>("steps")? as u64,
        reason: row.get("reason")?,
    })
}
