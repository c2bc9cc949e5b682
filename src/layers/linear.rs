//! `linear`.

use super::init::{Fans, Initializer, torch_default};
use super::{Layer, LayerCx, LayerError};
use crate::config::macros::options;
use crate::graph::ValueId;
use crate::ops::{map, matmul};

options! {
    /// Fully connected layer over the last axis: y = x Wᵀ + b, with W of `[out_features,
    /// in_features]` (`weight`) and b of `[out_features]` (`bias`). Input `[batch, …,
    /// in_features]`, output `[batch, …, out_features]`.
    pub struct Linear {
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

impl Layer for Linear {
    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let mut dims = cx.float_dims(x)?;
        let Some(fan_in) = dims.pop().filter(|_| !dims.is_empty()) else {
            return Err(LayerError("needs an input of [batch, …, features]".into()));
        };
        let fans = Fans { fan_in, fan_out: self.out_features };
        let default = torch_default(fan_in);
        let weight =
            cx.weight("weight", [self.out_features, fan_in], fans, &self.init, default.clone())?;
        let rows: usize = dims.iter().product();
        let flat = cx.graph.reshape(x, [rows, fan_in])?;
        let mut y = matmul::matmul(cx.graph, flat, weight, false, true)?;
        if self.bias {
            let init = self.bias_init.as_ref().map_or(default, |init| init.resolve(fans));
            let bias = cx.param("bias", [self.out_features], init, false)?;
            y = map::add(cx.graph, y, bias)?;
        }
        dims.push(self.out_features);
        Ok(cx.graph.reshape(y, crate::graph::Shape::new(dims))?)
    }
}
