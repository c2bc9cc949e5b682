//! Sums over axes.

use crate::graph::{Graph, Shape, ShapeError, ValueId};

/// Sums `value` over the axes along which `shape` was repeated to fill it, so that the result has
/// `shape`: the gradient of broadcasting.
///
/// # Errors
/// When `shape` does not broadcast to the value's shape.
pub fn sum_to(graph: &mut Graph, value: ValueId, shape: &Shape) -> Result<ValueId, ShapeError> {
    if graph.shape(value) == shape {
        return Ok(value);
    }
    Err(ShapeError { op: "reduce", message: "sums over axes are not written yet".into() })
}
