//! The `optimizer` and `param_groups` sections. Read by the `train` room; the formulas are in
//! `ops::update`.

use super::macros::{choices, options, tagged};
use super::pattern::fits;
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
        /// Adam with the maximum of past gradients.
        Adamax(Adamax) = "adamax",
        /// Adam with Nesterov momentum.
        NAdam(NAdam) = "nadam",
        /// Adam with a rectified start.
        RAdam(RAdam) = "radam",
        /// Steps by the sum of all past squares.
        Adagrad(Adagrad) = "adagrad",
        /// Adagrad with a window and steps in the parameter's units.
        Adadelta(Adadelta) = "adadelta",
        /// Steps by the mean of past squares.
        RmsProp(RmsProp) = "rmsprop",
        /// Steps by the sign of the momentum.
        Lion(Lion) = "lion",
        /// Adam with steps as long as the layer's weights allow.
        Lamb(Lamb) = "lamb",
        /// Momentum with a rate for each layer.
        Lars(Lars) = "lars",
        /// Adam with factored second moments.
        Adafactor(Adafactor) = "adafactor",
        /// Orthogonal steps for matrices, AdamW for the rest.
        Muon(Muon) = "muon",
    }
}

macro_rules! common_options {
    ($($variant:ident),*) => {
        impl Optimizer {
            /// The base learning rate.
            pub fn lr(&self) -> f64 {
                match self {
                    $(Self::$variant(o) => o.lr),*
                }
            }

            /// Which parameters decay.
            pub fn decay(&self) -> Decay {
                match self {
                    $(Self::$variant(o) => o.decay),*
                }
            }
        }
    };
}

common_options!(
    Sgd, Adam, AdamW, Adamax, NAdam, RAdam, Adagrad, Adadelta, RmsProp, Lion, Lamb, Lars,
    Adafactor, Muon
);

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
        /// How much of the gradient is left out of the momentum, but for the first step.
        dampening: f64 [0.0..1.0] = 0.0,
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
        /// Divides by the largest second moment so far (Reddi and others, 2018).
        amsgrad: bool = false,
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
        /// Divides by the largest second moment so far (Reddi and others, 2018).
        amsgrad: bool = false,
        /// Which parameters decay.
        decay: Decay = Decay::Weights,
    }
}

options! {
    /// Adamax (Kingma and Ba, 2015), as in PyTorch.
    pub struct Adamax {
        /// Learning rate.
        lr: f64 [above(0.0)] = 2e-3,
        /// Decay rates of the first moment and of the maximum.
        betas: [f64; 2] [0.0..1.0] = [0.9, 0.999],
        /// Added to the gradient's absolute value.
        eps: f64 [above(0.0)] = 1e-8,
        /// Weight decay, added to the gradient.
        weight_decay: f64 [0.0..] = 0.0,
        /// Which parameters decay.
        decay: Decay = Decay::Weights,
    }
}

options! {
    /// NAdam (Dozat, 2016), as in PyTorch.
    pub struct NAdam {
        /// Learning rate.
        lr: f64 [above(0.0)] = 2e-3,
        /// Decay rates of the first and second moment.
        betas: [f64; 2] [0.0..1.0] = [0.9, 0.999],
        /// Added to the denominator.
        eps: f64 [above(0.0)] = 1e-8,
        /// Weight decay.
        weight_decay: f64 [0.0..] = 0.0,
        /// How fast the momentum rises to its rate.
        momentum_decay: f64 [0.0..] = 4e-3,
        /// Whether weight decay is apart from the gradient, as in `adamw`.
        decoupled_weight_decay: bool = false,
        /// Which parameters decay.
        decay: Decay = Decay::Weights,
    }
}

