//! `group_norm` and `instance_norm`.

use super::{Layer, LayerCx, LayerError, batch_shape};
use crate::config::macros::options;
use crate::graph::{Shape, ValueId};
use crate::ops::layer_norm::{self, Affine, LayerNorm};
use crate::ops::map::{self, Code};
use crate::plan::Init;

options! {
    /// Normalises groups of channels of each sample (Wu & He 2018), then scales each channel by
    /// `weight` and shifts it by `bias`. Input and output `[batch, channels, …]`. It does the same
    /// in training and in evaluation.
    pub struct GroupNorm {
        /// Number of groups; must divide the channels.
        num_groups: usize [1..],
        /// Added to the variance.
        eps: f64 [0.0..] = 1e-5,
        /// Whether there are a learned `weight` and `bias`.
        affine: bool = true,
    }
}

options! {
    /// Normalises each channel of each sample (Ulyanov et al. 2016). Input and output `[batch,
    /// channels, …]`. It does the same in training and in evaluation: there are no running
    /// statistics.
    pub struct InstanceNorm {
        /// Added to the variance.
        eps: f64 [0.0..] = 1e-5,
        /// Whether each channel is scaled by a learned `weight` and shifted by a `bias`.
        affine: bool = false,
    }
}

/// Normalises `groups` groups of channels of each sample.
fn grouped(
    cx: &mut LayerCx<'_>,
    x: ValueId,
    groups: usize,
    eps: f64,
    affine: bool,
) -> Result<ValueId, LayerError> {
    let shape = cx.graph.shape(x).clone();
    let (batch, channels) = (shape.dims()[0], shape.dims()[1]);
    let each = shape.elements() / (batch * groups);
    let rows = cx.graph.reshape(x, [batch * groups, each])?;
    let op = LayerNorm { eps: eps as f32, centred: true };
    let normal = layer_norm::layer_norm(cx.graph, rows, Affine::default(), op)?;
    let normal = cx.graph.reshape(normal, shape.clone())?;
    if !affine {
        return Ok(normal);
    }
    let weight = cx.param("weight", [channels], Init::Constant(1.0), false)?;
    let bias = cx.param("bias", [channels], Init::Constant(0.0), false)?;
    let mut column = vec![1; shape.rank() - 1];
    column[0] = channels;
    let weight = cx.graph.reshape(weight, Shape::new(column.clone()))?;
    let bias = cx.graph.reshape(bias, Shape::new(column))?;
    let code = Code::of(|code| {
        let [x, weight, bias] = [0, 1, 2].map(|i| code.input(i));
        let scaled = code.mul(x, weight);
        code.add(scaled, bias)
    });
    Ok(map::apply(cx.graph, code, &[normal, weight, bias], shape)?)
}

impl Layer for GroupNorm {
    fn has_parameters(&self) -> bool {
        self.affine
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let dims = cx.float_dims(x)?;
        let Some(channels) = dims.get(1) else {
            return Err(LayerError("needs an input of [batch, channels, …]".into()));
        };
        if channels % self.num_groups != 0 {
            return Err(LayerError(format!(
                "cannot split {channels} channels into {} groups",
                self.num_groups
            )));
        }
        grouped(cx, x, self.num_groups, self.eps, self.affine)
    }
}

impl Layer for InstanceNorm {
    fn has_parameters(&self) -> bool {
        self.affine
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let dims = cx.float_dims(x)?;
        if dims.len() < 3 || dims[2..].iter().product::<usize>() < 2 {
            let got = batch_shape(cx.graph.shape(x));
            return Err(LayerError(format!(
                "needs an input of [batch, channels, …] with more than one value per channel, got {got}"
            )));
        }
        grouped(cx, x, dims[1], self.eps, self.affine)
    }
}
