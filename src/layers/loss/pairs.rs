//! `cosine_embedding`, `triplet_margin` and `info_nce`: vectors that should be near or far. The
//! vectors of a sample are one output, `[batch, vectors, features]`.

use super::margin::by_sign;
use super::{Criterion, LossCx, Rows, batch_shape, positive};
use crate::config::loss::{CosineEmbedding, InfoNce, TripletMargin};
use crate::graph::{ShapeError, ValueId};
use crate::layers::LayerError;
use crate::ops::concat::Slice;
use crate::ops::log_sum_exp::LogSumExp;
use crate::ops::map::{self, Binary, Code, Unary};
use crate::ops::{matmul, reduce};

/// The `count` vectors of each sample, each `[batch, features]`.
fn vectors(cx: &mut LossCx<'_>, count: usize) -> Result<Vec<ValueId>, LayerError> {
    let dims = cx.graph.shape(cx.output).dims().to_vec();
    let [batch, given, features] = *dims else {
        return Err(wrong(cx, count));
    };
    if given != count {
        return Err(wrong(cx, count));
    }
    let mut all = Vec::with_capacity(count);
    for start in 0..count {
        let one = cx.graph.op(Slice { axis: 1, start, len: 1 }, &[cx.output])?;
        all.push(cx.graph.reshape(one, [batch, features])?);
    }
    Ok(all)
}

fn wrong(cx: &LossCx<'_>, count: usize) -> LayerError {
    let given = batch_shape(cx.graph.shape(cx.output));
    cx.error(&format!("needs an output of [batch, {count}, features], but the model gives {given}"))
}

/// Σ a·b over the features, `[batch, 1]`.
fn dot(cx: &mut LossCx<'_>, a: ValueId, b: ValueId) -> Result<ValueId, ShapeError> {
    let product = map::mul(cx.graph, a, b)?;
    reduce::sum(cx.graph, product, &[1])
}

impl Criterion for CosineEmbedding {
    fn build(&self, cx: &mut LossCx<'_>) -> Result<Rows, LayerError> {
        let both = vectors(cx, 2)?;
        let (a, b) = (both[0], both[1]);
        let y = cx.signs()?;
        let (ab, aa, bb) = (dot(cx, a, b)?, dot(cx, a, a)?, dot(cx, b, b)?);
        let shape = cx.graph.shape(ab).clone();
        let code = Code::of(|code| {
            let (ab, aa, bb, y) = (code.input(0), code.input(1), code.input(2), code.input(3));
            // PyTorch's guard against vectors of zeros.
            let (aa, bb) = (code.offset(aa, 1e-12), code.offset(bb, 1e-12));
            let square = code.mul(aa, bb);
            let norms = code.unary(Unary::Sqrt, square);
            let cosine = code.binary(Binary::Div, ab, norms);
            let one = code.constant(1.0);
            let like = code.sub(one, cosine);
            let above = code.offset(cosine, -self.margin as f32);
            let unlike = positive(code, above);
            by_sign(code, y, like, unlike)
        });
        let loss = map::apply(cx.graph, code, &[ab, aa, bb, y], shape)?;
        cx.mean(loss)
    }
}

impl TripletMargin {
    /// The norm of a − b + eps, `[batch, 1]`.
    fn distance(&self, cx: &mut LossCx<'_>, a: ValueId, b: ValueId) -> Result<ValueId, ShapeError> {
        let part = cx.pairwise(a, b, |code, a, b| {
            let gap = code.sub(a, b);
            let gap = code.offset(gap, self.eps as f32);
            if self.p == 1 { code.unary(Unary::Abs, gap) } else { code.mul(gap, gap) }
        })?;
        let total = reduce::sum(cx.graph, part, &[1])?;
        if self.p == 1 {
            return Ok(total);
        }
        map::unary(cx.graph, total, |code, x| code.unary(Unary::Sqrt, x))
    }
}

impl Criterion for TripletMargin {
    fn build(&self, cx: &mut LossCx<'_>) -> Result<Rows, LayerError> {
        let all = vectors(cx, 3)?;
        let (anchor, like, unlike) = (all[0], all[1], all[2]);
        let near = self.distance(cx, anchor, like)?;
        let mut far = self.distance(cx, anchor, unlike)?;
        if self.swap {
            let other = self.distance(cx, like, unlike)?;
            far = map::binary(cx.graph, Binary::Min, far, other)?;
        }
        let loss = cx.pairwise(near, far, |code, near, far| {
            let lead = code.sub(near, far);
            let short = code.offset(lead, self.margin as f32);
            positive(code, short)
        })?;
        cx.mean(loss)
    }
}

/// A vector over its length, which counts as at least 1e-12 as in PyTorch's `normalize`.
fn normalized(cx: &mut LossCx<'_>, x: ValueId) -> Result<ValueId, ShapeError> {
    let square = dot(cx, x, x)?;
    let length = map::unary(cx.graph, square, |code, x| {
        let least = code.constant(1e-24);
        let above = code.binary(Binary::Max, x, least);
        code.unary(Unary::Sqrt, above)
    })?;
    map::binary(cx.graph, Binary::Div, x, length)
}

impl Criterion for InfoNce {
    fn build(&self, cx: &mut LossCx<'_>) -> Result<Rows, LayerError> {
        let both = vectors(cx, 2)?;
        let (a, b) = (normalized(cx, both[0])?, normalized(cx, both[1])?);
        let batch = cx.batch();
        let per = (1.0 / self.temperature) as f32;
        let cosines = matmul::matmul(cx.graph, a, b, false, true)?;
        let logits = map::scale(cx.graph, cosines, per)?;
        let by_row = cx.graph.reshape(logits, [batch, batch, 1])?;
        let by_row = cx.graph.op(LogSumExp, &[by_row])?;
        let by_column = cx.graph.reshape(logits, [1, batch, batch])?;
        let by_column = cx.graph.op(LogSumExp, &[by_column])?;
        let (by_row, by_column) =
            (cx.graph.reshape(by_row, [batch, 1])?, cx.graph.reshape(by_column, [batch, 1])?);
        let own = dot(cx, a, b)?;
        let code = Code::of(|code| {
            let (row, column, own) = (code.input(0), code.input(1), code.input(2));
            let totals = code.add(row, column);
            let mean = code.scale(totals, 0.5);
            let own = code.scale(own, per);
            code.sub(mean, own)
        });
        let loss = map::apply(cx.graph, code, &[by_row, by_column, own], [batch, 1])?;
        cx.mean(loss)
    }
}