options! {
    /// RAdam (Liu and others, 2020), as in PyTorch.
    pub struct RAdam {
        /// Learning rate.
        lr: f64 [above(0.0)] = 1e-3,
        /// Decay rates of the first and second moment.
        betas: [f64; 2] [0.0..1.0] = [0.9, 0.999],
        /// Added to the denominator.
        eps: f64 [above(0.0)] = 1e-8,
        /// Weight decay.
        weight_decay: f64 [0.0..] = 0.0,
        /// Whether weight decay is apart from the gradient, as in `adamw`.
        decoupled_weight_decay: bool = false,
        /// Which parameters decay.
        decay: Decay = Decay::Weights,
    }
}

options! {
    /// Adagrad (Duchi and others, 2011), as in PyTorch.
    pub struct Adagrad {
        /// Learning rate.
        lr: f64 [above(0.0)] = 1e-2,
        /// The learning rate of step t is divided by `1 + (t - 1) * lr_decay`.
        lr_decay: f64 [0.0..] = 0.0,
        /// Added to the denominator.
        eps: f64 [above(0.0)] = 1e-10,
        /// Weight decay, added to the gradient.
        weight_decay: f64 [0.0..] = 0.0,
        /// What the sums of squares begin with.
        initial_accumulator_value: f64 [0.0..] = 0.0,
        /// Which parameters decay.
        decay: Decay = Decay::Weights,
    }
}

options! {
    /// Adadelta (Zeiler, 2012), as in PyTorch.
    pub struct Adadelta {
        /// Learning rate.
        lr: f64 [above(0.0)] = 1.0,
        /// Decay rate of both averages.
        rho: f64 [0.0..1.0] = 0.9,
        /// Added under both roots.
        eps: f64 [above(0.0)] = 1e-6,
        /// Weight decay, added to the gradient.
        weight_decay: f64 [0.0..] = 0.0,
        /// Which parameters decay.
        decay: Decay = Decay::Weights,
    }
}

options! {
    /// RMSprop (Hinton, 2012), as in PyTorch.
    pub struct RmsProp {
        /// Learning rate.
        lr: f64 [above(0.0)] = 1e-2,
        /// Decay rate of the mean square.
        alpha: f64 [0.0..1.0] = 0.99,
        /// Added to the denominator.
        eps: f64 [above(0.0)] = 1e-8,
        /// Weight decay, added to the gradient.
        weight_decay: f64 [0.0..] = 0.0,
        /// How much of the previous step is kept.
        momentum: f64 [0.0..1.0] = 0.0,
        /// Divides by the deviation of the gradient and not by its root mean square.
        centered: bool = false,
        /// Which parameters decay.
        decay: Decay = Decay::Weights,
    }
}

options! {
    /// Lion (Chen and others, 2023). Its learning rate is three to ten times smaller than
    /// AdamW's, its weight decay as much larger.
    pub struct Lion {
        /// Learning rate.
        lr: f64 [above(0.0)] = 1e-4,
        /// Rates of the direction and of the moment.
        betas: [f64; 2] [0.0..1.0] = [0.9, 0.99],
        /// Weight decay, apart from the gradient.
        weight_decay: f64 [0.0..] = 0.0,
        /// Which parameters decay.
        decay: Decay = Decay::Weights,
    }
}

options! {
    /// LAMB (You and others, 2020), for large batches.
    pub struct Lamb {
        /// Learning rate.
        lr: f64 [above(0.0)] = 1e-3,
        /// Decay rates of the first and second moment.
        betas: [f64; 2] [0.0..1.0] = [0.9, 0.999],
        /// Added to the denominator.
        eps: f64 [above(0.0)] = 1e-6,
        /// Weight decay, a part of the step whose length is scaled.
        weight_decay: f64 [0.0..] = 0.01,
        /// Which parameters decay.
        decay: Decay = Decay::Weights,
    }
}

