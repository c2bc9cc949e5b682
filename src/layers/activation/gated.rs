//! `glu`.

use crate::config::macros::options;
use crate::graph::ValueId;
use crate::layers::{Layer, LayerCx, LayerError};
use crate::ops::concat::Slice;
use crate::ops::map::{self, Code, Unary};

options! {
    /// a·sigmoid(b), where a and b are the halves of the input along an axis (Dauphin et al. 2016).
    pub struct Glu {
        /// The axis: 1 for channels, -1 for the last.
        dim: i64 = -1,
    }
}

impl Layer for Glu {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let dims = cx.float_dims(x)?;
        let axis = cx.axis(x, self.dim)?;
        if dims[axis] % 2 != 0 {
            return Err(LayerError(format!("cannot halve an axis of {}", dims[axis])));
        }
        let len = dims[axis] / 2;
        let a = cx.graph.op(Slice { axis, start: 0, len }, &[x])?;
        let b = cx.graph.op(Slice { axis, start: len, len }, &[x])?;
        let code = Code::of(|code| {
            let (a, b) = (code.input(0), code.input(1));
            let gate = code.unary(Unary::Sigmoid, b);
            code.mul(a, gate)
        });
        let shape = cx.graph.shape(a).clone();
        Ok(map::apply(cx.graph, code, &[a, b], shape)?)
    }
}
