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
        /// Clips each number of the gradient to plus and minus this, after `clip_norm`.
        clip_value: Option<f64> [above(0.0)],
        /// Clips the gradient of each unit by the norm of its weights, before `clip_norm`.
        clip_adaptive: Option<AdaptiveClip>,
        /// Adds noise to the gradient, after clipping.
        gradient_noise: Option<GradientNoise>,
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
    /// Adaptive gradient clipping (Brock and others, 2021). A unit is a row of a matrix, a kernel
    /// of one output channel, or a whole vector.
    pub struct AdaptiveClip {
        /// The largest norm of a unit's gradient, as a share of the norm of its weights.
        clip_factor: f64 [above(0.0)] = 0.01,
        /// The least norm of weights that is reckoned with.
        eps: f64 [above(0.0)] = 1e-3,
    }
}

options! {
    /// Gaussian noise on the mean gradient (Neelakantan and others, 2015). Its variance in step t is
    /// `eta / (1 + t) ^ gamma`.
    pub struct GradientNoise {
        /// The variance at the start.
        eta: f64 [above(0.0)],
        /// How fast it falls.
        gamma: f64 [0.0..] = 0.55,
    }
}

options! {
    /// When the run is saved, and what is kept.
    pub struct Checkpoint {
        /// Optimizer steps between checkpoints. Without it: by epochs.
        every_steps: Option<usize> [1..],
        /// Epochs between checkpoints, where `every_steps` is left out.
        every_epochs: usize [1..] = 1,
        /// Minutes after which it is saved as well.
        every_minutes: Option<f64> [above(0.0)],
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
