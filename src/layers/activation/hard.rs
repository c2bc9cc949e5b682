//! `relu6`, `hard_sigmoid` and `hard_swish`: made of straight lines, for cheap inference.

use super::Elementwise;
use super::linear_units::positive;
use crate::config::macros::options;
use crate::ops::map::{Binary, Code, Reg};

options! {
    /// min(max(x, 0), 6) (Howard et al. 2017).
    pub struct Relu6 {}
}

options! {
    /// min(max(x + 3, 0), 6) / 6.
    pub struct HardSigmoid {}
}

options! {
    /// x·min(max(x + 3, 0), 6) / 6 (Howard et al. 2019).
    pub struct HardSwish {}
}

fn clamped(code: &mut Code, x: Reg) -> Reg {
    let above = positive(code, x);
    let six = code.constant(6.0);
    code.binary(Binary::Min, above, six)
}

fn gate(code: &mut Code, x: Reg) -> Reg {
    let shifted = code.offset(x, 3.0);
    let clamped = clamped(code, shifted);
    code.scale(clamped, 1.0 / 6.0)
}

impl Elementwise for Relu6 {
    fn code(&self, code: &mut Code, x: Reg) -> Reg {
        clamped(code, x)
    }
}

impl Elementwise for HardSigmoid {
    fn code(&self, code: &mut Code, x: Reg) -> Reg {
        gate(code, x)
    }
}

impl Elementwise for HardSwish {
    fn code(&self, code: &mut Code, x: Reg) -> Reg {
        let gate = gate(code, x);
        code.mul(x, gate)
    }
}
