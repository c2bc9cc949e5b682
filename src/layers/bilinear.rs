//! `bilinear`.

use std::ops::RangeInclusive;

use super::init::{Initializer, fans_of, torch_default};
use super::{Layer, LayerCx, LayerError, batch_shape};
use crate::config::macros::options;
use crate::graph::{Shape, ValueId};
use crate::ops::{map, matmul};

options! {
    /// A bilinear form of two inputs for each output: yₒ = Σᵢⱼ x1ᵢ Wₒᵢⱼ x2ⱼ + bₒ. `from` names the
    /// two, `[batch, …, in1_features]` and `[batch, …, in2_features]`; output `[batch, …,
    /// out_features]`; `weight` of `[out_features, in1_features, in2_features]`, `bias` of
    /// `[out_features]`.
    pub struct Bilinear {
        /// Size of the last axis of the output.
        out_features: usize [1..],
        /// Adds a learned bias.
        bias: bool = true,
        /// First values of the weight; PyTorch's default where left out.
        init: Option<Initializer>,
        /// First values of the bias; PyTorch's default where left out.
        bias_init: Option<Initializer>,
    }
}

impl Layer for Bilinear {
    fn inputs(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let other = cx.others[0];
        let (mut dims, second) = (cx.float_dims(x)?, cx.float_dims(other)?);
        let (Some(left), Some((&right, outer))) = (dims.pop(), second.split_last()) else {
            unreachable!("a batch has an axis")
        };
        if dims.is_empty() || dims != outer {
            return Err(LayerError(format!(
                "needs two inputs [batch, …, features] that differ in their features only, got {} \
                 and {}",
                batch_shape(cx.graph.shape(x)),
                batch_shape(cx.graph.shape(other))
            )));
        }
        let (rows, outs) = (dims.iter().product(), self.out_features);
        let fans = fans_of(&[outs, left, right]);
        let default = torch_default(left);
        let weight = cx.weight("weight", [outs, left, right], fans, &self.init, default.clone())?;
        // W x2 for each output, then its product with x1.
        let weight = cx.graph.reshape(weight, [outs * left, right])?;
        let other = cx.graph.reshape(other, [rows, right])?;
        let forms = matmul::matmul(cx.graph, other, weight, false, true)?;
        let forms = cx.graph.reshape(forms, [rows, outs, left])?;
        let x = cx.graph.reshape(x, [rows, left, 1])?;
        let y = matmul::matmul(cx.graph, forms, x, false, false)?;
        let mut y = cx.graph.reshape(y, [rows, outs])?;
        if self.bias {
            let init = self.bias_init.as_ref().map_or(default, |init| init.resolve(fans));
            let bias = cx.param("bias", [outs], init, false)?;
            y = map::add(cx.graph, y, bias)?;
        }
        dims.push(outs);
        Ok(cx.graph.reshape(y, Shape::new(dims))?)
    }
}
