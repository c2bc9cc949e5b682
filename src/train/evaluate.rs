//! Evaluation: metrics over a whole set, from sums over its batches.

use crate::device::{DeviceError, Executor, Globals, Run};

use super::compile::{CORRECT, Compiled, LOSS, WEIGHT};
use super::watch::Metrics;

/// One batch of a set: its size and the bytes of each input.
pub struct Batch<'a> {
    /// Samples.
    pub size: usize,
    /// Bytes of each batch input.
    pub inputs: Vec<&'a [u8]>,
}

/// Sums of the statistics over batches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sums(Vec<f64>);

impl Sums {
    /// Adds one batch's statistics.
    pub fn add(&mut self, stats: &[f32]) {
        self.0.resize(stats.len(), 0.0);
        self.0.iter_mut().zip(stats).for_each(|(sum, value)| *sum += f64::from(*value));
    }

    /// The metrics, named `<set>/loss` and so on: exact over everything that was added, not a mean
    /// of means.
    pub fn metrics(&self, set: &str, accuracy: bool) -> Metrics {
        let weight = self.0.get(WEIGHT).copied().unwrap_or(0.0);
        let mut metrics =
            vec![(format!("{set}/loss"), self.0.get(LOSS).copied().unwrap_or(0.0) / weight)];
        if let Some(correct) = self.0.get(CORRECT).filter(|_| accuracy) {
            metrics.push((format!("{set}/accuracy"), correct / weight));
        }
        metrics
    }
}

/// Submits one batch for evaluation; its statistics come with the executor's reports.
///
/// # Errors
/// When the device fails.
pub fn submit(
    executor: &mut dyn Executor,
    compiled: &Compiled,
    batch: &Batch<'_>,
    tag: u64,
) -> Result<(), DeviceError> {
    let at = compiled.eval_sizes.iter().position(|size| *size == batch.size);
    let Some(program) = at.map(|at| compiled.plan.roles.eval[at]) else {
        return Err(DeviceError::Unfit(format!(
            "no evaluation was planned for batches of {}",
            batch.size
        )));
    };
    executor
        .submit(&[Run { program, inputs: batch.inputs.clone(), globals: Globals::default() }], tag)
}
