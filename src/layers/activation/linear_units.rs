//! `relu`, `leaky_relu`, `elu`, `selu` and `celu`: the identity where x is positive.

use super::Elementwise;
use crate::config::macros::options;
use crate::ops::map::{Binary, Code, Reg, Unary};

options! {
    /// max(x, 0).
    pub struct Relu {}
}

options! {
    /// x where x is positive, `negative_slope`·x elsewhere (Maas et al. 2013).
    pub struct LeakyRelu {
        /// The slope left of zero.
        negative_slope: f64 = 0.01,
    }
}

options! {
    /// x where x is positive, α·(eˣ − 1) elsewhere (Clevert et al. 2015).
    pub struct Elu {
        /// α, the depth left of zero.
        alpha: f64 = 1.0,
    }
}

options! {
    /// ELU with α = 1.6733, scaled by 1.0507: keeps mean 0 and variance 1 (Klambauer et al. 2017).
    pub struct Selu {}
}

options! {
    /// max(x, 0) + min(0, α·(e^{x/α} − 1)): ELU with slope 1 at zero (Barron 2017).
    pub struct Celu {
        /// α, the depth left of zero.
        alpha: f64 [1e-6..] = 1.0,
    }
}

/// max(x, 0), with gradient 0 at 0.
pub(super) fn positive(code: &mut Code, x: Reg) -> Reg {
    let zero = code.constant(0.0);
    code.binary(Binary::Max, x, zero)
}

/// x where x > 0, `slope`·x elsewhere.
pub(super) fn bent(code: &mut Code, x: Reg, slope: Reg) -> Reg {
    let (zero, one) = (code.constant(0.0), code.constant(1.0));
    let right = code.greater(x, zero);
    let left = code.sub(one, right);
    let sloped = code.mul(left, slope);
    let both = code.add(right, sloped);
    code.mul(x, both)
}

/// max(x, 0) + depth·(e^{min(x, 0)/width} − 1).
fn exponential(code: &mut Code, x: Reg, depth: f32, width: f32) -> Reg {
    let right = positive(code, x);
    let zero = code.constant(0.0);
    // In this order, so that at 0 the gradient is the left one, as in PyTorch.
    let left = code.binary(Binary::Min, zero, x);
    let scaled = code.scale(left, 1.0 / width);
    let bent = code.unary(Unary::Expm1, scaled);
    let bent = code.scale(bent, depth);
    code.add(right, bent)
}

impl Elementwise for Relu {
    fn code(&self, code: &mut Code, x: Reg) -> Reg {
        positive(code, x)
    }
}

impl Elementwise for LeakyRelu {
    fn code(&self, code: &mut Code, x: Reg) -> Reg {
        let slope = code.constant(self.negative_slope as f32);
        bent(code, x, slope)
    }
}

impl Elementwise for Elu {
    fn code(&self, code: &mut Code, x: Reg) -> Reg {
        exponential(code, x, self.alpha as f32, 1.0)
    }
}

impl Elementwise for Selu {
    fn code(&self, code: &mut Code, x: Reg) -> Reg {
        let y = exponential(code, x, 1.673_263_2, 1.0);
        code.scale(y, 1.050_701)
    }
}

impl Elementwise for Celu {
    fn code(&self, code: &mut Code, x: Reg) -> Reg {
        exponential(code, x, self.alpha as f32, self.alpha as f32)
    }
}
