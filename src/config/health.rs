//! The `health` and `average` sections. Read by the `train` room.

use super::macros::{choices, options, tagged};
use super::schema::above;

options! {
    /// What counts as a sick run, and what is done then. A rollback goes back to the last
    /// checkpoint with a lower learning rate.
    pub struct Health {
        /// When the loss or a gradient is not finite. The step has then changed nothing.
        not_finite: NotFinite = NotFinite::Stop,
        /// When the loss jumps.
        loss_spike: Option<LossSpike>,
        /// When the gradient is large.
        exploding_gradient: Option<ExplodingGradient>,
        /// When the gradient stays small.
        vanishing_gradient: Option<VanishingGradient>,
        /// When a step takes long. The run goes on with a warning.
        slow_step: Option<SlowStep>,
        /// When the training loss no longer falls.
        plateau: Option<Plateau>,
        /// Rollbacks after which the run stops.
        max_rollbacks: usize = 3,
        /// Factor on the learning rate at each rollback.
        lr_factor: f64 [0.0..=1.0] = 0.5,
    }
}

choices! {
    /// What is done about a number that is not finite.
    pub enum NotFinite {
        /// The run stops.
        Stop = "stop",
        /// The step is left out, and counted.
        Skip = "skip",
        /// Back to the last checkpoint with a lower learning rate.
        Rollback = "rollback",
    }
}

choices! {
    /// What is done when a rule strikes.
    pub enum Action {
        /// A warning, once for each time that the rule begins to strike.
        Warn = "warn",
        /// The run stops.
        Stop = "stop",
        /// Back to the last checkpoint with a lower learning rate.
        Rollback = "rollback",
    }
}

options! {
    /// The loss of a step is a multiple of its running mean.
    pub struct LossSpike {
        /// The multiple.
        factor: f64 [above(1.0)],
        /// Steps that the running mean goes back, and before which nothing is a spike.
        window: usize [1..] = 100,
        /// What is done.
        action: Action = Action::Warn,
    }
}

options! {
    /// The norm of the gradient, before clipping, is above a limit.
    pub struct ExplodingGradient {
        /// The limit.
        norm: f64 [above(0.0)],
        /// What is done.
        action: Action = Action::Warn,
    }
}

options! {
    /// The norm of the gradient is below a limit, step after step.
    pub struct VanishingGradient {
        /// The limit.
        norm: f64 [above(0.0)],
        /// How many steps in a row.
        steps: usize [1..] = 10,
        /// What is done.
        action: Action = Action::Warn,
    }
}

options! {
    /// A step takes a multiple of the time that steps usually take.
    pub struct SlowStep {
        /// The multiple.
        factor: f64 [above(1.0)] = 10.0,
    }
}

options! {
    /// The running mean of the training loss has found no new low for some time.
    pub struct Plateau {
        /// For how many steps.
        steps: usize [1..],
        /// Changes up to this size do not count as lower.
        min_delta: f64 [0.0..] = 0.0,
        /// Steps that the running mean goes back.
        window: usize [1..] = 100,
        /// What is done.
        action: Action = Action::Warn,
    }
}

tagged! {
    /// An average of the weights, kept beside them: validated and saved with them.
    pub enum Average {
        /// The exponential moving average.
        Ema(Ema) = "ema",
        /// The mean of snapshots (Izmailov and others, 2018).
        Swa(Swa) = "swa",
    }
}

options! {
    /// The exponential moving average: each step moves it by one less `decay`.
    pub struct Ema {
        /// How much of the average is kept.
        decay: f64 [0.0..1.0] = 0.999,
    }
}

options! {
    /// The mean of the weights after `start_step` and every so many steps from there.
    pub struct Swa {
        /// The step of the first snapshot. Until then the average is the weights themselves.
        start_step: usize [1..],
        /// Steps between snapshots.
        every_steps: usize [1..] = 1,
    }
}
