//! Why a run ends before its time.

use crate::data::DataError;
use crate::device::DeviceError;

use super::checkpoint::CheckpointError;
use super::health::FirstBad;
use super::weights::WeightsError;

/// Why a run ended before its time.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The data cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A checkpoint cannot be written or read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The file of `weights` cannot be used.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// An evaluation is not finite.
    #[error("{metric} is not finite")]
    NotFiniteMetric {
        /// Such as `valid/loss`.
        metric: String,
    },
    /// A health rule stopped the run.
    #[error("step {step}: {what} (`health.{rule}`); samples {samples}")]
    Unhealthy {
        /// The optimizer step.
        step: u64,
        /// The rule's key.
        rule: &'static str,
        /// What was seen.
        what: String,
        /// Ids of the step's samples.
        samples: String,
    },
    /// The run went back too often.
    #[error(
        "step {step}: {what}; the run has gone back {times} times already (`health.max_rollbacks`)"
    )]
    TooOften {
        /// The optimizer step.
        step: u64,
        /// What was seen.
        what: String,
        /// Rollbacks so far.
        times: u64,
    },
    /// A loss or gradient is not finite.
    #[error("step {step}: {what} not finite{}; samples {samples}; checkpoints up to step {good} are untouched",
        .first.as_ref().map_or(String::new(), |f| format!(": first in {} (`{}`, {} of {} elements)", f.layer, f.op, f.bad, f.of)))]
    NotFinite {
        /// The optimizer step.
        step: u64,
        /// `the loss is` or `1,234 gradients are`.
        what: String,
        /// Where it began, if running the step again showed it.
        first: Option<FirstBad>,
        /// Ids of the step's samples.
        samples: String,
        /// The last step before it.
        good: u64,
    },
}
