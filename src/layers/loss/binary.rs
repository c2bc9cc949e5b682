//! `binary_cross_entropy` and `focal`: answers that are yes or no by themselves, as logits.

use super::{Criterion, LossCx, Rows, softplus};
use crate::config::loss::{BinaryCrossEntropy, Focal};
use crate::config::values::OneOrMany;
use crate::graph::ValueId;
use crate::layers::LayerError;
use crate::ops::map::{self, Binary, Code, Reg, Unary};

/// (1 − y)·x + (1 + (w − 1)·y)·log(1 + e^(−x)): PyTorch's form.
fn cross_entropy(code: &mut Code, x: Reg, y: Reg, pos_weight: Reg) -> Reg {
    let one = code.constant(1.0);
    let no = code.sub(one, y);
    let line = code.mul(no, x);
    let more = code.offset(pos_weight, -1.0);
    let more = code.mul(more, y);
    let factor = code.offset(more, 1.0);
    let minus = code.unary(Unary::Neg, x);
    let bend = softplus(code, minus);
    let bend = code.mul(factor, bend);
    code.add(line, bend)
}

impl Criterion for BinaryCrossEntropy {
    fn build(&self, cx: &mut LossCx<'_>) -> Result<Rows, LayerError> {
        let (x, y) = cx.answers()?;
        let weights = match &self.pos_weight {
            None => cx.graph.constant(1.0, [1]),
            Some(OneOrMany(weights)) => pos_weights(cx, weights)?,
        };
        let shape = cx.graph.shape(x).clone();
        let code = Code::of(|code| {
            let (x, y, weight) = (code.input(0), code.input(1), code.input(2));
            cross_entropy(code, x, y, weight)
        });
        let loss = map::apply(cx.graph, code, &[x, y, weights], shape)?;
        cx.mean(loss)
    }
}

/// A weight for each number of a sample, from one, or from one for each class.
fn pos_weights(cx: &mut LossCx<'_>, weights: &[f64]) -> Result<ValueId, LayerError> {
    if let Some(bad) = weights.iter().find(|w| **w < 0.0) {
        return Err(cx.error(&format!("needs `pos_weight` of at least 0, got {bad}")));
    }
    if let [weight] = weights {
        return Ok(cx.graph.constant(*weight as f32, [1]));
    }
    let dims = cx.graph.shape(cx.output).dims().to_vec();
    let axis = super::class_axis(dims.len());
    if dims[axis] != weights.len() || axis == 0 {
        return Err(cx.error(&format!(
            "has a `pos_weight` for {} classes, but the model gives {}",
            weights.len(),
            dims[axis]
        )));
    }
    let inner: usize = dims[axis + 1..].iter().product();
    let each: usize = dims[1..].iter().product();
    let values: Vec<f32> = (0..each).map(|at| weights[at / inner % weights.len()] as f32).collect();
    Ok(cx.graph.table(values.into(), [each])?)
}

/// x to a power of at least 0, for x of at least 0.
fn power(code: &mut Code, x: Reg, exponent: f64) -> Reg {
    if exponent.fract() == 0.0 && exponent <= 8.0 {
        let one = code.constant(1.0);
        return (0..exponent as usize).fold(one, |product, _| code.mul(product, x));
    }
    let least = code.constant(1e-30);
    let above = code.binary(Binary::Max, x, least);
    let log = code.unary(Unary::Log, above);
    let scaled = code.scale(log, exponent as f32);
    code.unary(Unary::Exp, scaled)
}

impl Criterion for Focal {
    fn build(&self, cx: &mut LossCx<'_>) -> Result<Rows, LayerError> {
        let (x, y) = cx.answers()?;
        let loss = cx.pairwise(x, y, |code, x, y| {
            let one = code.constant(1.0);
            let entropy = cross_entropy(code, x, y, one);
            // 1 − pₜ = p·(1 − y) + (1 − p)·y, with 1 − p as the sigmoid of −x.
            let minus = code.unary(Unary::Neg, x);
            let (yes, no) = (code.unary(Unary::Sigmoid, x), code.unary(Unary::Sigmoid, minus));
            let not_y = code.sub(one, y);
            let (wrong_yes, wrong_no) = (code.mul(yes, not_y), code.mul(no, y));
            let wrong = code.add(wrong_yes, wrong_no);
            let factor = power(code, wrong, self.gamma);
            let loss = code.mul(entropy, factor);
            let Some(alpha) = self.alpha else { return loss };
            let more = code.scale(y, (2.0 * alpha - 1.0) as f32);
            let share = code.offset(more, (1.0 - alpha) as f32);
            code.mul(loss, share)
        })?;
        cx.mean(loss)
    }
}
