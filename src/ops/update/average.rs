//! The average of the weights, kept beside them: a ← a + w·(p − a). With w = 1 − decay it is the
//! exponential moving average, with w = 1/n the mean of n snapshots (Izmailov et al. 2018); w = 0
//! leaves it.

use std::sync::Arc;

use super::{Settings, Update};
use crate::graph::{Graph, ShapeError, TensorType, ValueId};
use crate::ops::{Case, Domain};

/// Adds the update of the average to a graph; w is `Globals::hyper[AVERAGE]`.
///
/// # Errors
/// When the average and the parameters differ in size.
pub fn average(
    graph: &mut Graph,
    average: ValueId,
    params: ValueId,
    control: ValueId,
) -> Result<ValueId, ShapeError> {
    let settings = Settings { weight_decay: 0.0, lr_factor: 1.0, clip_value: None, noise: None };
    let update = Update::new("average", 1, 2, &settings, |s| {
        let (old, new) = (s.operand(0), s.operand(1));
        vec![old + s.average_weight() * (new - old)]
    });
    Ok(graph.apply(Arc::new(update), &[average, params, control])?[0])
}

/// A use that the generic checks run over.
pub(super) fn case() -> Case {
    let f = || (TensorType::f32([259]), Domain::Normal);
    let control = (TensorType::f32([6]), Domain::Uniform(-0.9, -0.1));
    let build =
        |graph: &mut Graph, ins: &[ValueId]| Ok(vec![average(graph, ins[0], ins[1], ins[2])?]);
    Case { differentiable: false, ..Case::graph("average", vec![f(), f(), control], build) }
}
