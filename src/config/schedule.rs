//! The `schedule` section. Read by the `train` room, which defines the formulas.

use super::macros::{choices, options, tagged};
use super::schema::above;
use super::train::Mode;
use super::validate;

tagged! {
    /// How the learning rate changes over the run, as a factor on the optimizer's `lr`.
    pub enum Schedule {
        /// It stays, after the warm-up.
        Constant(Constant) = "constant",
        /// It is multiplied every so many steps.
        Step(Step) = "step",
        /// It is multiplied at given steps.
        MultiStep(MultiStep) = "multistep",
        /// It is multiplied each step.
        Exponential(Exponential) = "exponential",
        /// It falls along a power.
        Polynomial(Polynomial) = "polynomial",
        /// It falls along half a cosine.
        Cosine(Cosine) = "cosine",
        /// It falls along half a cosine, again and again.
        CosineRestarts(CosineRestarts) = "cosine_restarts",
        /// It rises and falls once.
        OneCycle(OneCycle) = "one_cycle",
        /// It falls with the root of the step.
        InverseSqrt(InverseSqrt) = "inverse_sqrt",
        /// It stays, and falls at the end.
        Wsd(Wsd) = "wsd",
        /// It changes along a straight line.
        Linear(Linear) = "linear",
        /// It goes up and down.
        Cyclic(Cyclic) = "cyclic",
        /// It follows given points.
        Piecewise(Piecewise) = "piecewise",
        /// It falls when a metric no longer gets better.
        ReduceOnPlateau(ReduceOnPlateau) = "reduce_on_plateau",
        /// Several schedules, one after another.
        Chained(Chained) = "chained",
    }
}

tagged! {
    /// A schedule in `chained`.
    pub enum Phase {
        /// It stays, after the warm-up.
        Constant(Constant) = "constant",
        /// It is multiplied every so many steps.
        Step(Step) = "step",
        /// It is multiplied at given steps.
        MultiStep(MultiStep) = "multistep",
        /// It is multiplied each step.
        Exponential(Exponential) = "exponential",
        /// It falls along a power.
        Polynomial(Polynomial) = "polynomial",
        /// It falls along half a cosine.
        Cosine(Cosine) = "cosine",
        /// It falls along half a cosine, again and again.
        CosineRestarts(CosineRestarts) = "cosine_restarts",
        /// It rises and falls once.
        OneCycle(OneCycle) = "one_cycle",
        /// It falls with the root of the step.
        InverseSqrt(InverseSqrt) = "inverse_sqrt",
        /// It stays, and falls at the end.
        Wsd(Wsd) = "wsd",
        /// It changes along a straight line.
        Linear(Linear) = "linear",
        /// It goes up and down.
        Cyclic(Cyclic) = "cyclic",
        /// It follows given points.
        Piecewise(Piecewise) = "piecewise",
    }
}

macro_rules! phases {
    ($($variant:ident),*) => {
        impl From<&Phase> for Schedule {
            fn from(phase: &Phase) -> Self {
                match phase {
                    $(Phase::$variant(options) => Schedule::$variant(options.clone())),*
                }
            }
        }
    };
}

phases!(
    Constant,
    Step,
    MultiStep,
    Exponential,
    Polynomial,
    Cosine,
    CosineRestarts,
    OneCycle,
    InverseSqrt,
    Wsd,
    Linear,
    Cyclic,
    Piecewise
);

options! {
    /// The learning rate stays, after the warm-up.
    pub struct Constant {
        /// Steps over which the learning rate rises to `lr`.
        warmup_steps: usize = 0,
    }
}

options! {
    /// After the warm-up the learning rate is multiplied by `gamma` every `step_size` steps.
    pub struct Step {
        /// Steps over which the learning rate rises to `lr`.
        warmup_steps: usize = 0,
        /// Steps between two changes.
        step_size: usize [1..],
        /// The factor of a change.
        gamma: f64 [above(0.0)] = 0.1,
    }
}

