//! `dropout`, `dropout2d` and `stochastic_depth`: what is left out at random in training.

use super::{Layer, LayerCx, LayerError, Mode, batch_shape};
use crate::config::macros::{choices, options};
use crate::graph::{Shape, ValueId};
use crate::ops::map::{self, Code, Instr, Reg};

options! {
    /// Sets elements to zero with probability `p` and scales the others by 1 / (1 − p) (Srivastava
    /// et al. 2014). Does nothing in evaluation.
    pub struct Dropout {
        /// Probability of zero.
        p: f64 [0.0..1.0] = 0.5,
    }
}

options! {
    /// Sets whole channels to zero with probability `p` and scales the others by 1 / (1 − p)
    /// (Tompson et al. 2015). Input `[batch, channels, …]`. Does nothing in evaluation.
    pub struct Dropout2d {
        /// Probability of zero.
        p: f64 [0.0..1.0] = 0.5,
    }
}

choices! {
    /// What is drawn for.
    pub enum DropMode {
        /// Each sample by itself.
        Row = "row",
        /// The whole batch together.
        Batch = "batch",
    }
}

options! {
    /// Sets samples to zero with probability `p` and scales the others by 1 / (1 − p): the last of
    /// a `residual`'s layers, it leaves out the branch (Huang et al. 2016). Does nothing in
    /// evaluation.
    pub struct StochasticDepth {
        /// Probability of zero.
        p: f64 [0.0..1.0],
        /// Whether each sample is left out by itself, or all of the batch together.
        mode: DropMode = DropMode::Row,
    }
}

/// 0 with probability `p`, else 1 / (1 − p).
fn factor(code: &mut Code, p: f64, stream: u32) -> Reg {
    let draw = code.push(Instr::Random(stream));
    // u ≥ p keeps; written as u > p − ½ unit of the generator's 24 bits, since u is a multiple of
    // 2⁻²⁴.
    let threshold = code.constant((p - f64::powi(2.0, -25)) as f32);
    let kept = code.greater(draw, threshold);
    code.scale(kept, (1.0 / (1.0 - p)) as f32)
}

/// Multiplies x by one factor for each place along its first `axes` axes.
fn drop_whole(
    cx: &mut LayerCx<'_>,
    x: ValueId,
    p: f64,
    axes: usize,
) -> Result<ValueId, LayerError> {
    let stream = cx.stream();
    if cx.mode == Mode::Eval || p == 0.0 {
        return Ok(x);
    }
    let mut dims = cx.graph.shape(x).dims().to_vec();
    dims[axes..].fill(1);
    let code = Code::of(|code| factor(code, p, stream));
    let mask = map::apply(cx.graph, code, &[], Shape::new(dims))?;
    Ok(map::mul(cx.graph, x, mask)?)
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
        Ok(map::unary(cx.graph, x, |code, x| {
            let factor = factor(code, self.p, stream);
            code.mul(x, factor)
        })?)
    }
}

impl Layer for Dropout2d {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        if cx.float_dims(x)?.len() < 3 {
            let got = batch_shape(cx.graph.shape(x));
            return Err(LayerError(format!("needs an input of [batch, channels, …], got {got}")));
        }
        drop_whole(cx, x, self.p, 2)
    }
}

impl Layer for StochasticDepth {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        cx.float_dims(x)?;
        let axes = match self.mode {
            DropMode::Row => 1,
            DropMode::Batch => 0,
        };
        drop_whole(cx, x, self.p, axes)
    }
}