options! {
    /// LARS (You and others, 2017), for large batches.
    pub struct Lars {
        /// Learning rate.
        lr: f64 [above(0.0)],
        /// How much of the previous step is kept.
        momentum: f64 [0.0..1.0] = 0.9,
        /// Weight decay, added to the gradient.
        weight_decay: f64 [0.0..] = 0.0,
        /// A layer's step as a share of its weights, before the learning rate.
        trust_coefficient: f64 [above(0.0)] = 1e-3,
        /// Added to the denominator of the layer's rate.
        eps: f64 [above(0.0)] = 1e-8,
        /// Which parameters decay.
        decay: Decay = Decay::Weights,
    }
}

options! {
    /// Adafactor (Shazeer and Stern, 2018), as in PyTorch.
    pub struct Adafactor {
        /// The largest relative step.
        lr: f64 [above(0.0)] = 1e-2,
        /// Step t moves the second moments by `t ^ beta2_decay`.
        beta2_decay: f64 [-1.0..=0.0] = -0.8,
        /// The least root of a second moment, and the least root mean square of a parameter that
        /// the step is relative to.
        eps: [f64; 2] [above(0.0)] = [1.1920929e-7, 1e-3],
        /// The largest root mean square of a step before its rate.
        d: f64 [above(0.0)] = 1.0,
        /// Weight decay, apart from the gradient.
        weight_decay: f64 [0.0..] = 0.0,
        /// Which parameters decay.
        decay: Decay = Decay::Weights,
    }
}

options! {
    /// Muon (Jordan and others, 2024), as in PyTorch: momentum made orthogonal for matrices;
    /// AdamW for every other parameter.
    pub struct Muon checked_by validate::muon {
        /// Learning rate of the matrices.
        lr: f64 [above(0.0)] = 1e-3,
        /// Weight decay, apart from the gradient.
        weight_decay: f64 [0.0..] = 0.1,
        /// How much of the momentum is kept.
        momentum: f64 [0.0..1.0] = 0.95,
        /// Nesterov's form of momentum.
        nesterov: bool = true,
        /// Coefficients of the Newton-Schulz steps.
        ns_coefficients: [f64; 3] = [3.4445, -4.775, 2.0315],
        /// Newton-Schulz steps.
        ns_steps: usize [1..100] = 5,
        /// The least norm that the momentum is divided by.
        eps: f64 [above(0.0)] = 1e-7,
        /// How steps are scaled by the matrix's shape.
        adjust_lr: AdjustLr = AdjustLr::Original,
        /// Matrices that AdamW takes as well: names of parameters, with `*` for any part. Embeddings
        /// and the last layer belong here.
        adamw_params: Vec<String> = Vec::new(),
        /// Learning rate of AdamW.
        adamw_lr: f64 [above(0.0)] = 1e-3,
        /// Decay rates of AdamW's moments.
        adamw_betas: [f64; 2] [0.0..1.0] = [0.9, 0.999],
        /// Added to AdamW's denominator.
        adamw_eps: f64 [above(0.0)] = 1e-8,
        /// Weight decay of what AdamW takes.
        adamw_weight_decay: f64 [0.0..] = 0.01,
        /// Which parameters decay.
        decay: Decay = Decay::Weights,
    }
}

choices! {
    /// How Muon scales a step by the matrix's shape.
    pub enum AdjustLr {
        /// By the root of rows over columns, where that is above 1.
        Original = "original",
        /// By 0.2 times the root of the larger side, so that AdamW's learning rates fit.
        MatchRmsAdamW = "match_rms_adamw",
    }
}

options! {
    /// Parameters that are trained in another way than the rest.
    pub struct ParamGroup {
        /// Names of the parameters, with `*` for any part: `h.*.attn.*`, `*.bias`. The first group
        /// that a parameter matches counts.
        params: String,
        /// Factor on the learning rate.
        lr_factor: f64 [above(0.0)] = 1.0,
        /// Weight decay. Without it: the optimizer's, where the parameter decays.
        weight_decay: Option<f64> [0.0..],
        /// Whether they are trained.
        trainable: bool = true,
    }
}

impl ParamGroup {
    /// Whether a parameter's name matches.
    pub fn matches(&self, name: &str) -> bool {
        fits(&self.params, name)
    }
}
