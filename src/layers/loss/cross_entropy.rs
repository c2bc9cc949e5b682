//! `cross_entropy` and `nll`.

use std::sync::Arc;

use super::{Classes, Criterion, Divisor, LossCx, Rows, class_axis, split};
use crate::config::loss::{CrossEntropy, Nll};
use crate::graph::DType;
use crate::layers::LayerError;
use crate::ops::map::{self, Binary, Code};
use crate::ops::{class_cross_entropy, cross_entropy, log_sum_exp, reduce};

impl Criterion for CrossEntropy {
    fn build(&self, cx: &mut LossCx<'_>) -> Result<Rows, LayerError> {
        if cx.dtype() == DType::F32 {
            return self.of_probabilities(cx);
        }
        let layout = cx.class_layout()?;
        let Classes { outer, classes, inner } = layout;
        let (label_smoothing, ignore_index) =
            (self.label_smoothing as f32, self.ignore_index as i32);
        let outs = if self.weight.is_none() && inner == 1 {
            let logits = cx.graph.reshape(cx.output, [outer, classes])?;
            let targets = cx.graph.reshape(cx.target, [outer])?;
            let op = cross_entropy::CrossEntropy { label_smoothing, ignore_index };
            cx.graph.apply(Arc::new(op), &[logits, targets])?
        } else {
            let logits = cx.logits(layout)?;
            let targets = cx.graph.reshape(cx.target, [outer, inner])?;
            let weights = cx.class_weights(&self.weight, classes)?;
            let weights = cx.graph.reshape(weights, [classes])?;
            let op = class_cross_entropy::ClassCrossEntropy { label_smoothing, ignore_index };
            cx.graph.apply(Arc::new(op), &[logits, targets, weights])?
        };
        Ok(Rows {
            rows: outs[0],
            weights: outs[1],
            divisor: Divisor::classes(ignore_index, &self.weight),
            // With weights the mean would not be that over the targets.
            correct: self.weight.is_none().then_some(outs[2]),
        })
    }
}

impl CrossEntropy {
    /// −Σ w·t·log p over the classes, t the smoothed target; the mean over samples and places.
    fn of_probabilities(&self, cx: &mut LossCx<'_>) -> Result<Rows, LayerError> {
        cx.numbers()?;
        let dims = cx.graph.shape(cx.output).dims().to_vec();
        let batch = dims[0];
        if dims.len() < 2 {
            return Err(cx.error("needs an axis of classes beside the batch"));
        }
        let layout = split(&dims, class_axis(dims.len()));
        let logits = cx.logits(layout)?;
        let wanted = cx.graph.reshape(cx.target, [layout.outer, layout.classes, layout.inner])?;
        let weights = cx.class_weights(&self.weight, layout.classes)?;
        let log_p = log_sum_exp::log_softmax(cx.graph, logits)?;
        let shape = cx.graph.shape(logits).clone();
        let smooth = self.label_smoothing as f32;
        let code = Code::of(|code| {
            let (log_p, t, w) = (code.input(0), code.input(1), code.input(2));
            let kept = code.scale(t, smooth - 1.0);
            let minus = code.offset(kept, -smooth / layout.classes as f32);
            let weighted = code.mul(minus, w);
            code.mul(weighted, log_p)
        });
        let loss = map::apply(cx.graph, code, &[log_p, wanted, weights], shape)?;
        let loss = cx.graph.reshape(loss, [batch, dims[1..].iter().product()])?;
        let rows = reduce::sum(cx.graph, loss, &[1])?;
        cx.samples(rows, (layout.outer * layout.inner / batch) as f64)
    }
}

impl Criterion for Nll {
    fn build(&self, cx: &mut LossCx<'_>) -> Result<Rows, LayerError> {
        let layout = cx.class_layout()?;
        let ignore_index = self.ignore_index as i32;
        let log_p = cx.logits(layout)?;
        let hot = cx.one_hot(layout, ignore_index)?;
        let weights = cx.class_weights(&self.weight, layout.classes)?;
        let weights = map::binary(cx.graph, Binary::Mul, hot, weights)?;
        let loss = cx.pairwise(log_p, weights, |code, log_p, w| {
            // 0 times a probability of 0, whose logarithm is −∞, is 0.
            let least = code.constant(f32::MIN);
            let finite = code.binary(Binary::Max, log_p, least);
            let minus = code.unary(map::Unary::Neg, w);
            code.mul(finite, minus)
        })?;
        Ok(Rows {
            rows: reduce::sum(cx.graph, loss, &[1])?,
            weights: reduce::sum(cx.graph, weights, &[1])?,
            divisor: Divisor::classes(ignore_index, &self.weight),
            correct: None,
        })
    }
}
