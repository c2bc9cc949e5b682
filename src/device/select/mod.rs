//! Selection: which tile and split each product of a plan runs with on this very GPU. Candidates
//! compute the product on scratch buffers, are held against the CPU in double precision, and those
//! that agree are timed.

mod cache;
mod check;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::agreement;
use super::gpu::{GpuDevice, GpuExecutor, Options};
use super::{DeviceError, Executor, Run};
use crate::graph::{Graph, Leaf, ShapeError, TensorType};
use crate::ops::selection::{Chosen, Product};
use crate::ops::tile::{self, Choice, Problem};
use crate::ops::{Call, GpuCall, Grad, GradCall, Launch, Op, ScratchCall, Target};
use crate::plan::{self, Plan, Precision};

pub use cache::Cache;

/// What selection found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// The choices, those that were known before included.
    pub chosen: Chosen,
    /// Products that were measured now.
    pub measured: usize,
    /// Products that took the cost model's choice, because they are too large or the time was over.
    pub unmeasured: usize,
    /// A sentence for each candidate that computed something wrong.
    pub refused: Vec<String>,
}

/// Candidates of a product that are measured: the cost model's first ones.
const CANDIDATES: usize = 4;
/// What a candidate must save to be taken instead of the cost model's.
const WORTH: f64 = 0.03;
/// Most bytes of operands and results of the candidates of one product.
const LARGEST: u64 = 1 << 30;
/// Rounds of timing; the fastest counts.
const ROUNDS: usize = 3;
/// Length of a round.
const ROUND: Duration = Duration::from_micros(1500);

/// Chooses for the products of the training programs that the device has no choice for yet, those with
/// the most work first. After `budget` the rest takes the cost model's choice.
///
/// # Errors
/// When the device fails, or when every candidate of a product is wrong.
pub fn select(device: &GpuDevice, plan: &Plan, budget: Duration) -> Result<Selection, DeviceError> {
    let begin = Instant::now();
    let mut found = Selection { chosen: device.limits().chosen, ..Selection::default() };
    for (product, types) in products(device, plan) {
        let candidates = tile::candidates(&product.problem, &device.limits());
        let first = candidates[0];
        let choice = if begin.elapsed() > budget || bytes(&product, &types) > LARGEST {
            found.unmeasured += 1;
            first
        } else {
            found.measured += 1;
            let trial = Trial { device, product: &product, types: &types };
            trial.fastest(&candidates[..CANDIDATES.min(candidates.len())], &mut found.refused)?
        };
        found.chosen = found.chosen.with(product.problem, choice);
    }
    Ok(found)
}

/// The products of a plan's training programs without a choice, and the types of their factors.
fn products(device: &GpuDevice, plan: &Plan) -> Vec<(Product, [TensorType; 2])> {
    let limits = device.limits();
    let mut found: BTreeMap<Problem, (Product, [TensorType; 2], u64)> = BTreeMap::new();
    let programs = plan.roles.train.iter().map(|id| &plan.programs[*id]);
    for step in programs.flat_map(|program| &program.steps) {
        let (ins, outs): (Vec<_>, Vec<_>) =
            (step.in_types.iter().collect(), step.out_types.iter().collect());
        let call = GpuCall { ins: &ins, outs: &outs, limits: &limits };
        let Some(product) = step.op.product(&call) else { continue };
        if limits.chosen.get(&product.problem).is_some() {
            continue;
        }
        let flops = step.op.flops(&ins, &outs);
        let types = [ins[0].clone(), ins[1].clone()];
        found.entry(product.problem).or_insert((product, types, 0)).2 += flops;
    }
    let mut found: Vec<_> = found.into_values().collect();
    found.sort_by_key(|(_, _, flops)| std::cmp::Reverse(*flops));
    found.into_iter().map(|(product, types, _)| (product, types)).collect()
}

/// Bytes of the factors and of the results of all candidates.
fn bytes(product: &Product, types: &[TensorType; 2]) -> u64 {
    let Problem { layers, m, n, .. } = product.problem;
    let results = (CANDIDATES * layers * m * n * 4) as u64;
    types.iter().map(TensorType::bytes).sum::<u64>() + results
}

/// One product on a device.
struct Trial<'a> {
    device: &'a GpuDevice,
    product: &'a Product,
    types: &'a [TensorType; 2],
}

/// The candidates of a product on a device that have run once.
struct Ran {
    executor: GpuExecutor,
    factors: [Vec<u8>; 2],
    /// The largest relative difference of each from the CPU.
    differences: Vec<f64>,
    /// Largest accepted difference.
    tolerance: f64,
}

/// How far the results of a product of `types` with each choice are from those of the CPU in double
/// precision, on a sample of the elements: the largest difference relative to an element's magnitude
/// plus the sample's largest; and how far they may be.
///
/// # Errors
/// When the device fails.
pub fn differences(
    device: &GpuDevice,
    product: &Product,
    types: &[TensorType; 2],
    choices: &[Choice],
) -> Result<(Vec<f64>, f64), DeviceError> {
    let ran = Trial { device, product, types }.run(choices)?;
    Ok((ran.differences, ran.tolerance))
}

