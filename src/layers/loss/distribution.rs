//! `kl_div`, `gaussian_nll` and `poisson_nll`: distances between and likelihoods under
//! distributions.

use super::{Criterion, LossCx, Rows, batch_shape};
use crate::config::loss::{GaussianNll, KlDiv, KlReduction, PoissonNll};
use crate::graph::DType;
use crate::layers::LayerError;
use crate::ops::concat::Slice;
use crate::ops::map::{self, Binary, Code, Unary};
use crate::ops::reduce;

/// The smallest number whose logarithm is taken.
const TINY: f32 = 1e-38;

impl Criterion for KlDiv {
    fn build(&self, cx: &mut LossCx<'_>) -> Result<Rows, LayerError> {
        let (x, y) = cx.numbers()?;
        let loss = cx.pairwise(x, y, |code, x, y| {
            let (share, log) = if self.log_target {
                (code.unary(Unary::Exp, y), y)
            } else {
                // 0·log 0 is 0.
                let least = code.constant(TINY);
                let above = code.binary(Binary::Max, y, least);
                (y, code.unary(Unary::Log, above))
            };
            let gap = code.sub(log, x);
            code.mul(share, gap)
        })?;
        match self.reduction {
            KlReduction::Mean => cx.mean(loss),
            KlReduction::BatchMean => {
                let rows = reduce::sum(cx.graph, loss, &[1])?;
                cx.samples(rows, 1.0)
            }
        }
    }
}

impl Criterion for GaussianNll {
    fn build(&self, cx: &mut LossCx<'_>) -> Result<Rows, LayerError> {
        let batch = cx.batch();
        let (given, wanted) = (cx.graph.shape(cx.output), cx.graph.shape(cx.target));
        let each = wanted.elements() / batch;
        if cx.dtype() != DType::F32 || given.elements() != 2 * wanted.elements() {
            return Err(cx.error(&format!(
                "needs means and variances for each number of the target {}, but the model gives {}",
                batch_shape(wanted),
                batch_shape(given)
            )));
        }
        let both = cx.graph.reshape(cx.output, [batch, 2, each])?;
        let mean = cx.graph.op(Slice { axis: 1, start: 0, len: 1 }, &[both])?;
        let variance = cx.graph.op(Slice { axis: 1, start: 1, len: 1 }, &[both])?;
        let target = cx.graph.reshape(cx.target, [batch, 1, each])?;
        let code = Code::of(|code| {
            let (mean, variance, y) = (code.input(0), code.input(1), code.input(2));
            let least = code.constant(self.eps as f32);
            let variance = code.binary(Binary::Max, variance, least);
            let error = code.sub(mean, y);
            let square = code.mul(error, error);
            let ratio = code.binary(Binary::Div, square, variance);
            let log = code.unary(Unary::Log, variance);
            let both = code.add(log, ratio);
            let constant = if self.full { std::f64::consts::TAU.ln() } else { 0.0 };
            let all = code.offset(both, constant as f32);
            code.scale(all, 0.5)
        });
        let loss = map::apply(cx.graph, code, &[mean, variance, target], [batch, 1, each])?;
        let loss = cx.graph.reshape(loss, [batch, each])?;
        cx.mean(loss)
    }
}

impl Criterion for PoissonNll {
    fn build(&self, cx: &mut LossCx<'_>) -> Result<Rows, LayerError> {
        let (x, y) = cx.numbers()?;
        let loss = cx.pairwise(x, y, |code, x, y| {
            let (rate, log) = if self.log_input {
                (code.unary(Unary::Exp, x), x)
            } else {
                let above = code.offset(x, self.eps as f32);
                (x, code.unary(Unary::Log, above))
            };
            let likely = code.mul(y, log);
            let loss = code.sub(rate, likely);
            if !self.full {
                return loss;
            }
            // y·log y − y + log(2πy)/2 where y > 1.
            let one = code.constant(1.0);
            let counts = code.greater(y, one);
            let above = code.binary(Binary::Max, y, one);
            let log = code.unary(Unary::Log, above);
            let product = code.mul(above, log);
            let less = code.sub(product, above);
            let circle = code.offset(log, std::f64::consts::TAU.ln() as f32);
            let half = code.scale(circle, 0.5);
            let stirling = code.add(less, half);
            let counted = code.mul(stirling, counts);
            code.add(loss, counted)
        })?;
        cx.mean(loss)
    }
}
