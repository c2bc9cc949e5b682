//! Samples of different lengths: how many steps of each are its own, the others being padding.

use super::{LayerCx, LayerError, batch_shape};
use crate::graph::{DType, Graph, ShapeError, ValueId};
use crate::ops::to_float::ToFloat;
use crate::ops::map::{self, Binary, Code};

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
