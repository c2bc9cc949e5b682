//! `l2_normalize`.

use super::{Layer, LayerCx, LayerError};
use crate::config::macros::options;
use crate::graph::ValueId;
use crate::ops::map::{self, Binary, Code, Unary};
use crate::ops::reduce;

options! {
    /// x / max(√Σ x², ε) along an axis: vectors of length 1.
    pub struct L2Normalize {
        /// The axis: 1 for channels, -1 for the last.
        dim: i64 = 1,
        /// ε, the least length that is divided by.
        eps: f64 [1e-18..] = 1e-12,
    }
}

impl Layer for L2Normalize {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        cx.float_dims(x)?;
        let axis = cx.axis(x, self.dim)?;
        let square = map::unary(cx.graph, x, |code, x| code.mul(x, x))?;
        let sum = reduce::sum(cx.graph, square, &[axis])?;
        // The bound lies under the root, whose slope at 0 is infinite.
        let least = (self.eps * self.eps) as f32;
        let code = Code::of(|code| {
            let (x, sum) = (code.input(0), code.input(1));
            let least = code.constant(least);
            let bounded = code.binary(Binary::Max, sum, least);
            let length = code.unary(Unary::Sqrt, bounded);
            code.binary(Binary::Div, x, length)
        });
        let shape = cx.graph.shape(x).clone();
        Ok(map::apply(cx.graph, code, &[x, sum], shape)?)
    }
}
