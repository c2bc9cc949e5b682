//! Whether a device computes what the CPU computes in double precision: the comparison behind
//! `wootz doctor` and the generic op tests.

use super::cpu::CpuExecutor;
use super::{DeviceError, Executor, Globals, Run};
use crate::graph::eval::{self, Tensor};
use crate::graph::{DType, Graph, Leaf, TensorType, ValueId, grad};
use crate::ops::{Case, Domain, Port, Storage, Target, map, philox};
use crate::plan::{self, Page, Plan, Precision};

/// Largest accepted difference, relative to an element's magnitude plus the largest of its tensor.
pub const TOLERANCE: f64 = 3e-5;

/// The same where values between operands and results are stored in half precision: a few of its
/// units in the last place, 2⁻¹¹.
pub const HALF_TOLERANCE: f64 = 2e-3;

/// A case as a graph with values: the op's results, and the gradients of Σ ⟨cotangent, result⟩.
#[derive(Debug)]
pub struct Trial {
    graph: Graph,
    inputs: Vec<(ValueId, TensorType, Tensor<f64>)>,
    outputs: Vec<ValueId>,
    /// Number of operands of the case; the inputs after them are cotangents.
    operands: usize,
    /// Number of results of the case; the outputs after them are gradients.
    results: usize,
    /// The differentiated operands, in the order of the gradients.
    variables: Vec<usize>,
}

/// The scalars that trials run under.
pub fn globals() -> Globals {
    Globals {
        step: 3,
        micro: 1,
        seed: [11, 7],
        hyper: [0.05, 0.6, 0.7, 0.1, 0.2, 0.3, 0.4, 0.5],
        ..Globals::default()
    }
}

impl Trial {
    /// Draws a case's operands and derives its gradients.
    ///
    /// # Errors
    /// What does not fit in the case or its gradient.
    pub fn new(case: &Case) -> Result<Self, String> {
        let mut graph = Graph::new();
        let mut inputs = Vec::new();
        for (index, (ty, domain)) in case.ins.iter().enumerate() {
            let value = graph.leaf(Leaf::Input(index), ty.clone());
            inputs.push((value, ty.clone(), draw(ty, *domain, index as u32)));
        }
        let operands: Vec<ValueId> = inputs.iter().map(|(value, _, _)| *value).collect();
        let mut outputs = (case.build)(&mut graph, &operands).map_err(|error| error.to_string())?;
        let results = outputs.len();
        let variables: Vec<usize> = (0..operands.len())
            .filter(|i| {
                case.differentiable
                    && case.ins[*i].0.dtype == DType::F32
                    && !case.not_differentiated.contains(i)
            })
            .collect();
        if !variables.is_empty() {
            let mut seeds = Vec::new();
            for output in outputs.clone() {
                let ty = graph.ty(output).clone();
                let index = inputs.len();
                let cotangent = graph.leaf(Leaf::Input(index), ty.clone());
                inputs.push((cotangent, ty.clone(), draw(&ty, Domain::Normal, index as u32)));
                seeds.push((output, cotangent));
            }
            let wrt: Vec<ValueId> = variables.iter().map(|i| operands[*i]).collect();
            let grads = grad::grad(&mut graph, &seeds, &wrt).map_err(|error| error.to_string())?;
            outputs.extend(grads);
        }
        Ok(Trial { graph, inputs, outputs, operands: operands.len(), results, variables })
    }

    /// The trial with operands and cotangents rounded to half precision.
    #[must_use]
    pub fn rounded_to_half(mut self) -> Self {
        for (_, _, value) in &mut self.inputs {
            if let Tensor::F(values) = value {
                values.iter_mut().for_each(|v| *v = half::f16::from_f64(*v).to_f64());
            }
        }
        self
    }

    /// All outputs, in a precision of the CPU.
    fn run<R: crate::ops::Real>(&self, inputs: &[Tensor<f64>]) -> Vec<Vec<R>> {
        let values = eval::run(&self.graph, &globals(), |leaf, _| match leaf {
            Leaf::Input(index) => convert(&inputs[*index]),
            other => unreachable!("a case has no leaf {other:?}"),
        });
        self.outputs.iter().map(|out| values[out.index()].f().to_vec()).collect()
    }

    fn values(&self) -> Vec<Tensor<f64>> {
        self.inputs.iter().map(|(_, _, value)| value.clone()).collect()
    }

    /// All outputs in double precision.
    pub fn reference(&self) -> Vec<Vec<f64>> {
        self.run(&self.values())
    }

