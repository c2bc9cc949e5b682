//! `scale`.

use super::{Layer, LayerCx, LayerError};
use crate::config::macros::options;
use crate::graph::{Shape, ValueId};
use crate::ops::map;
use crate::plan::Init;

options! {
    /// Multiplies each channel by a learned number, `gamma` of `[channels]` (LayerScale, Touvron et
    /// al. 2021). Channels are axis 1 of `[batch, channels, height, width]`, and the last axis of
    /// all else.
    pub struct Scale {
        /// First value of all numbers.
        init_value: f64 = 1e-5,
        /// Another axis of the channels.
        dim: Option<i64>,
    }
}

impl Layer for Scale {
    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let dims = cx.float_dims(x)?;
        let axis = cx.axis(x, self.dim.unwrap_or(if dims.len() == 4 { 1 } else { -1 }))?;
        let gamma =
            cx.param("gamma", [dims[axis]], Init::Constant(self.init_value as f32), false)?;
        let mut column = vec![1; dims.len() - axis];
        column[0] = dims[axis];
        let gamma = cx.graph.reshape(gamma, Shape::new(column))?;
        Ok(map::mul(cx.graph, x, gamma)?)
    }
}
