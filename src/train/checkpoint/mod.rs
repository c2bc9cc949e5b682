//! Checkpoints: exact, atomic, verified.
//!
//! A checkpoint is a folder `step-NNNNNNNN` in the run's folder:
//! - `model.safetensors`: parameters and states under PyTorch's names and layouts;
//! - `optimizer.safetensors`: moments, as `<parameter>.<moment>`;
//! - `average.safetensors`: the average of the trained parameters, where one is kept;
//! - `state.json`: the step, the position in the data, what early stopping and the best metric
//!   remember;
//! - `manifest.json`: size and SHA-256 of the others, written last.
//!
//! It is written to a temporary folder, synced, and renamed; so a folder of that name is whole
//! unless the disk damaged it, and loading checks that.

mod disk;
mod find;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use disk::{load, save};
pub use find::{Damaged, best, by_age, newest_good, prune, remove, step_of};

/// A named tensor as it lies in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTensor {
    /// Such as `h.0.attn.in_proj_weight`.
    pub name: String,
    /// Extents.
    pub dims: Vec<usize>,
    /// Little-endian f32.
    pub bytes: Vec<u8>,
}

/// What the run remembers beside its tensors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Version of this format.
    pub format: u32,
    /// Optimizer steps done.
    pub step: u64,
    /// Epoch that the next step belongs to, from 0.
    pub epoch: u64,
    /// Samples of that epoch already used.
    pub cursor: u64,
    /// The run's seed.
    pub seed: u64,
    /// Samples in the training set: a resumed run must see the same.
    pub samples: u64,
    /// SHA-256 of the training data, likewise.
    pub data: String,
    /// The best value so far of the metric that `keep_best` watches.
    pub best: Option<Best>,
    /// What early stopping remembers.
    pub early_stop: Option<Waiting>,
    /// What `reduce_on_plateau` remembers.
    #[serde(default)]
    pub plateau: Option<Reduced>,
    /// What the health rules remember.
    #[serde(default)]
    pub health: Health,
}

/// What `reduce_on_plateau` remembers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reduced {
    /// The best value so far.
    pub best: f64,
    /// Validations since then that counted.
    pub since: u64,
    /// Validations that will not count.
    pub cooldown: u64,
    /// The factor on the learning rate.
    pub factor: f64,
}

/// What the health rules remember.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// Running mean of the loss, and the steps in it.
    pub spike: Mean,
    /// The same over the window of `plateau`.
    pub level: Mean,
    /// The lowest level so far.
    pub lowest: Option<f64>,
    /// Steps since then.
    pub since: u64,
    /// Steps in a row with a vanishing gradient.
    pub vanishing: u64,
    /// Steps that were left out because a number was not finite.
    pub skipped: u64,
    /// Rollbacks so far.
    pub rollbacks: u64,
}

/// An exponential mean, exact over its first steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mean {
    /// The mean.
    pub value: f64,
    /// Numbers in it.
    pub count: u64,
}

/// The best value of a metric so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// Such as `valid/accuracy`.
    pub metric: String,
    /// Its value.
    pub value: f64,
    /// The step it was reached at.
    pub step: u64,
}

/// What early stopping remembers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// The best value so far.
    pub best: f64,
    /// Evaluations since then.
    pub since: u64,
}

/// The content of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Parameters and states.
    pub model: Vec<NamedTensor>,
    /// Optimizer moments.
    pub optimizer: Vec<NamedTensor>,
    /// The average of the trained parameters; empty where none is kept.
    pub average: Vec<NamedTensor>,
    /// The rest.
    pub state: State,
}

/// The format version that this program writes.
pub const FORMAT: u32 = 1;

/// A checkpoint that cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The disk said no.
    #[error("cannot {action} {path}: {error}")]
    Io {
        /// Such as `write`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The content is not what was written.
    #[error("{path} is damaged: {reason}")]
    Damaged {
        /// The checkpoint's folder.
        path: PathBuf,
        /// What does not match.
        reason: String,
    },
    /// It belongs to another model or run.
    #[error("{path} does not fit this run: {reason}")]
    Mismatch {
        /// The checkpoint's folder.
        path: PathBuf,
        /// What differs.
        reason: String,
    },
    /// There is nothing to load.
    #[error("{path} holds no usable checkpoint{detail}")]
    Nothing {
        /// The run's folder.
        path: PathBuf,
        /// Why those that are there do not serve.
        detail: String,
    },
}

impl CheckpointError {
    /// What the system refused, as this error.
    pub fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |error| CheckpointError::Io { action, path, error }
    }
}
