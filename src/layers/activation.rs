//! Activations: elementwise maps, and softmax.

use super::{Layer, LayerCx, LayerError};
use crate::config::macros::{choices, options};
use crate::graph::ValueId;
use crate::ops::map::{self, Binary, Code, Reg, Unary};
use crate::ops::softmax;

options! {
    /// max(x, 0).
    pub struct Relu {}
}

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
    /// eˣ / Σ eˣ over the last axis. Not needed before `cross_entropy`, which takes logits.
    pub struct Softmax {}
}

fn elementwise(
    cx: &mut LayerCx<'_>,
    x: ValueId,
    f: impl FnOnce(&mut Code, Reg) -> Reg,
) -> Result<ValueId, LayerError> {
    cx.float_dims(x)?;
    Ok(map::unary(cx.graph, x, f)?)
}

impl Layer for Relu {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        elementwise(cx, x, |code, x| {
            let zero = code.constant(0.0);
            code.binary(Binary::Max, x, zero)
        })
    }
}

impl Layer for Gelu {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        elementwise(cx, x, |code, x| {
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
        })
    }
}

impl Layer for Tanh {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        elementwise(cx, x, |code, x| code.unary(Unary::Tanh, x))
    }
}

impl Layer for Sigmoid {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        elementwise(cx, x, |code, x| code.unary(Unary::Sigmoid, x))
    }
}

impl Layer for Silu {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        elementwise(cx, x, |code, x| {
            let gate = code.unary(Unary::Sigmoid, x);
            code.mul(x, gate)
        })
    }
}

impl Layer for Softmax {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        if cx.float_dims(x)?.len() < 2 {
            return Err(LayerError("needs an input of [batch, …, classes]".into()));
        }
        Ok(cx.graph.op(softmax::Softmax, &[x])?)
    }
}
