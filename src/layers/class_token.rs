//! `class_token`.

use super::init::{Fans, Initializer};
use super::{Layer, LayerCx, LayerError, batch_shape};
use crate::config::macros::options;
use crate::graph::ValueId;
use crate::ops::concat::concat;
use crate::ops::map::{self, Code};
use crate::plan::Init;

options! {
    /// A learned vector before those of the input (Devlin et al. 2019). Input `[batch, length,
    /// features]`, output `[batch, 1 + length, features]`; `weight` of `[1, 1, features]`.
    pub struct ClassToken {
        /// First values; zeros where left out, as in torchvision.
        init: Option<Initializer>,
    }
}

impl Layer for ClassToken {
    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let dims = cx.float_dims(x)?;
        let [batch, _, features] = dims[..] else {
            let got = batch_shape(cx.graph.shape(x));
            return Err(LayerError(format!(
                "needs an input of [batch, length, features], got {got}"
            )));
        };
        let fans = Fans { fan_in: features, fan_out: features };
        let init = self.init.as_ref().map_or(Init::Constant(0.0), |init| init.resolve(fans));
        let token = cx.param("weight", [1, 1, features], init, false)?;
        let copy = Code::of(|code| code.input(0));
        let tokens = map::apply(cx.graph, copy, &[token], [batch, 1, features])?;
        Ok(concat(cx.graph, &[tokens, x], 1)?)
    }
}
