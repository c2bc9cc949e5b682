//! From a configuration and the data's shapes to a plan.

use std::sync::Arc;

use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::source::Span;
use crate::config::types::{Config, Precision};
use crate::data::StepBatch;
use crate::layers::loss::Statistics;
use crate::layers::{BuildError, Built, InputSpec, LossSpec, Mode, Model, Registry, Row};
use crate::ops::Target;
use crate::ops::update::UpdateRule;
use crate::plan::{self, Group, Layout, Moments, Plan, PlanError, Request, Update};

use super::optimizer;

/// What a plan is compiled from.
#[derive(Debug)]
pub struct Spec<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// Its model, decoded.
    pub model: &'a Model,
    /// Where `loss` stands in the file, for errors about it.
    pub loss_span: Span,
    /// The model's inputs.
    pub inputs: Vec<InputSpec>,
    /// The target.
    pub target: InputSpec,
    /// Number of classes or tokens in the data, where it has any.
    pub classes: Option<usize>,
    /// Batch sizes that occur in training; empty to only evaluate.
    pub train_sizes: Vec<usize>,
    /// Batch sizes that occur in evaluation.
    pub eval_sizes: Vec<usize>,
}

/// A plan with the names that go with it.
#[derive(Debug)]
pub struct Compiled {
    /// The programs.
    pub plan: Plan,
    /// The parameters' order.
    pub params: Layout,
    /// The states' order.
    pub states: Layout,
    /// How each group of the parameters is updated.
    pub groups: Vec<Group>,
    /// The moments' places.
    pub moments: Vec<Moments>,
    /// The layers, of the largest batch.
    pub rows: Vec<Row>,
    /// Names of the model's outputs; one empty name where it has a sole output without one.
    pub outputs: Vec<String>,
    /// What the statistics are.
    pub statistics: Statistics,
    /// Batch size of each training program.
    pub train_sizes: Vec<usize>,
    /// Batch size of each evaluation program.
    pub eval_sizes: Vec<usize>,
    /// The optimizer whose scalars the device gets.
    pub rule: Arc<dyn UpdateRule>,
}

impl Compiled {
    /// What the training programs take as their last input in a step, where they take any more than
    /// the data.
    pub fn factors(&self, batch: &StepBatch) -> Option<Vec<f32>> {
        let window: Vec<_> = batch.micros.iter().map(|m| (m.size, m.inputs())).collect();
        self.statistics.factors(&window)
    }
}

