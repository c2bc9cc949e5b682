//! Evaluation: metrics over a whole set. Sums over its batches are made on the device and added
//! here; for a metric that needs each prediction, the outputs are read back batch by batch.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::config::loss::Term;
use crate::config::metric::Metric;
use crate::data::{Dataset, Loader};
use crate::device::{Executor, Globals, Run};
use crate::layers::loss::Statistics;
use crate::plan::ProgramId;

use super::compile::Compiled;
use super::error::TrainError;
use super::metrics::{Streams, Value};
use super::watch::Metrics;

/// What was measured on a set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluation {
    /// Numbers, named `<set>/loss` and so on: exact over the whole set, not means of means.
    pub metrics: Metrics,
    /// What is no single number: values for each class, and matrices.
    pub tables: Vec<(String, Json)>,
}

/// The means of the objective's parts, from sums of the statistics.
pub fn parts(statistics: &Statistics, sums: &[f64], set: &str) -> Metrics {
    let mut parts = Vec::new();
    for measure in &statistics.measures {
        if let Some(name) = &measure.name {
            parts.push((format!("{set}/{name}"), measure.mean(sums)));
        }
        if let Some(name) = &measure.accuracy {
            let weight = sums[measure.index + 1];
            let share = if weight == 0.0 { 0.0 } else { sums[measure.index + 2] / weight };
            parts.push((format!("{set}/{name}"), share));
        }
    }
    parts
}

/// Sums of the statistics over batches.
struct Sums(Vec<f64>);

impl Sums {
    fn add(&mut self, values: &[f32]) {
        self.0.iter_mut().zip(values).for_each(|(sum, value)| *sum += f64::from(*value));
    }
}

/// Evaluates a whole set by the evaluation `programs`, one for each batch size.
///
/// # Errors
/// When the data or the device fails, or a loss is not finite.
pub fn evaluate(
    executor: &mut dyn Executor,
    compiled: &Compiled,
    programs: &[ProgramId],
    terms: &[Term<'_>],
    set: &Arc<Dataset>,
    name: &str,
) -> Result<Evaluation, TrainError> {
    let size = compiled.eval_sizes.iter().copied().max().unwrap_or(1);
    let mut sums = Sums(vec![0.0; compiled.statistics.count]);
    let mut streams = Streams::new(compiled, terms);
    let mut loader = Loader::in_order(set.clone(), size);
    let mut done = 0;
    while done < set.len() {
        let batch = loader.next_step()?;
        let micro = &batch.micros[0];
        let inputs = micro.inputs();
        let program = program(compiled, programs, micro.size)?;
        let globals = Globals::default();
        executor.submit(&[Run { program, inputs: inputs.clone(), globals }], done as u64)?;
        for report in executor.reports(streams.read_outputs())? {
            sums.add(&report.values);
        }
        streams.update(executor, &compiled.plan.programs[program], &inputs)?;
        done += micro.size;
        loader.recycle(batch);
    }
    for report in executor.reports(true)? {
        sums.add(&report.values);
    }
    finish(compiled, terms, set, name, &sums.0, &streams)
}

fn program(
    compiled: &Compiled,
    programs: &[ProgramId],
    size: usize,
) -> Result<ProgramId, TrainError> {
    let at = compiled.eval_sizes.iter().position(|planned| *planned == size);
    at.map(|at| programs[at]).ok_or_else(|| {
        let message = format!("no evaluation was planned for batches of {size}");
        crate::device::DeviceError::Unfit(message).into()
    })
}

/// The values of everything that was asked for.
fn finish(
    compiled: &Compiled,
    terms: &[Term<'_>],
    set: &Dataset,
    name: &str,
    sums: &[f64],
    streams: &Streams,
) -> Result<Evaluation, TrainError> {
    let statistics = &compiled.statistics;
    let mut metrics = vec![(format!("{name}/loss"), statistics.objective(sums))];
    metrics.extend(parts(statistics, sums, name));
    if let Some(empty) = statistics.measures.iter().find(|m| sums[m.index + 1] == 0.0) {
        // No target counts, so there is no mean.
        let part = empty.name.as_deref().unwrap_or("loss");
        return Err(TrainError::NotFiniteMetric { metric: format!("{name}/{part}") });
    }
    if let Some((metric, _)) = metrics.iter().find(|(_, value)| !value.is_finite()) {
        return Err(TrainError::NotFiniteMetric { metric: metric.clone() });
    }
    for measure in &statistics.measures {
        let Some(place) = &measure.place else { continue };
        let term = &terms[place.term];
        for metric in term.metrics {
            let nats = measure.mean(sums);
            let value = match metric {
                Metric::Perplexity(_) => nats.exp(),
                Metric::BitsPerByte(_) => {
                    let bytes = set.target_bytes();
                    nats * sums[measure.index + 1] / std::f64::consts::LN_2 / bytes as f64
                }
                _ => continue,
            };
            metrics.push((format!("{name}/{}", term.reported(&metric.name())), value));
        }
    }
    let mut tables = Vec::new();
    for (metric, value) in streams.values() {
        let metric = format!("{name}/{metric}");
        match value {
            Value::Number(value) if value.is_finite() => metrics.push((metric, value)),
            Value::Number(_) => return Err(TrainError::NotFiniteMetric { metric }),
            Value::Table(table) => tables.push((metric, table)),
            Value::Undefined => {}
        }
    }
    Ok(Evaluation { metrics, tables })
}
