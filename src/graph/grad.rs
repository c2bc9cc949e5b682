//! Gradients, derived once for the whole graph: one walk from the seeds back to the leaves.

use std::collections::HashMap;

use super::{Graph, NodeId, Origin, ShapeError, ValueId};
use crate::ops::{Grad, GradCall, map};

/// Why no gradient could be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GradError {
    /// An op's gradient did not fit together: a defect of that op.
    #[error("the gradient of `{scope}` does not fit: {error}")]
    Shape {
        /// The layer.
        scope: String,
        /// What did not fit.
        error: ShapeError,
    },
    /// The gradient was asked for but stops on the way.
    #[error("no gradient reaches value {value}: {reason}")]
    Unreached {
        /// Index into the list of values that was asked for.
        value: usize,
        /// The first reason an op gave for stopping it, or that nothing depends on it.
        reason: String,
    },
}

/// Extends `graph` by the backward pass: for seeds `(value, cotangent)`, the gradients of
/// `Σ ⟨value, cotangent⟩` with respect to each value of `wrt`, in that order.
///
/// # Errors
/// When an op's gradient does not fit, or when no gradient reaches a value of `wrt`.
pub fn grad(
    graph: &mut Graph,
    seeds: &[(ValueId, ValueId)],
    wrt: &[ValueId],
) -> Result<Vec<ValueId>, GradError> {
    let needed = reaches(graph, wrt);
    let forward = graph.nodes.len();
    let mut walk = Walk { cotangents: HashMap::new(), stops: HashMap::new() };
    graph.set_backward(true);
    for &(value, cotangent) in seeds {
        walk.add(graph, value, cotangent)?;
    }
    for index in (0..forward).rev() {
        walk.visit(graph, NodeId(index as u32), &needed)?;
    }
    graph.set_backward(false);
    let mut found = Vec::with_capacity(wrt.len());
    for (index, value) in wrt.iter().enumerate() {
        let root = graph.root(*value);
        let Some(&g) = walk.cotangents.get(&root) else {
            let reason = walk.stops.get(&root).copied().unwrap_or("the loss does not depend on it");
            return Err(GradError::Unreached { value: index, reason: reason.to_owned() });
        };
        found.push(g);
    }
    Ok(found)
}

/// For each value, whether it depends on one of `wrt`.
fn reaches(graph: &Graph, wrt: &[ValueId]) -> Vec<bool> {
    let mut needed = vec![false; graph.values.len()];
    for value in wrt {
        needed[graph.root(*value).index()] = true;
    }
    for node in &graph.nodes {
        if node.inputs.iter().any(|v| needed[graph.root(*v).index()]) {
            node.outputs.iter().for_each(|v| needed[v.index()] = true);
        }
    }
    needed
}

struct Walk {
    /// Sum of the cotangents so far, by root value, in the root's shape.
    cotangents: HashMap<ValueId, ValueId>,
    /// Why a gradient stopped at a value.
    stops: HashMap<ValueId, &'static str>,
}

impl Walk {
    fn add(
        &mut self,
        graph: &mut Graph,
        value: ValueId,
        cotangent: ValueId,
    ) -> Result<(), GradError> {
        let scope = graph.scope().to_string();
        let fail = |error| GradError::Shape { scope: scope.clone(), error };
        let root = graph.root(value);
        let shape = graph.shape(root).clone();
        let cotangent = graph.reshape(cotangent, shape).map_err(fail)?;
        let total = match self.cotangents.get(&root) {
            Some(&sum) => map::add(graph, sum, cotangent).map_err(fail)?,
            None => cotangent,
        };
        self.cotangents.insert(root, total);
        Ok(())
    }

    fn visit(&mut self, graph: &mut Graph, id: NodeId, needed: &[bool]) -> Result<(), GradError> {
        let node = graph.nodes[id.index()].clone();
        let d_outs: Vec<Option<ValueId>> =
            node.outputs.iter().map(|v| self.cotangents.get(v).copied()).collect();
        let needs: Vec<bool> = node
            .inputs
            .iter()
            .map(|v| needed.get(graph.root(*v).index()).copied().unwrap_or(false))
            .collect();
        if d_outs.iter().all(Option::is_none) || !needs.iter().any(|n| *n) {
            return Ok(());
        }
        graph.set_scope(node.scope.clone());
        let call =
            GradCall { ins: &node.inputs, outs: &node.outputs, d_outs: &d_outs, needs: &needs };
        let grads = node
            .op
            .grad(graph, &call)
            .map_err(|error| GradError::Shape { scope: node.scope.to_string(), error })?;
        for ((input, grad), need) in node.inputs.iter().zip(grads).zip(&needs) {
            match grad {
                Grad::Flows(g) if *need => self.add(graph, *input, g)?,
                Grad::Stops(reason) => {
                    self.stops.entry(graph.root(*input)).or_insert(reason);
                }
                Grad::Flows(_) | Grad::Unneeded => {}
            }
        }
        Ok(())
    }
}

/// Whether a value is a leaf (nothing computes it).
pub fn is_leaf(graph: &Graph, value: ValueId) -> bool {
    matches!(graph.values[graph.root(value).index()].origin, Origin::Leaf(_))
}