    /// All outputs in the precision of training, on the CPU.
    pub fn cpu(&self) -> Vec<Vec<f32>> {
        self.run(&self.values())
    }

    /// A plan that computes all outputs.
    ///
    /// # Errors
    /// What does not fit the target.
    pub fn plan(&self, target: &Target, precision: Precision) -> Result<Plan, String> {
        let inputs: Vec<ValueId> = self.inputs.iter().map(|(value, _, _)| *value).collect();
        let (mut graph, mut outputs) = (self.graph.clone(), self.outputs.clone());
        if precision == Precision::Mixed {
            let single = |value: ValueId| {
                let readers = graph.nodes.iter().flat_map(|node| {
                    let inputs = node.inputs.iter().enumerate();
                    inputs.map(|(at, input)| (*input, node.op.storage(Port::In(at))))
                });
                let mut readers = readers.filter(|(input, _)| graph.root(*input) == value);
                readers.any(|(_, storage)| storage == Storage::Single)
            };
            let halves: Vec<ValueId> = (self.inputs.iter())
                .filter(|(value, ty, _)| ty.dtype.is_float() && !single(*value))
                .map(|(value, _, _)| *value)
                .collect();
            halves.into_iter().for_each(|value| graph.store_as(value, DType::F16));
            // What is read back is stored in single precision; the ops' own results need not be.
            for output in &mut outputs {
                *output = map::copy(&mut graph, *output).map_err(|error| error.to_string())?;
            }
        }
        plan::of_graph(&graph, &inputs, &outputs, target, precision)
            .map_err(|error| error.to_string())
    }

    /// All outputs as an executor of [`Trial::plan`] computes them. With `poison`, the arena holds
    /// NaNs before: reading what was not written shows.
    ///
    /// # Errors
    /// When the device fails.
    pub fn on(
        &self,
        executor: &mut dyn Executor,
        plan: &Plan,
        poison: bool,
    ) -> Result<Vec<Vec<f32>>, DeviceError> {
        let arena = plan.pages.iter().filter(|(page, _)| matches!(page, Page::Arena(_)));
        for &(page, bytes) in arena.filter(|_| poison) {
            let slot = plan::Slot { page, offset: 0, bytes };
            executor.write(slot, &vec![0xff; bytes as usize])?;
        }
        let types = plan.programs[0].inputs.iter().map(|(_, ty)| ty);
        let inputs: Vec<Vec<u8>> =
            self.inputs.iter().zip(types).map(|((_, _, value), ty)| to_bytes(value, ty)).collect();
        let run = Run {
            program: 0,
            inputs: inputs.iter().map(Vec::as_slice).collect(),
            globals: globals(),
        };
        executor.submit(&[run], 0)?;
        executor.reports(true)?;
        let slots: Vec<_> = plan.programs[0].outputs.iter().map(|(slot, _)| *slot).collect();
        slots
            .into_iter()
            .map(|slot| Ok(bytemuck::pod_collect_to_vec(&executor.read(slot)?)))
            .collect()
    }

    /// Runs the plan for the CPU through its executor.
    ///
    /// # Errors
    /// What does not fit.
    pub fn on_cpu_executor(&self) -> Result<Vec<Vec<f32>>, String> {
        let plan = self.plan(&Target::Cpu, Precision::Single)?;
        let mut executor = CpuExecutor::new(plan.clone(), 2).map_err(|error| error.to_string())?;
        self.on(&mut executor, &plan, true).map_err(|error| error.to_string())
    }

    /// The largest relative error of the gradients against central differences along random
    /// directions, in double precision; `None` where nothing is differentiated.
    pub fn gradient_error(&self) -> Option<f64> {
        const STEP: f64 = 1e-5;
        if self.variables.is_empty() {
            return None;
        }
        let values = self.values();
        let at = self.run::<f64>(&values);
        let mut worst = 0.0_f64;
        for (place, variable) in self.variables.iter().enumerate() {
            for direction in 0..2 {
                let ty = &self.inputs[*variable].1;
                let along = draw(ty, Domain::Normal, 1000 + direction);
                let moved = |by: f64| {
                    let mut values = values.clone();
                    if let (Tensor::F(x), Tensor::F(d)) = (&mut values[*variable], &along) {
                        x.iter_mut().zip(d).for_each(|(x, d)| *x += by * d);
                    }
                    self.objective(&self.run::<f64>(&values))
                };
                let expected = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
                let gradient = &at[self.results + place];
                let found: f64 = gradient.iter().zip(along.f()).map(|(g, d)| g * d).sum();
                let size: f64 = gradient
                    .iter()
                    .zip(along.f())
                    .map(|(g, d)| (g * d).powi(2))
                    .sum::<f64>()
                    .sqrt();
                let error = (found - expected).abs() / (size + expected.abs() + 1e-3);
                worst = if error.is_nan() { f64::INFINITY } else { worst.max(error) };
            }
        }
        Some(worst)
    }

