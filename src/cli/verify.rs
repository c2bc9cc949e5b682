//! `verify`: runs the first step of a model on a device and holds every op's result against the CPU
//! in double precision.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use super::session::Session;
use super::{CliError, ConfigArgs};
use crate::device::agreement::{HALF_TOLERANCE, difference_above};
use crate::device::gpu::{Fault, Options};
use crate::device::{Executor, Globals, Run};
use crate::graph::eval::{Tensor, run_op};
use crate::graph::{DType, TensorType};
use crate::plan::{Page, Slot, Step};
use crate::train::compile::{Compiled, with_factors};
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
    /// Seconds to compare for: after half of them, only ops and shapes that have not been compared
    /// yet are; after all of them, none.
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// One JSON document.
    #[arg(long)]
    json: bool,
    /// Puts a defect into a kernel, for tests: edit-kernel:NAME:OLD=>NEW.
    #[arg(long, hide = true, value_name = "FAULT")]
    inject_fault: Option<Fault>,
}

/// The largest error of one op in one layer.
#[derive(Clone, Debug, Default)]
struct Worst {
    error: f64,
    tolerance: f64,
    op: &'static str,
}

impl Worst {
    /// The error as a share of what is accepted.
    fn share(&self) -> f64 {
        self.error / self.tolerance
    }
}

/// What is accepted of a step: more where it stores halves.
fn tolerance(step: &Step) -> f64 {
    let half = step.in_types.iter().chain(&step.out_types).any(|ty| ty.dtype == DType::F16);
    if half { HALF_TOLERANCE } else { TOLERANCE }
}

/// Largest accepted error, relative to the largest magnitude of the result: f32 sums of some
/// thousand terms in another order.
const TOLERANCE: f64 = 1e-4;

/// Results of every op of the step, in order.
type Results = Vec<Vec<f32>>;

/// Compares.
pub fn run(args: VerifyArgs) -> Result<u8, CliError> {
    let session = Session::open(&args.config)?;
    let chosen = session.device()?;
    let name = chosen.describe();
    let compiled = session.compile(&chosen.target())?;
    let options = Options { fault: args.inject_fault, ..Options::default() };
    let mut executor = chosen.prepare_with(&compiled.plan, options)?;
    let mut judge = Judge::new(Duration::from_secs(args.seconds));
    let first = first_results(&session, &compiled, executor.as_mut(), Some(&mut judge))?;
    for repeat in 1..args.repeats {
        if bits(&first_results(&session, &compiled, executor.as_mut(), None)?) != bits(&first) {
            return Err(CliError::Differs(format!("{name}: repeat {repeat} gave other bits")));
        }
    }
    let failed: Vec<&(String, Worst)> =
        judge.worst.iter().filter(|(_, worst)| worst.share() > 1.0).collect();
    if args.json {
        let layers: Vec<_> = judge
            .worst
            .iter()
            .map(|(layer, w)| json!({"layer": layer, "op": w.op, "error": w.error, "tolerance": w.tolerance}))
            .collect();
        super::print(&json!({"device": name, "repeats": args.repeats, "tolerance": TOLERANCE, "layers": layers, "not_compared": judge.skipped, "ok": failed.is_empty()}).to_string());
    } else {
        for (layer, w) in &judge.worst {
            super::print(&format!(
                "{:<32} {:<22} largest relative error {:.2e}",
                layer, w.op, w.error
            ));
        }
    }
    if let Some((layer, worst)) = failed.first() {
        return Err(CliError::Differs(format!(
            "{name} is wrong in {} layers, first in `{layer}`: `{}` is off by {:.1e}",
            failed.len(),
            worst.op,
            worst.error
        )));
    }
    let compared = first.len() - judge.skipped;
    let rest = match judge.skipped {
        0 => String::new(),
        rest => format!("; {rest} more were not compared within {} s", args.seconds),
    };
    let halves = match judge.worst.iter().any(|(_, worst)| worst.tolerance > TOLERANCE) {
        true => format!(", halves within {HALF_TOLERANCE:.0e}"),
        false => String::new(),
    };
    super::eprint(&format!(
        "{name}: {compared} results agree with double precision within {TOLERANCE:.0e}{halves}, {} repeats to the bit{rest}",
        args.repeats
    ));
    let by_share = |a: &&(String, Worst), b: &&(String, Worst)| a.1.share().total_cmp(&b.1.share());
    if let Some((layer, worst)) = judge.worst.iter().max_by(by_share) {
        super::eprint(&format!("worst: `{}` in `{layer}`, {:.1e}", worst.op, worst.error));
    }
    Ok(0)
}

