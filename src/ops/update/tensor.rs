//! What the updates of whole tensors are built from.

use std::sync::Arc;

use super::{Operands, Update};
use crate::graph::{Graph, Shape, ShapeError, ValueId};
use crate::ops::map::{self, Unary};
use crate::ops::reduce;

/// The mean gradient of a parameter, apart from the gradient page.
pub(super) fn mean_gradient(
    graph: &mut Graph,
    target: &Operands<'_>,
) -> Result<ValueId, ShapeError> {
    let update = Update::new("gradient", 0, 1, target.settings, |s| vec![s.gradient(0)]);
    Ok(graph.apply(Arc::new(update), &[target.grads, target.control])?[0])
}

/// Σ x² over all axes, as a vector of one.
pub(super) fn square_sum(graph: &mut Graph, x: ValueId) -> Result<ValueId, ShapeError> {
    let n = graph.shape(x).elements();
    let square = map::mul(graph, x, x)?;
    let square = graph.reshape(square, Shape::new([n]))?;
    reduce::sum(graph, square, &[0])
}

/// ‖x‖, as a vector of one.
pub(super) fn norm(graph: &mut Graph, x: ValueId) -> Result<ValueId, ShapeError> {
    let square = square_sum(graph, x)?;
    map::unary(graph, square, |code, x| code.unary(Unary::Sqrt, x))
}
