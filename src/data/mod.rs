//! Data: from the files that the `data` section names to batches of bytes.
//!
//! A [`Dataset`] knows its samples by number; [`Batches`] says which samples a step takes, as a
//! function of the seed and the step alone; a [`Loader`] fills the batches ahead on threads.

mod augment;
mod batches;
mod dataset;
mod loader;
mod order;
mod source;
mod vocabulary;
mod workers;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use batches::{Batches, Position};
pub use dataset::{Buffers, Dataset, Task};
pub use loader::{Loader, Micro, StepBatch};
pub use vocabulary::Vocabulary;

use crate::config::data::{Data, Source, Valid};
use dataset::Part;
use workers::Workers;

/// Data that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// A file cannot be read.
    #[error("cannot read {}: {error}{}", path.display(), place(path))]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// A file's content is not what it should be.
    #[error("{}: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What was expected and found, and where.
        reason: String,
    },
    /// The sets do not fit each other or the options.
    #[error("{0}")]
    Unfit(String),
}

/// Where a relative path was looked for.
fn place(path: &Path) -> String {
    match std::env::current_dir() {
        Ok(folder) if path.is_relative() => {
            format!(
                " (paths in `data` are relative to the folder the command runs in, {})",
                folder.display()
            )
        }
        _ => String::new(),
    }
}

impl DataError {
    fn content(path: &Path, reason: impl Into<String>) -> Self {
        DataError::Content { path: path.to_owned(), reason: reason.into() }
    }
}

/// The sets of a configuration.
#[derive(Clone, Debug)]
pub struct Splits {
    /// Trained on.
    pub train: Arc<Dataset>,
    /// Held out during training.
    pub valid: Option<Arc<Dataset>>,
    /// Held out until the end.
    pub test: Option<Arc<Dataset>>,
}

/// Opens all sets. A share that is held out is chosen by `seed`; of a text it is the end.
///
/// # Errors
/// When a file cannot be read or does not hold what it should, or when the sets do not fit each
/// other.
pub fn open(data: &Data, seed: u64) -> Result<Splits, DataError> {
    let normalize = data.normalize.as_ref();
    let workers = Arc::new(Workers::new(data.workers, data.prefetch_mb)?);
    let whole = source::open(&data.train, normalize, None)?;
    let (kept, held_out) = match data.valid {
        Some(Valid::Split(share)) => {
            let (kept, held_out) = whole.split(share, seed)?;
            (kept, Some(held_out))
        }
        _ => (Part::whole(&whole), None),
    };
    let like = |source: &Source| -> Result<Arc<Dataset>, DataError> {
        let content = source::open(source, normalize, Some(&whole))?;
        let part = Part::whole(&content);
        Ok(Arc::new(Dataset::new(Arc::new(content), part, workers.clone())))
    };
    let valid_source = match &data.valid {
        Some(Valid::Source(source)) => Some(like(source)?),
        _ => None,
    };
    let test = data.test.as_ref().map(like).transpose()?;
    let whole = Arc::new(whole);
    let train =
        Dataset::new(whole.clone(), kept, workers.clone()).augmented(&data.augment, seed)?;
    let valid =
        valid_source.or_else(|| held_out.map(|part| Arc::new(Dataset::new(whole, part, workers))));
    for (name, set) in [("valid", &valid), ("test", &test)] {
        if let Some(set) = set {
            fits(name, &train, set)?;
        }
    }
    tracing::info!(
        train = train.len(),
        valid = valid.as_ref().map(|set| set.len()),
        test = test.as_ref().map(|set| set.len()),
        "data opened"
    );
    Ok(Splits { train: Arc::new(train), valid, test })
}

/// A held-out set must have the types of the training set, and no class that it lacks.
fn fits(name: &str, train: &Dataset, set: &Dataset) -> Result<(), DataError> {
    let (ours, theirs) = (train.inputs(), set.inputs());
    let pairs = ours.iter().zip(theirs).chain([(train.target(), set.target())]);
    for (ours, theirs) in pairs {
        if ours.sample != theirs.sample {
            return Err(DataError::Unfit(format!(
                "`data.{name}`: `{}` is {}, but {} in `data.train`",
                theirs.name, theirs.sample, ours.sample
            )));
        }
    }
    match (train.classes(), set.classes()) {
        (Some(ours), Some(theirs)) if theirs > ours => Err(DataError::Unfit(format!(
            "`data.{name}` has {theirs} classes, `data.train` only {ours}"
        ))),
        _ => Ok(()),
    }
}