/// Every result of the first micro-batch, from the first weights.
fn first_results(
    session: &Session,
    compiled: &Compiled,
    executor: &mut dyn Executor,
    mut judge: Option<&mut Judge>,
) -> Result<Results, CliError> {
    let seed = session.config().seed;
    model_io::initialise(executor, compiled, seed)?;
    let program = compiled.plan.roles.train[0];
    let size = compiled.train_sizes[0];
    let set = &session.data.train;
    let mut buffers = set.epoch_buffers(size);
    let ids: Vec<usize> = (0..size).collect();
    set.fill_epoch(&ids, 0, &mut buffers)?;
    let globals =
        Globals { step: 1, seed: [seed as u32, (seed >> 32) as u32], ..Globals::default() };
    let factors = compiled.statistics.factors(&[(size, buffers.inputs())]);
    let inputs = with_factors(buffers.inputs(), &factors);
    if let Some(judge) = &mut judge {
        judge.start(compiled, executor, program, &inputs)?;
    }
    let steps = &compiled.plan.programs[program].steps;
    let mut results = Vec::new();
    executor.inspect(&Run { program, inputs, globals }, &mut |step, out, _, values| {
        if let Some(judge) = &mut judge {
            judge.result(&steps[step], out, values, &globals);
        }
        results.push(values.to_vec());
        true
    })?;
    Ok(results)
}

fn bits(results: &Results) -> Vec<Vec<u32>> {
    results.iter().map(|values| values.iter().map(|v| v.to_bits()).collect()).collect()
}

/// Holds each result against the same op in double precision on the CPU, over the operands that
/// the device itself had computed: errors do not add up from op to op.
struct Judge {
    begin: Instant,
    /// How long it compares.
    limit: Duration,
    /// Ops with their operands' types that were compared.
    known: HashSet<String>,
    /// Results that were not compared.
    skipped: usize,
    /// The device's memory as words, kept up with its results.
    pages: HashMap<Page, Vec<u32>>,
    /// What the step's results should be; nothing where they are not compared.
    expected: Option<Vec<Vec<f64>>>,
    /// A magnitude below which results of the step are rounding: where large terms cancel, an error
    /// relative to what is left says nothing.
    floor: f64,
    /// The largest error of each layer and pass.
    worst: Vec<(String, Worst)>,
}

impl Judge {
    fn new(limit: Duration) -> Self {
        Judge {
            begin: Instant::now(),
            limit,
            known: HashSet::new(),
            skipped: 0,
            pages: HashMap::new(),
            expected: None,
            floor: 0.0,
            worst: Vec::new(),
        }
    }

    /// Fills what the program is to compute with NaNs, so that an element that is never written
    /// shows, and takes the memory over.
    fn start(
        &mut self,
        compiled: &Compiled,
        executor: &mut dyn Executor,
        program: usize,
        inputs: &[&[u8]],
    ) -> Result<(), CliError> {
        for (page, bytes) in &compiled.plan.pages {
            let slot = Slot { page: *page, offset: 0, bytes: *bytes };
            if matches!(page, Page::Arena(_) | Page::Grads) {
                executor.write(slot, &vec![0xff; *bytes as usize])?;
            }
            let content = executor.read(slot)?;
            self.pages.insert(*page, bytemuck::pod_collect_to_vec(&content));
        }
        for ((slot, _), bytes) in compiled.plan.programs[program].inputs.iter().zip(inputs) {
            self.words(*slot)[..bytes.len() / 4]
                .copy_from_slice(&bytemuck::pod_collect_to_vec::<u8, u32>(bytes));
        }
        Ok(())
    }

    fn words(&mut self, slot: Slot) -> &mut [u32] {
        let start = (slot.offset / 4) as usize;
        let page = self.pages.entry(slot.page).or_default();
        &mut page[start..start + (slot.bytes / 4) as usize]
    }

