//! `hinge`, `multi_margin` and `hinge_embedding`.

use super::{Criterion, LossCx, Rows, positive};
use crate::config::loss::{Hinge, HingeEmbedding, MultiMargin};
use crate::graph::{DType, ValueId};
use crate::layers::LayerError;
use crate::ops::map::{self, Binary, Code, Reg};
use crate::ops::reduce;

impl Criterion for Hinge {
    fn build(&self, cx: &mut LossCx<'_>) -> Result<Rows, LayerError> {
        let (p, margin) = (self.p, self.margin);
        let several = cx.graph.shape(cx.output).elements() > cx.graph.shape(cx.target).elements();
        if cx.dtype() == DType::I32 && several {
            return MultiMargin { p, margin, weight: None }.build(cx);
        }
        let (x, y) = signed(cx)?;
        let loss = cx.pairwise(x, y, |code, x, y| {
            let (margin, side) = (code.constant(margin as f32), code.mul(x, y));
            let short = code.sub(margin, side);
            let short = positive(code, short);
            if p == 2 { code.mul(short, short) } else { short }
        })?;
        cx.mean(loss)
    }
}

impl Criterion for MultiMargin {
    fn build(&self, cx: &mut LossCx<'_>) -> Result<Rows, LayerError> {
        let layout = cx.class_layout()?;
        let x = cx.logits(layout)?;
        let hot = cx.one_hot(layout, i32::MIN)?;
        let weights = cx.class_weights(&self.weight, layout.classes)?;
        let own = map::mul(cx.graph, x, hot)?;
        let own = reduce::sum(cx.graph, own, &[1])?;
        let weights = map::binary(cx.graph, Binary::Mul, hot, weights)?;
        let weights = reduce::sum(cx.graph, weights, &[1])?;
        let shape = cx.graph.shape(x).clone();
        let code = Code::of(|code| {
            let (x, hot, own, weight) =
                (code.input(0), code.input(1), code.input(2), code.input(3));
            let behind = code.sub(x, own);
            let short = code.offset(behind, self.margin as f32);
            let short = positive(code, short);
            let loss = if self.p == 2 { code.mul(short, short) } else { short };
            let one = code.constant(1.0);
            let other = code.sub(one, hot);
            let counted = code.mul(loss, other);
            code.mul(counted, weight)
        });
        let loss = map::apply(cx.graph, code, &[x, hot, own, weights], shape)?;
        let batch = cx.batch();
        let each = layout.outer * layout.classes * layout.inner / batch;
        let loss = cx.graph.reshape(loss, [batch, each])?;
        cx.mean(loss)
    }
}

/// `like` where the sign y is 1, `unlike` where it is −1.
pub(super) fn by_sign(code: &mut Code, y: Reg, like: Reg, unlike: Reg) -> Reg {
    let zero = code.constant(0.0);
    let (is_like, is_unlike) = (code.greater(y, zero), code.greater(zero, y));
    let (like, unlike) = (code.mul(like, is_like), code.mul(unlike, is_unlike));
    code.add(like, unlike)
}

/// The output beside signs, both as `[batch, numbers]`.
fn signed(cx: &mut LossCx<'_>) -> Result<(ValueId, ValueId), LayerError> {
    let each = cx.graph.shape(cx.output).elements() / cx.batch();
    if each > 1 {
        return cx.numbers();
    }
    let y = cx.signs()?;
    Ok((cx.graph.reshape(cx.output, [cx.batch(), 1])?, y))
}

impl Criterion for HingeEmbedding {
    fn build(&self, cx: &mut LossCx<'_>) -> Result<Rows, LayerError> {
        let (x, y) = signed(cx)?;
        let loss = cx.pairwise(x, y, |code, x, y| {
            let margin = code.constant(self.margin as f32);
            let short = code.sub(margin, x);
            let short = positive(code, short);
            by_sign(code, y, x, short)
        })?;
        cx.mean(loss)
    }
}
