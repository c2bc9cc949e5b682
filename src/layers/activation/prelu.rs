//! `prelu`.

use super::linear_units::bent;
use crate::config::macros::options;
use crate::graph::{Shape, ValueId};
use crate::layers::{Layer, LayerCx, LayerError};
use crate::ops::map::{self, Code};
use crate::plan::Init;

options! {
    /// x where x is positive, w·x elsewhere, with a learned w (He et al. 2015): `weight` of
    /// `[num_parameters]`. Input `[batch, channels, …]`.
    pub struct Prelu {
        /// 1, or one for each channel.
        num_parameters: usize [1..] = 1,
        /// First value of w.
        init: f64 = 0.25,
    }
}

impl Layer for Prelu {
    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let dims = cx.float_dims(x)?;
        let channels = dims.get(1).copied().unwrap_or(1);
        if self.num_parameters != 1 && self.num_parameters != channels {
            return Err(LayerError(format!(
                "has {channels} channels, but `num_parameters` is {}: give 1 or {channels}",
                self.num_parameters
            )));
        }
        let first = Init::Constant(self.init as f32);
        let weight = cx.param("weight", [self.num_parameters], first, false)?;
        let mut column = vec![1; dims.len().max(2) - 1];
        column[0] = self.num_parameters;
        let weight = cx.graph.reshape(weight, Shape::new(column))?;
        let code = Code::of(|code| {
            let (x, slope) = (code.input(0), code.input(1));
            bent(code, x, slope)
        });
        Ok(map::apply(cx.graph, code, &[x, weight], Shape::new(dims))?)
    }
}
