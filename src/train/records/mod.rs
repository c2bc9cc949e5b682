//! Records of a run for other programs. The run's folder hands each line of metrics.jsonl to every
//! [`Sink`].

pub mod csv;
pub mod event;
pub mod prometheus;
pub mod tensorboard;

use std::fmt::Debug;
use std::io;

use serde_json::Value as Json;

use super::checkpoint::NamedTensor;

/// Takes what a run measures.
pub trait Sink: Debug {
    /// The numbers of a step or a validation: one line of metrics.jsonl.
    ///
    /// # Errors
    /// When they cannot be written.
    fn record(&mut self, line: &Json) -> io::Result<()>;

    /// The run has gone back to the end of `step`: what came later will be measured again.
    ///
    /// # Errors
    /// When that cannot be written.
    fn rewound(&mut self, step: u64) -> io::Result<()>;

    /// Whether parameters are wanted at validations.
    fn wants_weights(&self) -> bool {
        false
    }

    /// The parameters after `step`.
    ///
    /// # Errors
    /// When they cannot be written.
    fn weights(&mut self, _step: u64, _tensors: &[NamedTensor]) -> io::Result<()> {
        Ok(())
    }

    /// Hands everything recorded to the system.
    ///
    /// # Errors
    /// When the disk refuses.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The numbers of a line with their names, the step left out; texts, matrices and truth values are
/// passed over.
pub fn numbers(line: &Json) -> impl Iterator<Item = (&str, f64)> {
    let entries = line.as_object().into_iter().flatten();
    let numbers = entries.filter_map(|(name, value)| Some((name.as_str(), value.as_f64()?)));
    numbers.filter(|(name, _)| *name != "step")
}
