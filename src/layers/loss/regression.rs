//! `mse`, `l1`, `smooth_l1` and `huber`: functions of the error, element by element.

use super::{Criterion, LossCx, Rows};
use crate::config::loss::{Huber, L1, Mse, SmoothL1};
use crate::layers::LayerError;
use crate::ops::map::{Binary, Code, Reg, Unary};

/// The mean of a function of the error x − y.
fn of_error(
    cx: &mut LossCx<'_>,
    build: impl FnOnce(&mut Code, Reg) -> Reg,
) -> Result<Rows, LayerError> {
    let (x, y) = cx.numbers()?;
    let loss = cx.pairwise(x, y, |code, x, y| {
        let error = code.sub(x, y);
        build(code, error)
    })?;
    cx.mean(loss)
}

/// m²/2·`bow` + `line`·(|d| − m) with m = min(|d|, `end`): a square that goes on as a line.
fn bent(code: &mut Code, error: Reg, end: f64, bow: f64, line: f64) -> Reg {
    let size = code.unary(Unary::Abs, error);
    let end = code.constant(end as f32);
    let near = code.binary(Binary::Min, size, end);
    let square = code.mul(near, near);
    let half = code.scale(square, (bow / 2.0) as f32);
    let rest = code.sub(size, near);
    let rest = code.scale(rest, line as f32);
    code.add(half, rest)
}

impl Criterion for Mse {
    fn build(&self, cx: &mut LossCx<'_>) -> Result<Rows, LayerError> {
        of_error(cx, |code, error| code.mul(error, error))
    }
}

impl Criterion for L1 {
    fn build(&self, cx: &mut LossCx<'_>) -> Result<Rows, LayerError> {
        of_error(cx, |code, error| code.unary(Unary::Abs, error))
    }
}

impl Criterion for SmoothL1 {
    fn build(&self, cx: &mut LossCx<'_>) -> Result<Rows, LayerError> {
        if self.beta == 0.0 {
            return L1 {}.build(cx);
        }
        of_error(cx, |code, error| bent(code, error, self.beta, 1.0 / self.beta, 1.0))
    }
}

impl Criterion for Huber {
    fn build(&self, cx: &mut LossCx<'_>) -> Result<Rows, LayerError> {
        of_error(cx, |code, error| bent(code, error, self.delta, 1.0, self.delta))
    }
}
