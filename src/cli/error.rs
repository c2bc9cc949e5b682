//! All errors that end a command, with their exit codes.

use crate::config::load::ConfigError;
use crate::data::DataError;
use crate::device::DeviceError;
use crate::sweep::SweepError;
use crate::train::checkpoint::CheckpointError;
use crate::train::error::TrainError;
use crate::train::model_io::RestoreError;
use crate::train::weights::WeightsError;

/// What ended a command.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The configuration is wrong; already rendered with its lines.
    #[error("{0}")]
    Config(String),
    /// The command line does not make sense.
    #[error("error: {0}")]
    Usage(String),
    /// The data cannot be used.
    #[error("error: {0}")]
    Data(#[from] DataError),
    /// The device cannot be used, or failed.
    #[error("error: {0}")]
    Device(#[from] DeviceError),
    /// A health rule stopped the run.
    #[error("error: {0}")]
    Health(String),
    /// A file cannot be written or read.
    #[error("error: {0}")]
    File(#[from] CheckpointError),
    /// A sweep's record, files or processes fail.
    #[error("error: {0}")]
    Sweep(String),
    /// A device gave other numbers than the CPU.
    #[error("error: {0}")]
    Differs(String),
}

impl CliError {
    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            CliError::File(_) | CliError::Sweep(_) => 1,
            CliError::Config(_) | CliError::Usage(_) => 2,
            CliError::Data(_) => 3,
            CliError::Device(_) | CliError::Differs(_) => 4,
            CliError::Health(_) => 5,
        }
    }
}

impl From<Box<ConfigError>> for CliError {
    fn from(error: Box<ConfigError>) -> Self {
        CliError::Config(error.to_string())
    }
}

impl From<SweepError> for CliError {
    fn from(error: SweepError) -> Self {
        match error {
            SweepError::Usage(reason) => CliError::Usage(reason),
            other => CliError::Sweep(other.to_string()),
        }
    }
}

impl From<TrainError> for CliError {
    fn from(error: TrainError) -> Self {
        match error {
            TrainError::Data(error) => CliError::Data(error),
            TrainError::Device(error) => CliError::Device(error),
            TrainError::Checkpoint(error) => CliError::File(error),
            TrainError::Weights(error) => error.into(),
            stopped => CliError::Health(stopped.to_string()),
        }
    }
}

impl From<RestoreError> for CliError {
    fn from(error: RestoreError) -> Self {
        match error {
            RestoreError::Mismatch(reason) => {
                CliError::Usage(format!("the checkpoint does not fit this model: {reason}"))
            }
            RestoreError::Device(error) => CliError::Device(error),
        }
    }
}

impl From<WeightsError> for CliError {
    fn from(error: WeightsError) -> Self {
        match error {
            WeightsError::Device(error) => CliError::Device(error),
            unfit @ WeightsError::Unfit(_) => CliError::Usage(unfit.to_string()),
        }
    }
}