options! {
    /// After the warm-up the learning rate is multiplied by `gamma` at each milestone.
    pub struct MultiStep checked_by validate::multistep {
        /// Steps over which the learning rate rises to `lr`.
        warmup_steps: usize = 0,
        /// Steps after the warm-up, rising.
        milestones: Vec<usize> [1..],
        /// The factor of a change.
        gamma: f64 [above(0.0)] = 0.1,
    }
}

options! {
    /// After the warm-up the learning rate is multiplied by `gamma` each step.
    pub struct Exponential {
        /// Steps over which the learning rate rises to `lr`.
        warmup_steps: usize = 0,
        /// The factor of a step.
        gamma: f64 [above(0.0)],
    }
}

options! {
    /// After the warm-up the learning rate falls as a power of the share of steps that are left.
    pub struct Polynomial checked_by validate::polynomial {
        /// Steps over which the learning rate rises to `lr`.
        warmup_steps: usize = 0,
        /// The power.
        power: f64 [above(0.0)] = 1.0,
        /// The learning rate at the end.
        end_lr: f64 [0.0..] = 0.0,
        /// The step after which the end is reached. Without it: the last step of the run.
        total_steps: Option<usize> [1..],
    }
}

options! {
    /// After the warm-up the learning rate falls along half a cosine.
    pub struct Cosine checked_by validate::cosine {
        /// Steps over which the learning rate rises to `lr`.
        warmup_steps: usize = 0,
        /// The learning rate at the end.
        min_lr: f64 [0.0..] = 0.0,
        /// The step after which the end is reached. Without it: the last step of the run.
        total_steps: Option<usize> [1..],
    }
}

options! {
    /// After the warm-up the learning rate falls along half a cosine, and begins anew
    /// (Loshchilov and Hutter, 2017).
    pub struct CosineRestarts {
        /// Steps over which the learning rate rises to `lr`.
        warmup_steps: usize = 0,
        /// Steps of the first fall.
        t_0: usize [1..],
        /// How many times longer each fall is than the one before.
        t_mult: usize [1..] = 1,
        /// The learning rate at the end of a fall.
        min_lr: f64 [0.0..] = 0.0,
    }
}

options! {
    /// The learning rate rises to `lr`, falls back, and on to almost nothing (Smith and Topin,
    /// 2018), as in PyTorch.
    pub struct OneCycle {
        /// The share of the steps in which it rises.
        pct_start: f64 [0.0..=1.0] = 0.3,
        /// The curve.
        anneal_strategy: Anneal = Anneal::Cos,
        /// `lr` is so many times the first learning rate.
        div_factor: f64 [1.0..] = 25.0,
        /// The first learning rate is so many times the last.
        final_div_factor: f64 [1.0..] = 1e4,
        /// Falls as it rose, and then on to the end.
        three_phase: bool = false,
        /// The last step. Without it: the last step of the run.
        total_steps: Option<usize> [2..],
    }
}

choices! {
    /// The curve between two learning rates.
    pub enum Anneal {
        /// Half a cosine.
        Cos = "cos",
        /// A straight line.
        Linear = "linear",
    }
}

options! {
    /// The learning rate rises for `warmup_steps`, then falls with the root of the step (Vaswani
    /// and others, 2017).
    pub struct InverseSqrt {
        /// Steps over which the learning rate rises to `lr`; it has halved after four times as
        /// many.
        warmup_steps: usize [1..],
    }
}

options! {
    /// Warm-up, stable, decay (Hu and others, 2024): the learning rate stays until the last
    /// `decay_steps` steps.
    pub struct Wsd checked_by validate::wsd {
        /// Steps over which the learning rate rises to `lr`.
        warmup_steps: usize = 0,
        /// Steps over which it falls at the end.
        decay_steps: usize [1..],
        /// The curve of the fall.
        decay: WsdDecay = WsdDecay::Linear,
        /// The learning rate at the end.
        min_lr: f64 [0.0..] = 0.0,
        /// The step after which the end is reached. Without it: the last step of the run.
        total_steps: Option<usize> [1..],
    }
}

