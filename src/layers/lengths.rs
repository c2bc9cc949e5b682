//! Samples of different lengths: how many steps of each are its own, the others being padding, and
//! what attention sees then.

use super::{LayerCx, LayerError, batch_shape};
use crate::graph::{DType, Graph, ShapeError, ValueId};
use crate::ops::map::{self, Binary, Code, Unary};
use crate::ops::softmax::Softmax;
use crate::ops::to_float::ToFloat;

/// The lengths that the option `lengths` names, for x of `[batch, time, …]`: `[batch]`, as floats.
///
/// # Errors
/// When nothing has the name, or there is not one number for each sample.
pub(super) fn named(cx: &mut LayerCx<'_>, name: &str, x: ValueId) -> Result<ValueId, LayerError> {
    let value = cx.named("lengths", name)?;
    let batch = cx.graph.shape(x).dims()[0];
    let shape = cx.graph.shape(value).clone();
    if shape.dims()[0] != batch || shape.elements() != batch {
        return Err(LayerError(format!(
            "`lengths: {name}` needs one number for each sample, [batch] or [batch, 1], got {}",
            batch_shape(&shape)
        )));
    }
    let value = float(cx.graph, value)?;
    Ok(cx.graph.reshape(value, [batch])?)
}

/// Numbers as floats, whatever they are stored as.
pub(super) fn float(graph: &mut Graph, value: ValueId) -> Result<ValueId, ShapeError> {
    match graph.ty(value).dtype {
        DType::I32 => graph.op(ToFloat, &[value]),
        DType::F32 | DType::F16 => Ok(value),
    }
}

/// 1 at the last step of each sample, 0 at the others: `[batch, time]` for lengths of `[batch]`.
/// Zeros alone for a sample without steps.
pub(super) fn ends(
    graph: &mut Graph,
    lengths: ValueId,
    time: usize,
) -> Result<ValueId, ShapeError> {
    let code = Code::of(|code| {
        let (length, step) = (code.input(0), code.input(1));
        let most = code.constant(time as f32);
        let length = code.binary(Binary::Min, length, most);
        let after = code.offset(step, 1.0);
        let (is_step, goes_on) = (code.greater(length, step), code.greater(length, after));
        code.sub(is_step, goes_on)
    });
    each_step(graph, code, lengths, time)
}

/// A map of a sample's length (input 0) and a step (input 1): `[batch, time]`.
fn each_step(
    graph: &mut Graph,
    code: Code,
    lengths: ValueId,
    time: usize,
) -> Result<ValueId, ShapeError> {
    let batch = graph.shape(lengths).dims()[0];
    let lengths = graph.reshape(lengths, [batch, 1])?;
    let steps = graph.table((0..time).map(|step| step as f32).collect(), [time])?;
    map::apply(graph, code, &[lengths, steps], [batch, time])
}

/// What the keys of attention are seen by, as options name it.
pub(super) struct Seen<'a> {
    pub(super) lengths: Option<&'a str>,
    pub(super) key_padding_mask: Option<&'a str>,
    pub(super) documents: Option<&'a str>,
}

impl Seen<'_> {
    /// 1 where a position of x, `[batch, length, …]`, is no padding, else 0: `[batch, length]`.
    /// None where nothing is said of padding.
    ///
    /// # Errors
    /// When nothing has a name, or shapes do not fit.
    pub(super) fn valid(
        &self,
        cx: &mut LayerCx<'_>,
        x: ValueId,
    ) -> Result<Option<ValueId>, LayerError> {
        let mut valid = None;
        if let Some(name) = self.lengths {
            let lengths = named(cx, name, x)?;
            let length = cx.graph.shape(x).dims()[1];
            let code = Code::of(|code| {
                let (length, step) = (code.input(0), code.input(1));
                code.greater(length, step)
            });
            valid = Some(each_step(cx.graph, code, lengths, length)?);
        }
        if let Some(name) = self.key_padding_mask {
            let mask = each_position(cx, "key_padding_mask", name, x)?;
            let open = map::unary(cx.graph, mask, |code, x| {
                let (size, zero) = (code.unary(Unary::Abs, x), code.constant(0.0));
                let (one, padding) = (code.constant(1.0), code.greater(size, zero));
                code.sub(one, padding)
            })?;
            valid = Some(match valid {
                Some(valid) => map::mul(cx.graph, valid, open)?,
                None => open,
            });
        }
        Ok(valid)
    }

    /// The segments of attention within x, `[batch, length, …]`: the number of the document, or
    /// −1 for padding, `[batch, length]`. None where every position sees all.
    ///
    /// # Errors
    /// As [`Seen::valid`].
    pub(super) fn segments(
        &self,
        cx: &mut LayerCx<'_>,
        x: ValueId,
    ) -> Result<Option<ValueId>, LayerError> {
        let valid = self.valid(cx, x)?;
        let documents =
            self.documents.map(|name| each_position(cx, "documents", name, x)).transpose()?;
        Ok(match (valid, documents) {
            (Some(valid), Some(documents)) => {
                let shape = cx.graph.shape(documents).clone();
                let code = Code::of(|code| {
                    let (valid, document) = (code.input(0), code.input(1));
                    let number = code.offset(document, 1.0);
                    let kept = code.mul(valid, number);
                    code.offset(kept, -1.0)
                });
                Some(map::apply(cx.graph, code, &[valid, documents], shape)?)
            }
            (Some(valid), None) => {
                Some(map::unary(cx.graph, valid, |code, x| code.offset(x, -1.0))?)
            }
            (None, documents) => documents,
        })
    }
}

/// One number for each position of x, `[batch, length, …]`, by the name under an option.
fn each_position(
    cx: &mut LayerCx<'_>,
    key: &str,
    name: &str,
    x: ValueId,
) -> Result<ValueId, LayerError> {
    let value = cx.named(key, name)?;
    let (shape, wanted) = (cx.graph.shape(value), cx.graph.shape(x));
    if shape.dims() != &wanted.dims()[..2] {
        return Err(LayerError(format!(
            "`{key}: {name}` needs one number for each position of {}, got {}",
            batch_shape(wanted),
            batch_shape(shape)
        )));
    }
    Ok(float(cx.graph, value)?)
}

/// Softmax of scores `[heads·batch, queries, keys]` over the keys that are valid, `[batch, keys]`;
/// zeros where none is.
pub(super) fn masked_softmax(
    graph: &mut Graph,
    scores: ValueId,
    valid: ValueId,
) -> Result<ValueId, ShapeError> {
    let shape = graph.shape(scores).clone();
    let &[batch, keys] = graph.shape(valid).dims() else { unreachable!("one number a key") };
    let wide = [shape.dims()[0] / batch, batch, shape.dims()[1], keys];
    let valid = graph.reshape(valid, [batch, 1, keys])?;
    let scores = graph.reshape(scores, wide)?;
    // So low that e to it is 0, and in the range of half precision.
    const HIDDEN: f32 = 3e4;
    let code = Code::of(|code| {
        let (score, valid) = (code.input(0), code.input(1));
        let kept = code.mul(score, valid);
        let (shown, hidden) = (code.offset(valid, -1.0), code.constant(HIDDEN));
        let below = code.mul(shown, hidden);
        code.add(kept, below)
    });
    let scores = map::apply(graph, code, &[scores, valid], wide)?;
    let p = graph.op(Softmax, &[scores])?;
    let p = map::mul(graph, p, valid)?;
    graph.reshape(p, shape)
}
