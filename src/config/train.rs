//! The sections about the run: `train`, `checkpoint`, `early_stop`. Read by the `train` room.

use std::path::PathBuf;

use super::macros::{choices, options};
use super::metric::Metric;
use super::schema::above;
use super::validate;

options! {
    /// How long and in what portions to train. Exactly one of `epochs` and `steps` is given.
    pub struct Train checked_by validate::train {
        /// Passes over the training samples.
        epochs: Option<usize> [1..],
        /// Optimizer steps.
        steps: Option<usize> [1..],
        /// Samples in a batch.
        batch_size: usize [1..],
        /// Batches whose gradients are averaged for one optimizer step.
        accumulate: usize [1..] = 1,
        /// Scales gradients down to this norm over all parameters.
        clip_norm: Option<f64> [above(0.0)],
        /// Optimizer steps between validations. Without it: each epoch.
        eval_every_steps: Option<usize> [1..],
        /// Leaves out the last batch of an epoch if it is not full.
        drop_last: bool = false,
        /// Visits the samples in a new order each epoch.
        shuffle: bool = true,
        /// Threads of the CPU to use. Without it: all.
        threads: Option<usize> [1..=1024],
    }
}

options! {
    /// When the run is saved, and what is kept.
    pub struct Checkpoint {
        /// Optimizer steps between checkpoints. Without it: by epochs.
        every_steps: Option<usize> [1..],
        /// Epochs between checkpoints, where `every_steps` is left out.
        every_epochs: usize [1..] = 1,
        /// How many of the latest are kept.
        keep_last: usize [1..] = 3,
        /// Keeps the best one as well.
        keep_best: Option<KeepBest>,
        /// The folder runs are made in, relative to the folder the command runs in.
        dir: PathBuf = PathBuf::from("checkpoints"),
    }
}

options! {
    /// Which checkpoint is the best.
    pub struct KeepBest {
        /// What to compare: `valid/loss`, or `valid/` and a metric.
        metric: String = "valid/loss".to_owned(),
        /// Which way is better. Without it: the way that the metric has.
        mode: Option<Mode>,
    }
}

options! {
    /// Ends the run when it no longer gets better.
    pub struct EarlyStop {
        /// What to watch: `valid/loss`, or `valid/` and a metric.
        metric: String = "valid/loss".to_owned(),
        /// Which way is better. Without it: the way that the metric has.
        mode: Option<Mode>,
        /// Validations without a better value before the run ends.
        patience: usize [1..],
        /// Changes up to this size do not count as better.
        min_delta: f64 [0.0..] = 0.0,
    }
}

choices! {
    /// Which way is better.
    pub enum Mode {
        /// Smaller.
        Min = "min",
        /// Larger.
        Max = "max",
    }
}

impl Mode {
    /// The way that is better for a metric such as `valid/loss`.
    pub fn natural(metric: &str) -> Self {
        if Metric::smaller_is_better(metric) { Self::Min } else { Self::Max }
    }
}

impl KeepBest {
    /// The mode given, or the natural one.
    pub fn mode(&self) -> Mode {
        self.mode.unwrap_or_else(|| Mode::natural(&self.metric))
    }
}

impl EarlyStop {
    /// The mode given, or the natural one.
    pub fn mode(&self) -> Mode {
        self.mode.unwrap_or_else(|| Mode::natural(&self.metric))
    }
}
