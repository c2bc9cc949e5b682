//! What ends a sweep. What ends a trial is a result, not an error.

use std::path::{Path, PathBuf};

/// What ended a sweep.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The command does not fit the sweep.
    #[error("{0}")]
    Usage(String),
    /// The record of trials cannot be used.
    #[error("{name}: {reason}")]
    Store {
        /// The database.
        name: String,
        /// What it says.
        reason: String,
    },
    /// A file or a process cannot be used.
    #[error("cannot {what} {path}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

impl SweepError {
    /// For `map_err`: `what` was tried on `path`.
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| SweepError::Io { what, path, source }
    }
}