/// The inputs of a training program: the data's, then the factors.
pub fn with_factors<'a>(mut inputs: Vec<&'a [u8]>, factors: &'a Option<Vec<f32>>) -> Vec<&'a [u8]> {
    inputs.extend(factors.as_deref().map(bytemuck::cast_slice::<f32, u8>));
    inputs
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// A layer does not fit.
    #[error("{}", .0.message)]
    Build(BuildError),
    /// The plan does not work out.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A group of parameters does not exist.
    #[error(transparent)]
    Groups(#[from] optimizer::Unnamed),
}

impl CompileError {
    /// As a message about the user's file; `model` is where the model stands.
    pub fn diagnostics(&self, model: Span) -> Diagnostics {
        let mut all = Diagnostics::default();
        match self {
            CompileError::Build(error) => {
                let mut diagnostic =
                    Diagnostic::new(error.span, error.path.clone(), error.message.clone());
                if let Some(note) = &error.note {
                    diagnostic.note(note.clone());
                }
                all.push(diagnostic);
            }
            CompileError::Plan(error) => {
                _ = all.push(Diagnostic::new(model, "model", error.to_string()))
            }
            CompileError::Groups(error) => {
                _ = all.push(Diagnostic::new(model, error.path.clone(), error.to_string()))
            }
        }
        all
    }
}

/// Index of the first loss's sum among the statistics.
pub const LOSS: usize = 0;
/// Index of the divisor of the first loss among the statistics.
pub const WEIGHT: usize = 1;

/// An error about a parameter as one about its layer.
fn at_layer(error: PlanError, rows: &[Row]) -> CompileError {
    let (PlanError::NoGradient { name, .. } | PlanError::Unused { name }) = &error else {
        return error.into();
    };
    let owns =
        |row: &&Row| name.strip_prefix(row.name.as_str()).is_some_and(|rest| rest.starts_with('.'));
    match rows.iter().filter(owns).max_by_key(|row| row.name.len()) {
        Some(row) => CompileError::Build(BuildError {
            span: row.span,
            path: format!("model: {}", row.name),
            message: error.to_string(),
            note: None,
        }),
        None => error.into(),
    }
}

/// Builds the graphs of all batch sizes and plans them.
///
/// # Errors
/// When a layer's input does not fit or a parameter cannot be trained.
pub fn compile(spec: &Spec<'_>, target: &Target) -> Result<Compiled, CompileError> {
    let mut registry = Registry::default();
    let mut build = |sizes: &[usize], mode: Mode| -> Result<Vec<Built>, CompileError> {
        let loss = LossSpec { config: spec.config, span: spec.loss_span };
        sizes
            .iter()
            .map(|batch| {
                spec.model.forward(
                    &mut registry,
                    &spec.inputs,
                    &spec.target,
                    spec.classes,
                    &loss,
                    *batch,
                    mode,
                )
            })
            .collect::<Result<_, _>>()
            .map_err(CompileError::Build)
    };
    let mut train = build(&spec.train_sizes, Mode::Train)?;
    let mut eval = build(&spec.eval_sizes, Mode::Eval)?;
    let first = train.first_mut().or(eval.first_mut());
    let (rows, outputs, statistics) = first
        .map(|b| (std::mem::take(&mut b.rows), b.outputs.clone(), b.statistics.clone()))
        .unwrap_or_default();
    let optimizer::Groups { groups, of } =
        optimizer::groups(spec.config, &registry.params, &registry.trained)?;
    let params = Layout::new(registry.params, &of);
    let states = Layout::new(registry.states, &[]);
    let moments = params.moments(|index| {
        let group = params.group_of(index).map(|group| &groups[group]);
        group.map_or(Vec::new(), |group| group.rule.moments(&params.params[index].spec.shape))
    });
    let settings = &spec.config.train;
    let update = (!train.is_empty()).then(|| Update {
        groups: groups.clone(),
        moments: moments.clone(),
        clip_norm: settings.clip_norm.map(|c| c as f32),
        clip_adaptive: (settings.clip_adaptive.as_ref())
            .map(|clip| (clip.clip_factor as f32, clip.eps as f32)),
        noise: settings.gradient_noise.is_some(),
        average: spec.config.average.is_some(),
        accumulate: settings.accumulate,
        weight_index: statistics.divisor,
    });
    let plan = plan::build(Request {
        target,
        precision: match spec.config.precision {
            Precision::F32 => plan::Precision::Single,
            Precision::Mixed => plan::Precision::Mixed,
        },
        params: &params,
        states: &states,
        train: train.into_iter().map(|b| b.forward).collect(),
        eval: eval.into_iter().map(|b| b.forward).collect(),
        update,
    })
    .map_err(|error| at_layer(error, &rows))?;
    for (index, program) in plan.programs.iter().enumerate() {
        tracing::debug!(program = index, ops = program.steps.len(), "program planned");
    }
    tracing::info!(
        parameters = params.parameter_count(),
        programs = plan.programs.len(),
        bytes = plan::report::total_bytes(&plan),
        "step planned"
    );
    Ok(Compiled {
        plan,
        params,
        states,
        groups,
        moments,
        rows,
        outputs,
        statistics,
        train_sizes: spec.train_sizes.clone(),
        eval_sizes: spec.eval_sizes.clone(),
        rule: optimizer::rule(&spec.config.optimizer),
    })
}
