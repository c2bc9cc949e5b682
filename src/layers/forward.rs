//! A model's graph with its loss: what is planned.

use super::model::batched;
use super::{Body, BuildError, InputSpec, Loss, Mode, Model, Registry, Row};
use crate::config::source::Span;
use crate::config::train::Loss as LossSpec;
use crate::graph::Leaf;
use crate::plan::Forward;

/// A graph with its rows.
#[derive(Clone, Debug)]
pub struct Built {
    /// What the plan room takes.
    pub forward: Forward,
    /// The layers in order.
    pub rows: Vec<Row>,
    /// Names of the statistics, in the order of the report.
    pub stats: Vec<&'static str>,
}

impl Model {
    /// As [`Model::body`], with the loss. `classes` is the number that targets are below.
    ///
    /// # Errors
    /// When a layer's input does not fit, or the loss's.
    #[allow(clippy::too_many_arguments, reason = "a graph depends on all of these")]
    pub fn forward(
        &self,
        registry: &mut Registry,
        inputs: &[InputSpec],
        target: &InputSpec,
        classes: Option<usize>,
        loss: (&LossSpec, Span),
        batch: usize,
        mode: Mode,
    ) -> Result<Built, BuildError> {
        let (body, output) = self.layers(registry, inputs, batch, mode)?;
        let Body { mut graph, inputs: mut leaves, outputs, state_updates, rows } = body;
        let target = graph.leaf(Leaf::Input(leaves.len()), batched(&target.sample, batch));
        leaves.push(target);
        graph.set_scope("loss");
        let built =
            Loss::build(&mut graph, loss.0, output.value, target, classes).map_err(|error| {
                BuildError {
                    span: loss.1,
                    path: "loss".into(),
                    message: error.0,
                    note: Some(format!("the model's output comes from {}", output.described())),
                }
            })?;
        let mut stats = vec![built.rows, built.weights];
        stats.extend(built.correct);
        let names = ["loss", "weight", "correct"][..stats.len()].to_vec();
        let forward = Forward {
            graph,
            inputs: leaves,
            outputs,
            losses: vec![(built.rows, 1.0)],
            stats,
            state_updates,
        };
        Ok(Built { forward, rows, stats: names })
    }
}