    /// Judges one result; the first of a step computes what all of its results should be.
    fn result(&mut self, step: &Step, out: usize, values: &[f32], globals: &Globals) {
        if out == 0 {
            self.expected = self.has_time_for(step).then(|| self.expect(step, globals));
        }
        match self.expected.take() {
            Some(expected) => {
                self.compare(step, values, &expected[out..=out]);
                self.expected = Some(expected);
            }
            None => self.skipped += 1,
        }
        let slot = step.outs[out];
        let bytes = step.out_types[out].stored(values);
        self.words(slot)[..bytes.len() / 4].copy_from_slice(&bytemuck::pod_collect_to_vec(&bytes));
    }

    fn has_time_for(&mut self, step: &Step) -> bool {
        let is_new = self.known.insert(format!("{:?} {:?}", step.op, step.in_types));
        self.begin.elapsed() < if is_new { self.limit } else { self.limit / 2 }
    }

    fn compare(&mut self, step: &Step, values: &[f32], expected: &[Vec<f64>]) {
        let found = [values.to_vec()];
        let error = difference_above(&found, expected, self.floor);
        let pass = if step.backward { " (backward)" } else { "" };
        let layer =
            if step.scope.is_empty() { "step".to_owned() } else { format!("{}{pass}", step.scope) };
        let new = Worst { error, tolerance: tolerance(step), op: step.op.name() };
        match self.worst.iter_mut().find(|(known, _)| *known == layer) {
            Some((_, old)) if new.share() > old.share() => *old = new,
            Some(_) => {}
            None => self.worst.push((layer, new)),
        }
    }

    fn expect(&mut self, step: &Step, globals: &Globals) -> Vec<Vec<f64>> {
        let operands: Vec<Tensor<f64>> = (step.ins.iter().zip(&step.in_types))
            .map(|(slot, ty)| {
                let words = self.words(*slot);
                match ty.dtype {
                    DType::F32 | DType::F16 => {
                        let numbers = ty.numbers(bytemuck::cast_slice(words));
                        Tensor::F(numbers.into_iter().map(f64::from).collect())
                    }
                    DType::I32 => Tensor::I(bytemuck::cast_slice(words).to_vec()),
                }
            })
            .collect();
        let largest = operands.iter().filter_map(|operand| match operand {
            Tensor::F(values) => Some(values.iter().fold(0.0_f64, |top, v| top.max(v.abs()))),
            Tensor::I(_) => None,
        });
        let elements = |types: &[TensorType]| types.iter().map(|ty| ty.shape.elements()).max();
        let terms = elements(&step.in_types).unwrap_or(1) as f64
            / elements(&step.out_types).unwrap_or(1) as f64;
        self.floor = 1e-3 * largest.fold(0.0, f64::max) * terms.max(1.0);
        let operands: Vec<&Tensor<f64>> = operands.iter().collect();
        let (ins, outs): (Vec<_>, Vec<_>) =
            (step.in_types.iter().collect(), step.out_types.iter().collect());
        run_op(step.op.as_ref(), &operands, &ins, &outs, globals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Graph, Leaf};
    use crate::ops::Target;
    use crate::ops::softmax::Softmax;
    use crate::plan::{Precision, of_graph};

    #[test]
    fn what_is_new_has_all_of_the_time_and_the_rest_half() {
        let step = |cols: usize| {
            let mut graph = Graph::new();
            let x = graph.leaf(Leaf::Input(0), TensorType::f32([2, cols]));
            let y = graph.op(Softmax, &[x]).expect("it fits");
            let plan = of_graph(&graph, &[x], &[y], &Target::Cpu, Precision::Single);
            plan.expect("it fits").programs[0].steps[0].clone()
        };
        let mut judge = Judge::new(Duration::from_secs(3600));
        assert!(judge.has_time_for(&step(3)) && judge.has_time_for(&step(3)));
        // Nine seconds later, with fifteen in all.
        judge.begin -= Duration::from_secs(9);
        judge.limit = Duration::from_secs(15);
        assert!(!judge.has_time_for(&step(3)), "it was compared before");
        assert!(judge.has_time_for(&step(4)), "these shapes were not");
        judge.limit = Duration::from_secs(8);
        assert!(!judge.has_time_for(&step(5)), "the time is up");
    }
}
