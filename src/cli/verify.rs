//! `verify`: runs the first step of a model on this device and on the CPU and compares every op's
//! result.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::json;

use super::session::Session;
use super::{CliError, ConfigArgs};
use crate::device::{self, Executor, Globals, Run};
use crate::ops::Target;
use crate::train::compile::Compiled;
use crate::train::model_io;

/// What to verify.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  wootz verify --config configs/digits-cnn.yaml --device metal
  wootz verify --config configs/char-gpt.yaml --repeats 20")]
pub struct VerifyArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// How often the device runs the step; all runs must agree to the bit.
    #[arg(long, default_value_t = 3)]
    repeats: usize,
    /// One JSON document.
    #[arg(long)]
    json: bool,
}

/// The largest error of one op in one layer.
#[derive(Clone, Debug, Default)]
struct Worst {
    error: f64,
    op: &'static str,
}

/// Largest accepted error, relative to the largest magnitude of the result: f32 sums of some
/// thousand terms in another order.
const TOLERANCE: f64 = 1e-3;

type Results = Vec<Vec<f32>>;

/// Compares.
pub fn run(args: VerifyArgs) -> Result<u8, CliError> {
    let session = Session::open(&args.config)?;
    let chosen = session.device()?;
    let name = chosen.describe();
    let target = chosen.target();
    if target == Target::Cpu {
        super::eprint("note: the device is the CPU itself; only the agreement of repeats is checked");
    }
    // Both plan for the device, so that both run the same fused ops on the same slots.
    let compiled = session.compile(&target)?;
    let mut executor = chosen.prepare(&compiled.plan)?;
    let mut reference = device::open("cpu", 0)?.prepare(&compiled.plan)?;
    let first = first_results(&session, &compiled, executor.as_mut())?;
    for repeat in 1..args.repeats {
        if bits(&first_results(&session, &compiled, executor.as_mut())?) != bits(&first) {
            return Err(CliError::Differs(format!("{name}: repeat {repeat} gave other bits")));
        }
    }
    let expected = first_results(&session, &compiled, reference.as_mut())?;
    let worst = compare(&compiled, &first, &expected);
    let failed: Vec<&String> = worst.iter().filter(|(_, w)| w.error > TOLERANCE).map(|(layer, _)| layer).collect();
    if args.json {
        let layers: Vec<_> = worst.iter().map(|(layer, w)| json!({"layer": layer, "op": w.op, "error": w.error})).collect();
        super::print(&json!({"device": name, "repeats": args.repeats, "tolerance": TOLERANCE, "layers": layers, "ok": failed.is_empty()}).to_string());
    } else {
        for (layer, w) in &worst {
            super::print(&format!("{:<32} {:<16} largest relative error {:.2e}", layer, w.op, w.error));
        }
    }
    if let Some(layer) = failed.first() {
        return Err(CliError::Differs(format!("{name} and the CPU differ in {} layers, first `{layer}`", failed.len())));
    }
    super::eprint(&format!("{name}: {} results agree with the CPU within {TOLERANCE:.0e}, {} repeats to the bit", first.len(), args.repeats));
    Ok(0)
}

/// Every result of the first micro-batch, from the first weights.
fn first_results(session: &Session, compiled: &Compiled, executor: &mut dyn Executor) -> Result<Results, CliError> {
    let seed = session.config().seed;
    model_io::initialise(executor, compiled, seed)?;
    let program = compiled.plan.roles.train[0];
    let size = compiled.train_sizes[0];
    let set = &session.data.train;
    let mut buffers = set.buffers(size);
    let ids: Vec<usize> = (0..size).collect();
    set.fill(&ids, &mut buffers)?;
    let globals = Globals { step: 1, seed: [seed as u32, (seed >> 32) as u32], ..Globals::default() };
    let mut results = Vec::new();
    executor.inspect(&Run { program, inputs: buffers.inputs(), globals }, &mut |_, _, _, values| {
        results.push(values.to_vec());
        true
    })?;
    Ok(results)
}

fn bits(results: &Results) -> Vec<Vec<u32>> {
    results.iter().map(|values| values.iter().map(|v| v.to_bits()).collect()).collect()
}

/// The largest error of each layer and pass.
fn compare(compiled: &Compiled, given: &Results, expected: &Results) -> BTreeMap<String, Worst> {
    let steps = &compiled.plan.programs[compiled.plan.roles.train[0]].steps;
    let labels = steps.iter().flat_map(|step| {
        let pass = if step.backward { " (backward)" } else { "" };
        let layer = if step.scope.is_empty() { "step".to_owned() } else { format!("{}{pass}", step.scope) };
        step.outs.iter().map(move |_| (layer.clone(), step.op.name()))
    });
    let mut worst: BTreeMap<String, Worst> = BTreeMap::new();
    for ((layer, op), (a, b)) in labels.zip(given.iter().zip(expected)) {
        let error = relative_error(a, b);
        let entry = worst.entry(layer).or_default();
        // `>` is false for NaN, which must not pass.
        if entry.op.is_empty() || error > entry.error || error.is_nan() {
            *entry = Worst { error: if error.is_nan() { f64::INFINITY } else { error }, op };
        }
    }
    worst
}

/// max |a − b| / max |b|; infinite where one is not finite and the other is.
fn relative_error(a: &[f32], b: &[f32]) -> f64 {
    let scale = b.iter().map(|v| f64::from(v.abs())).fold(1e-12, f64::max);
    a.iter().zip(b).map(|(x, y)| (f64::from(*x) - f64::from(*y)).abs() / scale).fold(0.0, |worst: f64, e| if e > worst || e.is_nan() { e } else { worst })
}