choices! {
    /// The fall of `wsd`.
    pub enum WsdDecay {
        /// A straight line.
        Linear = "linear",
        /// Half a cosine.
        Cosine = "cosine",
        /// One less the root of the share that is done (Hägele and others, 2024).
        Sqrt = "sqrt",
    }
}

options! {
    /// After the warm-up the learning rate changes along a straight line.
    pub struct Linear checked_by validate::linear {
        /// Steps over which the learning rate rises to `lr`.
        warmup_steps: usize = 0,
        /// The learning rate at the end.
        end_lr: f64 [0.0..] = 0.0,
        /// The step after which the end is reached. Without it: the last step of the run.
        total_steps: Option<usize> [1..],
    }
}

options! {
    /// After the warm-up the learning rate goes up and down between `base_lr` and the optimizer's
    /// `lr` (Smith, 2017), as in PyTorch.
    pub struct Cyclic {
        /// Steps over which the learning rate rises to `base_lr`.
        warmup_steps: usize = 0,
        /// The lower learning rate.
        base_lr: f64 [0.0..],
        /// Steps on the way up.
        step_size_up: usize [1..] = 2000,
        /// Steps on the way down. Without it: as many as up.
        step_size_down: Option<usize> [1..],
        /// How the height changes.
        mode: CyclicMode = CyclicMode::Triangular,
        /// The factor of a step in `exp_range`.
        gamma: f64 [above(0.0)] = 1.0,
    }
}

choices! {
    /// How the height of a cycle changes.
    pub enum CyclicMode {
        /// It stays.
        Triangular = "triangular",
        /// It halves with each cycle.
        Triangular2 = "triangular2",
        /// It is multiplied by `gamma` each step.
        ExpRange = "exp_range",
    }
}

options! {
    /// The learning rate follows straight lines between points.
    pub struct Piecewise checked_by validate::piecewise {
        /// Pairs of a step (from 0, rising) and a factor on `lr`. Before the first point and after
        /// the last one the factor stays.
        points: Vec<[f64; 2]> [0.0..],
    }
}

options! {
    /// The learning rate is multiplied by `factor` when a metric no longer gets better, as in
    /// PyTorch. What it remembers is in the checkpoint.
    pub struct ReduceOnPlateau {
        /// Steps over which the learning rate rises to `lr`.
        warmup_steps: usize = 0,
        /// What to watch: `valid/loss`, or `valid/` and a metric.
        metric: String = "valid/loss".to_owned(),
        /// Which way is better. Without it: `min` for a loss, `max` for accuracy.
        mode: Option<Mode>,
        /// The factor of a change.
        factor: f64 [0.0..1.0] = 0.1,
        /// Validations without a better value that change nothing yet.
        patience: usize = 10,
        /// Changes up to this size do not count as better.
        threshold: f64 [0.0..] = 1e-4,
        /// What `threshold` is relative to.
        threshold_mode: ThresholdMode = ThresholdMode::Rel,
        /// Validations after a change that are not counted.
        cooldown: usize = 0,
        /// The least learning rate.
        min_lr: f64 [0.0..] = 0.0,
        /// Changes of the learning rate up to this size are not made.
        eps: f64 [0.0..] = 1e-8,
    }
}

impl ReduceOnPlateau {
    /// The mode given, or the natural one.
    pub fn mode(&self) -> Mode {
        self.mode.unwrap_or_else(|| Mode::natural(&self.metric))
    }
}

choices! {
    /// What a threshold is relative to.
    pub enum ThresholdMode {
        /// The best value.
        Rel = "rel",
        /// Nothing: it is a difference.
        Abs = "abs",
    }
}

options! {
    /// Several schedules, one after another; each counts its steps from its own beginning.
    pub struct Chained checked_by validate::chained {
        /// The schedules.
        schedules: Vec<Phase>,
        /// Steps at which the second and later schedules begin, rising: one less than schedules.
        milestones: Vec<usize> [1..],
    }
}
