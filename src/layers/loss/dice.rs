//! `dice`: one minus the overlap, for each class of each sample.

use super::{Classes, Criterion, LossCx, Rows, class_axis, split};
use crate::config::loss::Dice;
use crate::graph::{DType, ValueId};
use crate::layers::LayerError;
use crate::ops::map::{self, Binary, Code, Unary};
use crate::ops::{log_sum_exp, reduce};

impl Criterion for Dice {
    fn build(&self, cx: &mut LossCx<'_>) -> Result<Rows, LayerError> {
        let (p, t) = shares(cx)?;
        let overlap = map::mul(cx.graph, p, t)?;
        let overlap = reduce::sum(cx.graph, overlap, &[2])?;
        let (p, t) = (reduce::sum(cx.graph, p, &[2])?, reduce::sum(cx.graph, t, &[2])?);
        let shape = cx.graph.shape(p).clone();
        let code = Code::of(|code| {
            let (overlap, p, t) = (code.input(0), code.input(1), code.input(2));
            let twice = code.scale(overlap, 2.0);
            let above = code.offset(twice, self.smooth as f32);
            let sizes = code.add(p, t);
            let below = code.offset(sizes, self.smooth as f32);
            let share = code.binary(Binary::Div, above, below);
            let one = code.constant(1.0);
            code.sub(one, share)
        });
        let loss = map::apply(cx.graph, code, &[overlap, p, t], shape)?;
        let classes = cx.graph.shape(loss).dims()[1];
        let loss = cx.graph.reshape(loss, [cx.batch(), classes])?;
        cx.mean(loss)
    }
}

/// Predicted and real shares of classes, `[batch, classes, places]`.
fn shares(cx: &mut LossCx<'_>) -> Result<(ValueId, ValueId), LayerError> {
    let batch = cx.batch();
    if cx.dtype() == DType::I32 {
        let layout = cx.class_layout()?;
        if layout.outer != batch {
            return Err(cx.error("needs the classes in the first axis after the batch"));
        }
        let logits = cx.logits(layout)?;
        let log_p = log_sum_exp::log_softmax(cx.graph, logits)?;
        let p = map::unary(cx.graph, log_p, |code, x| code.unary(Unary::Exp, x))?;
        return Ok((p, cx.one_hot(layout, i32::MIN)?));
    }
    let (x, t) = cx.numbers()?;
    let dims = cx.graph.shape(cx.output).dims().to_vec();
    let layout = match class_axis(dims.len()) {
        1 if dims.len() == 4 => split(&dims, 1),
        _ => Classes { outer: batch, classes: 1, inner: dims[1..].iter().product() },
    };
    let shape = [batch, layout.classes, layout.inner];
    let x = cx.graph.reshape(x, shape)?;
    let p = map::unary(cx.graph, x, |code, x| code.unary(Unary::Sigmoid, x))?;
    Ok((p, cx.graph.reshape(t, shape)?))
}
