//! `squeeze_excite`.

use super::activation::{Elementwise, HardSigmoid, Relu, Sigmoid, Silu};
use super::init::torch_default;
use super::{Layer, LayerCx, LayerError};
use crate::config::macros::{choices, options};
use crate::graph::ValueId;
use crate::ops::{map, matmul, reduce};

choices! {
    /// The activation between the two layers.
    pub enum Inner {
        /// max(x, 0).
        Relu = "relu",
        /// x·sigmoid(x).
        Silu = "silu",
    }
}

choices! {
    /// The activation that makes factors.
    pub enum Gate {
        /// 1 / (1 + e⁻ˣ).
        Sigmoid = "sigmoid",
        /// min(max(x + 3, 0), 6) / 6.
        HardSigmoid = "hard_sigmoid",
    }
}

options! {
    /// Multiplies each channel by a factor that two small layers make of all channels' means (Hu et
    /// al. 2017). Input and output `[batch, channels, height, width]`; parameters as in torchvision:
    /// `fc1.weight` of `[squeeze_channels, channels, 1, 1]`, `fc1.bias`, `fc2.weight` of `[channels,
    /// squeeze_channels, 1, 1]`, `fc2.bias`.
    pub struct SqueezeExcite {
        /// Numbers between the two layers.
        squeeze_channels: usize [1..],
        /// The activation after the first layer.
        activation: Inner = Inner::Relu,
        /// The activation after the second.
        scale_activation: Gate = Gate::Sigmoid,
    }
}

/// A fully connected layer under a 1x1 convolution's names.
fn dense(
    cx: &mut LayerCx<'_>,
    x: ValueId,
    [weight, bias]: [&str; 2],
    outs: usize,
    activation: &dyn Elementwise,
) -> Result<ValueId, LayerError> {
    let ins = cx.graph.shape(x).last();
    let weight = cx.param(weight, [outs, ins, 1, 1], torch_default(ins), true)?;
    let bias = cx.param(bias, [outs], torch_default(ins), false)?;
    let weight = cx.graph.reshape(weight, [outs, ins])?;
    let product = matmul::matmul(cx.graph, x, weight, false, true)?;
    let sum = map::add(cx.graph, product, bias)?;
    Ok(map::unary(cx.graph, sum, |code, x| activation.code(code, x))?)
}

impl Layer for SqueezeExcite {
    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let [batch, channels, height, width] = cx.image_dims(x)?;
        let flat = cx.graph.reshape(x, [batch, channels, height * width])?;
        let mean = reduce::mean(cx.graph, flat, &[2])?;
        let mean = cx.graph.reshape(mean, [batch, channels])?;
        let inner: &dyn Elementwise = match self.activation {
            Inner::Relu => &Relu {},
            Inner::Silu => &Silu {},
        };
        let gate: &dyn Elementwise = match self.scale_activation {
            Gate::Sigmoid => &Sigmoid {},
            Gate::HardSigmoid => &HardSigmoid {},
        };
        let squeezed = dense(cx, mean, ["fc1.weight", "fc1.bias"], self.squeeze_channels, inner)?;
        let factors = dense(cx, squeezed, ["fc2.weight", "fc2.bias"], channels, gate)?;
        let factors = cx.graph.reshape(factors, [batch, channels, 1, 1])?;
        Ok(map::mul(cx.graph, x, factors)?)
    }
}
