//! A model's graph with its loss: what is planned.

use super::loss::{Place, Sources, Statistics};
use super::model::batched;
use super::named::{Named, Source};
use super::{Body, BuildError, InputSpec, Mode, Model, Registry, Row};
use crate::config::Config;
use crate::config::loss::Term;
use crate::config::schema::alternatives;
use crate::config::source::Span;
use crate::graph::Leaf;
use crate::plan::Forward;

/// What is minimised, and where it was written.
#[derive(Clone, Copy, Debug)]
pub struct LossSpec<'a> {
    /// The configuration with its `loss`, `metrics` and `penalties`.
    pub config: &'a Config,
    /// Where `loss` stands.
    pub span: Span,
}

/// A graph with its rows.
#[derive(Clone, Debug)]
pub struct Built {
    /// What the plan room takes.
    pub forward: Forward,
    /// The layers in order.
    pub rows: Vec<Row>,
    /// Names of the outputs; empty for the last layer's where it has none.
    pub outputs: Vec<String>,
    /// What the statistics are.
    pub statistics: Statistics,
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
        loss: &LossSpec<'_>,
        batch: usize,
        mode: Mode,
    ) -> Result<Built, BuildError> {
        let (body, named, last) = self.layers(registry, inputs, batch, mode)?;
        let Body { mut graph, inputs: mut leaves, state_updates, rows, .. } = body;
        leaves.push(graph.leaf(Leaf::Input(leaves.len()), batched(&target.sample, batch)));
        let specs: Vec<&InputSpec> = inputs.iter().chain([target]).collect();
        let asked = loss.config.loss.terms(&loss.config.metrics);
        let mut outputs = self.outputs_for(&asked, &named, last)?;
        let mut terms = Vec::new();
        for (index, term) in asked.into_iter().enumerate() {
            let output = output_of(&term, &mut outputs, &named)?;
            let place = Place { output, target: target_of(&term, &specs)?, term: index };
            terms.push(Sources {
                output: outputs[output].1.value,
                target: leaves[place.target],
                classes: classes.filter(|_| place.target == inputs.len()),
                term,
                place,
            });
        }
        let mut penalties = Vec::new();
        for penalty in &loss.config.penalties {
            let layer = named.find(&penalty.layer.text, penalty.layer.span, "penalties")?;
            penalties.push((penalty, layer.value));
        }
        graph.set_scope("loss");
        let sizes = (batch, leaves.len());
        let built = super::loss::build(&mut graph, &terms, &penalties, sizes, mode);
        let built = built.map_err(|(index, error)| {
            let output = &outputs[terms[index].place.output].1;
            let note = format!("the model's output comes from {}", output.described());
            BuildError {
                span: terms[index].term.name.map_or(loss.span, |name| name.span),
                path: loss_path(&terms[index].term),
                message: error.0,
                note: Some(note),
            }
        })?;
        leaves.extend(built.factors);
        let (names, values) =
            outputs.iter().map(|(name, output)| (name.clone(), output.value)).unzip();
        let forward = Forward {
            graph,
            inputs: leaves,
            outputs: values,
            losses: built.losses,
            stats: built.stats,
            state_updates,
        };
        Ok(Built { forward, rows, outputs: names, statistics: built.statistics })
    }

    /// The layers that `outputs:` names; without it the last one, unless each loss names its output.
    fn outputs_for(
        &self,
        terms: &[Term<'_>],
        named: &Named,
        last: Source,
    ) -> Result<Vec<(String, Source)>, BuildError> {
        let alone = terms.iter().any(|term| term.name.is_none());
        Ok(match self.named_outputs(named)? {
            Some(found) => self.outputs.iter().map(|(name, _)| name.clone()).zip(found).collect(),
            None if alone => vec![(String::new(), last)],
            None => Vec::new(),
        })
    }
}

/// The key path of a term.
fn loss_path(term: &Term<'_>) -> String {
    term.name.map_or("loss".to_owned(), |name| format!("loss.{}", name.text))
}

/// Index of the batch input that a term's output is compared with; the last one is the data's
/// target.
fn target_of(term: &Term<'_>, inputs: &[&InputSpec]) -> Result<usize, BuildError> {
    let Some(name) = term.target else { return Ok(inputs.len() - 1) };
    inputs.iter().position(|input| input.name == name.text).ok_or_else(|| {
        let names = inputs.iter().map(|input| input.name.as_str());
        BuildError {
            span: name.span,
            path: loss_path(term),
            message: format!("`target: {}` is nothing that the data gives", name.text),
            note: Some(format!("it gives {}", alternatives(names))),
        }
    })
}

/// Index of a term's output among the model's, which it is added to if it is not there.
fn output_of(
    term: &Term<'_>,
    outputs: &mut Vec<(String, Source)>,
    named: &Named,
) -> Result<usize, BuildError> {
    let Some(name) = term.name else { return Ok(0) };
    let source = named.find(&name.text, name.span, &loss_path(term))?;
    if let Some(index) = outputs.iter().position(|(_, known)| known.value == source.value) {
        outputs[index].0.clone_from(&name.text);
        return Ok(index);
    }
    outputs.push((name.text.clone(), source));
    Ok(outputs.len() - 1)
}
