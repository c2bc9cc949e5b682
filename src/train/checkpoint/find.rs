//! Which checkpoints a run's folder holds, which to keep and which to load.

use std::fs;
use std::path::{Path, PathBuf};

use super::{CheckpointError, Snapshot, disk};

/// A checkpoint that did not load, and why.
#[derive(Debug)]
pub struct Damaged {
    /// Its folder.
    pub path: PathBuf,
    /// What is wrong with it.
    pub error: CheckpointError,
}

/// The name of a step's folder.
pub(super) fn folder_name(step: u64) -> String {
    format!("step-{step:08}")
}

/// The step of a checkpoint's folder, by its name.
pub fn step_of(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix("step-")?.parse().ok()
}

/// All checkpoints of a run, oldest first.
pub fn by_age(run: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(run).map(|entries| entries.flatten().map(|e| e.path()).collect());
    let mut found: Vec<PathBuf> = entries.unwrap_or_default();
    found.retain(|path| step_of(path).is_some() && path.is_dir());
    found.sort_by_key(|path| step_of(path));
    found
}

/// The newest checkpoint that is whole, and the damaged ones that were passed over.
///
/// # Errors
/// When none is whole.
pub fn newest_good(run: &Path) -> Result<(PathBuf, Snapshot, Vec<Damaged>), CheckpointError> {
    let mut damaged = Vec::new();
    for path in by_age(run).into_iter().rev() {
        match disk::load(&path) {
            Ok(snapshot) => return Ok((path, snapshot, damaged)),
            Err(error) => damaged.push(Damaged { path, error }),
        }
    }
    let reasons: Vec<String> = damaged.iter().map(|d| d.error.to_string()).collect();
    let detail =
        if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join("; ")) };
    Err(CheckpointError::Nothing { path: run.to_owned(), detail })
}

/// The checkpoint that the newest good one names as the best so far, if it is there and whole; else
/// the newest good one. With the damaged ones that were passed over.
///
/// # Errors
/// When none is whole.
pub fn best(run: &Path) -> Result<(PathBuf, Snapshot, Vec<Damaged>), CheckpointError> {
    let (path, snapshot, mut damaged) = newest_good(run)?;
    let named = snapshot.state.best.as_ref().map(|best| run.join(folder_name(best.step)));
    if let Some(named) = named.filter(|named| *named != path) {
        match disk::load(&named) {
            Ok(best) => return Ok((named, best, damaged)),
            Err(error) => damaged.push(Damaged { path: named, error }),
        }
    }
    Ok((path, snapshot, damaged))
}

/// Removes all but the newest `keep_last` checkpoints and the one of step `best`.
///
/// # Errors
/// When a folder cannot be removed.
pub fn prune(run: &Path, keep_last: usize, best: Option<u64>) -> Result<(), CheckpointError> {
    let mut old = by_age(run);
    old.truncate(old.len().saturating_sub(keep_last.max(1)));
    old.iter().filter(|path| step_of(path) != best).try_for_each(|path| remove(path))
}

/// Removes a checkpoint.
///
/// # Errors
/// When the disk refuses.
pub fn remove(path: &Path) -> Result<(), CheckpointError> {
    // Renamed first: a folder half removed must not look like a checkpoint.
    let gone = path.with_file_name(format!(".removing-{}", std::process::id()));
    fs::rename(path, &gone).map_err(CheckpointError::io("move", path))?;
    fs::remove_dir_all(&gone).map_err(CheckpointError::io("remove", &gone))
}
