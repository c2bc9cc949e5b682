//! `dropout`.

use super::{Layer, LayerCx, LayerError, Mode};
use crate::config::macros::options;
use crate::graph::ValueId;
use crate::ops::map::{self, Code, Instr};

options! {
    /// Sets elements to zero with probability `p` and scales the others by 1 / (1 − p) (Srivastava
    /// et al. 2014). Does nothing in evaluation.
    pub struct Dropout {
        /// Probability of zero.
        p: f64 [0.0..1.0] = 0.5,
    }
}

impl Layer for Dropout {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        cx.float_dims(x)?;
        let stream = cx.stream();
        if cx.mode == Mode::Eval || self.p == 0.0 {
            return Ok(x);
        }
        Ok(dropout(cx, x, self.p, stream)?)
    }
}

fn dropout(
    cx: &mut LayerCx<'_>,
    x: ValueId,
    p: f64,
    stream: u32,
) -> Result<ValueId, crate::graph::ShapeError> {
    map::unary(cx.graph, x, |code: &mut Code, x| {
        let draw = code.push(Instr::Random(stream));
        // u ≥ p keeps; written as u > p − ½ unit of the generator's 24 bits, since u is a multiple
        // of 2⁻²⁴.
        let threshold = code.constant((p - f64::powi(2.0, -25)) as f32);
        let kept = code.greater(draw, threshold);
        let scale = code.scale(kept, (1.0 / (1.0 - p)) as f32);
        code.mul(x, scale)
    })
}