    /// Σ ⟨cotangent, result⟩.
    fn objective(&self, outputs: &[Vec<f64>]) -> f64 {
        (0..self.results)
            .map(|i| {
                outputs[i]
                    .iter()
                    .zip(self.inputs[self.operands + i].2.f())
                    .map(|(y, c)| y * c)
                    .sum::<f64>()
            })
            .sum()
    }
}

/// The largest difference between a device's outputs and the reference, relative to each element's
/// magnitude plus its tensor's largest; infinite where one is not finite and the other is.
pub fn difference(found: &[Vec<f32>], reference: &[Vec<f64>]) -> f64 {
    difference_above(found, reference, 0.0)
}

/// As [`difference`], relative to at least `floor`.
pub fn difference_above(found: &[Vec<f32>], reference: &[Vec<f64>], floor: f64) -> f64 {
    let mut worst = 0.0_f64;
    for (found, reference) in found.iter().zip(reference) {
        let finite = reference.iter().filter(|v| v.is_finite());
        let top = finite.fold(floor, |top: f64, v| top.max(v.abs()));
        for (a, b) in found.iter().zip(reference) {
            let a = f64::from(*a);
            if a == *b || (a.is_nan() && b.is_nan()) {
                continue;
            }
            let error = (a - b).abs() / (b.abs() + top);
            worst = if error.is_nan() { f64::INFINITY } else { worst.max(error) };
        }
    }
    worst
}

fn convert<R: crate::ops::Real>(value: &Tensor<f64>) -> Tensor<R> {
    match value {
        Tensor::F(values) => Tensor::F(values.iter().map(|v| R::of(*v)).collect()),
        Tensor::I(values) => Tensor::I(values.clone()),
    }
}

fn to_bytes(value: &Tensor<f64>, ty: &TensorType) -> Vec<u8> {
    match value {
        Tensor::F(values) => ty.stored(&values.iter().map(|v| *v as f32).collect::<Vec<f32>>()),
        Tensor::I(values) => bytemuck::cast_slice(values).to_vec(),
    }
}

/// Values of a domain: each rounded to `f32`, so that every precision starts from the same.
pub(super) fn draw(ty: &TensorType, domain: Domain, stream: u32) -> Tensor<f64> {
    let n = ty.shape.elements();
    let word = |index: usize, lane: u32| philox::block([index as u32, stream, lane, 0], [5, 9])[0];
    let uniform = |index: usize, lane: u32| (f64::from(word(index, lane)) + 0.5) / 4_294_967_296.0;
    let normal = |index: usize| {
        (-2.0 * uniform(index, 0).ln()).sqrt() * (std::f64::consts::TAU * uniform(index, 1)).cos()
    };
    if let Domain::Index(bound) | Domain::IndexOr(bound, _) = domain {
        let index = |i: usize| (word(i, 2) % bound as u32) as i32;
        let values = (0..n).map(|i| match domain {
            Domain::IndexOr(_, other) if i % 3 == 2 => other,
            _ => index(i),
        });
        return match ty.dtype {
            DType::I32 => Tensor::I(values.collect()),
            _ => Tensor::F(values.map(f64::from).collect()),
        };
    }
    let value = |i: usize| match domain {
        Domain::Uniform(low, high) => f64::from(low) + uniform(i, 0) * f64::from(high - low),
        Domain::AwayFromZero => {
            let x = normal(i);
            if x < 0.0 { x.min(-0.1) } else { x.max(0.1) }
        }
        Domain::Special => match i % 7 {
            1 => f64::NAN,
            3 => f64::INFINITY,
            4 => f64::NEG_INFINITY,
            5 => 0.0,
            _ => normal(i),
        },
        // A stride that is prime to n visits every place once.
        Domain::Distinct => {
            let stride = (1..).map(|k| 7919 * k + 1).find(|s| gcd(*s, n) == 1).unwrap_or(1);
            ((i * stride) % n) as f64 * 0.05 - n as f64 * 0.025
        }
        _ => normal(i),
    };
    Tensor::F((0..n).map(|i| f64::from(value(i) as f32)).collect())
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