impl Trial<'_> {
    /// The fastest candidate of those that are right.
    fn fastest(
        &self,
        candidates: &[Choice],
        refused: &mut Vec<String>,
    ) -> Result<Choice, DeviceError> {
        let mut ran = self.run(candidates)?;
        let (problem, name) = (&self.product.problem, &self.device.info().name);
        let mut right = Vec::new();
        for (index, error) in ran.differences.iter().enumerate() {
            if *error <= ran.tolerance {
                right.push(index);
                continue;
            }
            let choice = candidates[index];
            refused.push(format!(
                "{problem}: {choice} is off by {error:.1e} on {name} and is not used"
            ));
        }
        let Some(first) = right.first() else {
            return Err(DeviceError::Unfit(format!(
                "every way to compute {problem} is wrong on {name}: it cannot be trained on"
            )));
        };
        let times = ran.times()?;
        let limit = match first {
            0 => times[0] * (1.0 - WORTH),
            _ => f64::INFINITY,
        };
        let fastest = right.iter().min_by(|a, b| times[**a].total_cmp(&times[**b]));
        let faster = fastest.filter(|index| times[**index] < limit);
        Ok(candidates[*faster.unwrap_or(first)])
    }

    /// Computes the product with each candidate, and holds the results against the CPU.
    fn run(&self, candidates: &[Choice]) -> Result<Ran, DeviceError> {
        let plan = self.plan(candidates).map_err(DeviceError::Unfit)?;
        let mut executor = self.device.clone().prepare(&plan, Options::default())?;
        let factors = [0, 1].map(|i| check::pattern(&self.types[i], i as u32));
        let sample =
            check::Sample::new(self.product, self.types, &factors).map_err(DeviceError::Unfit)?;
        let factors = factors.map(|factor| factor.bytes);
        executor.submit(&[run(&factors)], 0)?;
        executor.reports(true)?;
        let mut differences = Vec::new();
        for (slot, _) in &plan.programs[0].outputs {
            differences.push(sample.difference(&executor.read(*slot)?));
        }
        Ok(Ran { executor, factors, differences, tolerance: sample.tolerance })
    }

    /// A plan that computes the product once with each candidate.
    fn plan(&self, candidates: &[Choice]) -> Result<Plan, String> {
        let mut graph = Graph::new();
        let inputs = [0, 1].map(|i| graph.leaf(Leaf::Input(i), self.types[i].clone()));
        let mut outputs = Vec::new();
        for choice in candidates {
            let op: Arc<dyn Op> = self.product.op.clone();
            let variant = Variant { op, problem: self.product.problem, choice: *choice };
            let out = graph.apply(Arc::new(variant), &inputs).map_err(|error| error.to_string())?;
            outputs.extend(out);
        }
        let target = Target::Gpu(self.device.limits());
        plan::of_graph(&graph, &inputs, &outputs, &target, Precision::Single)
            .map_err(|error| error.to_string())
    }
}

/// One run of a trial's program.
fn run(factors: &[Vec<u8>; 2]) -> Run<'_> {
    let inputs = factors.iter().map(Vec::as_slice).collect();
    Run { program: 0, inputs, globals: agreement::globals() }
}

impl Ran {
    /// Seconds of each candidate: the fastest of several rounds.
    fn times(&mut self) -> Result<Vec<f64>, DeviceError> {
        let run = run(&self.factors);
        let once = self.executor.time_steps(&run, 1)?;
        let mean = once.iter().sum::<Duration>().as_secs_f64().max(1e-6) / once.len() as f64;
        let repeats = (ROUND.as_secs_f64() / mean).clamp(1.0, 100.0) as u32;
        let mut best = vec![f64::INFINITY; once.len()];
        for _ in 0..ROUNDS {
            let times = self.executor.time_steps(&run, repeats)?;
            let faster = best.iter().zip(&times).map(|(best, time)| best.min(time.as_secs_f64()));
            best = faster.collect();
        }
        Ok(best)
    }
}

/// A product that runs with a given choice.
#[derive(Debug)]
pub struct Variant {
    /// The product.
    pub op: Arc<dyn Op>,
    /// How the choice sees it.
    pub problem: Problem,
    /// The choice.
    pub choice: Choice,
}

impl Op for Variant {
    fn name(&self) -> &'static str {
        self.op.name()
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        self.op.infer(ins)
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        self.op.grad(graph, call)
    }

    fn flops(&self, ins: &[&TensorType], outs: &[&TensorType]) -> u64 {
        self.op.flops(ins, outs)
    }

    fn cpu_f32(&self, call: Call<'_, f32>) {
        self.op.cpu_f32(call);
    }

    fn cpu_f64(&self, call: Call<'_, f64>) {
        self.op.cpu_f64(call);
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let mut limits = call.limits.clone();
        limits.chosen = limits.chosen.with(self.problem, self.choice);
        self.op.gpu(&GpuCall { limits: &limits, ..*call })
    }

    fn scratch(&self, call: &ScratchCall<'_>) -> usize {
        let mut target = call.target.clone();
        if let Target::Gpu(limits) = &mut target {
            limits.chosen = limits.chosen.with(self.problem, self.choice);
        }
        self.op.scratch(&ScratchCall { target: &target, ..*call })
    }
}
