//! The `optimizer` and `schedule` sections. Read by the `train` room, which defines the formulas.

use super::macros::{choices, options, tagged};
use super::schema::above;
use super::validate;

tagged! {
    /// How parameters follow their gradients.
    pub enum Optimizer {
        /// Stochastic gradient descent.
        Sgd(Sgd) = "sgd",
        /// Adam, with weight decay added to the gradient.
        Adam(Adam) = "adam",
        /// Adam, with weight decay apart from the gradient.
        AdamW(AdamW) = "adamw",
    }
}

choices! {
    /// Which parameters weight decay applies to.
    pub enum Decay {
        /// Matrices, convolution kernels and embeddings; not biases or normalization parameters.
        Weights = "weights",
        /// Every parameter.
        All = "all",
    }
}

options! {
    /// Stochastic gradient descent, as in PyTorch.
    pub struct Sgd checked_by validate::sgd {
        /// Learning rate.
        lr: f64 [above(0.0)],
        /// How much of the previous step is kept.
        momentum: f64 [0.0..1.0] = 0.0,
        /// Nesterov's form of momentum.
        nesterov: bool = false,
        /// Weight decay, added to the gradient.
        weight_decay: f64 [0.0..] = 0.0,
        /// Which parameters decay.
        decay: Decay = Decay::Weights,
    }
}

options! {
    /// Adam (Kingma and Ba, 2015), with weight decay added to the gradient.
    pub struct Adam {
        /// Learning rate.
        lr: f64 [above(0.0)] = 1e-3,
        /// Decay rates of the first and second moment.
        betas: [f64; 2] [0.0..1.0] = [0.9, 0.999],
        /// Added to the denominator.
        eps: f64 [above(0.0)] = 1e-8,
        /// Weight decay, added to the gradient.
        weight_decay: f64 [0.0..] = 0.0,
        /// Which parameters decay.
        decay: Decay = Decay::Weights,
    }
}

options! {
    /// AdamW (Loshchilov and Hutter, 2019): weight decay apart from the gradient.
    pub struct AdamW {
        /// Learning rate.
        lr: f64 [above(0.0)] = 1e-3,
        /// Decay rates of the first and second moment.
        betas: [f64; 2] [0.0..1.0] = [0.9, 0.999],
        /// Added to the denominator.
        eps: f64 [above(0.0)] = 1e-8,
        /// Weight decay: each step shrinks the parameter by `lr * weight_decay`.
        weight_decay: f64 [0.0..] = 0.01,
        /// Which parameters decay.
        decay: Decay = Decay::Weights,
    }
}

tagged! {
    /// How the learning rate changes over the run, as a factor on the optimizer's `lr`.
    pub enum Schedule {
        /// It stays, after the warm-up.
        Constant(Constant) = "constant",
        /// It falls along half a cosine.
        Cosine(Cosine) = "cosine",
        /// It changes along a straight line.
        Linear(Linear) = "linear",
    }
}

options! {
    /// The learning rate stays, after the warm-up.
    pub struct Constant {
        /// Steps over which the learning rate rises to `lr`.
        warmup_steps: usize = 0,
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
