//! Initialisers by name.

use crate::config::macros::{options, tagged};
use crate::plan::Init;

/// Inputs and outputs that one weight connects: the fan-in and fan-out of its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fans {
    /// Fan-in.
    pub fan_in: usize,
    /// Fan-out.
    pub fan_out: usize,
}

/// The fans of a weight whose first axis are outputs, the second inputs, and the others a kernel,
/// as PyTorch counts them.
pub fn fans_of(shape: &[usize]) -> Fans {
    let area: usize = shape[2..].iter().product();
    Fans { fan_in: shape[1] * area, fan_out: shape[0] * area }
}

options! {
    /// No options.
    pub struct Nothing {}
}

options! {
    /// Every element has one value.
    pub struct Constant {
        /// The value.
        value: f64,
    }
}

options! {
    /// Uniform in (−bound, bound).
    pub struct Uniform {
        /// The bound.
        bound: f64 [0.0..],
    }
}

options! {
    /// A normal distribution.
    pub struct Normal {
        /// Mean.
        mean: f64 = 0.0,
        /// Standard deviation.
        std: f64 [0.0..] = 0.02,
    }
}

tagged! {
    /// First values of a weight.
    pub enum Initializer {
        /// 0.
        Zeros(Nothing) = "zeros",
        /// 1.
        Ones(Nothing) = "ones",
        /// One value.
        Constant(Constant) = "constant",
        /// Uniform in (−bound, bound).
        Uniform(Uniform) = "uniform",
        /// Normal.
        Normal(Normal) = "normal",
        /// Normal, within two standard deviations.
        TruncNormal(Normal) = "trunc_normal",
        /// Uniform of variance 2 / fan-in (He et al. 2015).
        KaimingUniform(Nothing) = "kaiming_uniform",
        /// Normal of variance 2 / fan-in (He et al. 2015).
        KaimingNormal(Nothing) = "kaiming_normal",
        /// Uniform of variance 2 / (fan-in + fan-out) (Glorot & Bengio 2010).
        XavierUniform(Nothing) = "xavier_uniform",
        /// Normal of variance 2 / (fan-in + fan-out) (Glorot & Bengio 2010).
        XavierNormal(Nothing) = "xavier_normal",
    }
}

impl Initializer {
    /// The distribution for a weight with these fans.
    pub fn resolve(&self, fans: Fans) -> Init {
        let fan_in = fans.fan_in.max(1) as f64;
        let both = (fans.fan_in + fans.fan_out).max(1) as f64;
        match self {
            Initializer::Zeros(_) => Init::Constant(0.0),
            Initializer::Ones(_) => Init::Constant(1.0),
            Initializer::Constant(c) => Init::Constant(c.value as f32),
            Initializer::Uniform(u) => Init::Uniform(u.bound as f32),
            Initializer::Normal(n) => Init::Normal { mean: n.mean as f32, std: n.std as f32 },
            Initializer::TruncNormal(n) => {
                Init::TruncNormal { mean: n.mean as f32, std: n.std as f32 }
            }
            Initializer::KaimingUniform(_) => Init::Uniform((6.0 / fan_in).sqrt() as f32),
            Initializer::KaimingNormal(_) => {
                Init::Normal { mean: 0.0, std: (2.0 / fan_in).sqrt() as f32 }
            }
            Initializer::XavierUniform(_) => Init::Uniform((6.0 / both).sqrt() as f32),
            Initializer::XavierNormal(_) => {
                Init::Normal { mean: 0.0, std: (2.0 / both).sqrt() as f32 }
            }
        }
    }
}

/// PyTorch's default for linear and convolution weights and biases: uniform in ±1/√fan-in.
pub fn torch_default(fan_in: usize) -> Init {
    Init::Uniform((1.0 / (fan_in.max(1) as f64).sqrt()) as f32)
}
