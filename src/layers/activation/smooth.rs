//! `gelu`, `silu`, `mish`, `tanh`, `sigmoid`, `softplus` and `softsign`.

use super::Elementwise;
use super::linear_units::positive;
use crate::config::macros::{choices, options};
use crate::ops::map::{Binary, Code, Reg, Unary};

choices! {
    /// How the normal distribution's Φ is computed.
    pub enum Approximate {
        /// By the error function.
        None = "none",
        /// By tanh, as GPT-2 does.
        Tanh = "tanh",
    }
}

options! {
    /// x·Φ(x) (Hendrycks & Gimpel 2016).
    pub struct Gelu {
        /// `none` is exact; `tanh` is the paper's approximation.
        approximate: Approximate = Approximate::None,
    }
}

options! {
    /// tanh x.
    pub struct Tanh {}
}

options! {
    /// 1 / (1 + e⁻ˣ).
    pub struct Sigmoid {}
}

options! {
    /// x / (1 + e⁻ˣ) (Elfwing et al. 2017).
    pub struct Silu {}
}

options! {
    /// x·tanh(ln(1 + eˣ)) (Misra 2019).
    pub struct Mish {}
}

options! {
    /// ln(1 + e^{βx}) / β: a smooth relu.
    pub struct Softplus {
        /// β, its sharpness.
        beta: f64 [1e-6..] = 1.0,
        /// Where βx is above it, the result is x.
        threshold: f64 = 20.0,
    }
}

options! {
    /// x / (1 + |x|).
    pub struct Softsign {}
}

impl Elementwise for Gelu {
    fn code(&self, code: &mut Code, x: Reg) -> Reg {
        let inner = match self.approximate {
            Approximate::None => {
                let scaled = code.scale(x, std::f32::consts::FRAC_1_SQRT_2);
                code.unary(Unary::Erf, scaled)
            }
            Approximate::Tanh => {
                // √(2/π)·(x + 0.044715·x³)
                let square = code.mul(x, x);
                let cube = code.mul(square, x);
                let bent = code.scale(cube, 0.044_715);
                let sum = code.add(x, bent);
                let scaled = code.scale(sum, 0.797_884_6);
                code.unary(Unary::Tanh, scaled)
            }
        };
        let one_plus = code.offset(inner, 1.0);
        let half = code.scale(x, 0.5);
        code.mul(half, one_plus)
    }
}

impl Elementwise for Tanh {
    fn code(&self, code: &mut Code, x: Reg) -> Reg {
        code.unary(Unary::Tanh, x)
    }
}

impl Elementwise for Sigmoid {
    fn code(&self, code: &mut Code, x: Reg) -> Reg {
        code.unary(Unary::Sigmoid, x)
    }
}

impl Elementwise for Silu {
    fn code(&self, code: &mut Code, x: Reg) -> Reg {
        let gate = code.unary(Unary::Sigmoid, x);
        code.mul(x, gate)
    }
}

impl Elementwise for Mish {
    /// tanh(ln(1 + e)) = n/(n + 2) with n = e(e + 2), e = eˣ; it is 1 from x = 20 on.
    fn code(&self, code: &mut Code, x: Reg) -> Reg {
        let most = code.constant(20.0);
        let small = code.binary(Binary::Min, x, most);
        let e = code.unary(Unary::Exp, small);
        let shifted = code.offset(e, 2.0);
        let n = code.mul(e, shifted);
        let below = code.offset(n, 2.0);
        let gate = code.binary(Binary::Div, n, below);
        code.mul(x, gate)
    }
}

impl Elementwise for Softplus {
    /// From βx = 30 on the logarithm is βx itself, so a larger threshold changes nothing but that
    /// e^{βx} stays finite.
    fn code(&self, code: &mut Code, x: Reg) -> Reg {
        let (beta, threshold) = (self.beta as f32, self.threshold.min(30.0) as f32);
        let scaled = code.scale(x, beta);
        let most = code.constant(threshold);
        let small = code.binary(Binary::Min, scaled, most);
        let e = code.unary(Unary::Exp, small);
        let log = code.unary(Unary::Log1p, e);
        let beyond = code.greater(scaled, most);
        let one = code.constant(1.0);
        let below = code.sub(one, beyond);
        let log = code.mul(below, log);
        let straight = positive(code, scaled);
        let straight = code.mul(beyond, straight);
        let sum = code.add(log, straight);
        code.scale(sum, 1.0 / beta)
    }
}

impl Elementwise for Softsign {
    fn code(&self, code: &mut Code, x: Reg) -> Reg {
        let size = code.unary(Unary::Abs, x);
        let below = code.offset(size, 1.0);
        code.binary(Binary::Div, x, below)
    }
}
