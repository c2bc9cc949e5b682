//! Graphs that are run on both executors and in double precision.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::{Random, gpu, reference};
use wootz::config::source::{FileId, Span};
use wootz::device::cpu::CpuExecutor;
use wootz::device::gpu::{self as gpus, Fault, GpuDevice, Options};
use wootz::device::{DeviceError, Executor, Globals, Run};
use wootz::graph::eval::{self, Tensor};
use wootz::graph::{DType, Graph, Leaf, Origin, TensorType, ValueId, grad};
use wootz::layers::{InputSpec, LossSpec, Mode, Registry};
use wootz::ops::Target;
use wootz::plan::{self, ALIGN, Page, Plan, Precision, Slot};

/// What an input holds.
#[derive(Debug, Clone)]
pub enum Content {
    /// Floats.
    F(Vec<f32>),
    /// Integers.
    I(Vec<i32>),
}

impl Content {
    /// Little-endian.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Content::F(values) => bytemuck::cast_slice(values),
            Content::I(values) => bytemuck::cast_slice(values),
        }
    }
}

/// The CPU executor, or the GPU, which is held for as long as this lives: waiting for a device from
/// several threads is a race inside of wgpu.
pub enum Device {
    /// The CPU with two threads.
    Cpu,
    /// The GPU of the tests.
    Gpu(GpuDevice, MutexGuard<'static, ()>),
}

/// Both, one after the other.
pub fn devices() -> impl Iterator<Item = Device> {
    static DEVICE: OnceLock<GpuDevice> = OnceLock::new();
    static ALONE: Mutex<()> = Mutex::new(());
    let gpu = || {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let device = DEVICE.get_or_init(|| gpus::open(&gpu()).unwrap_or_else(|e| panic!("{e}")));
        Device::Gpu(device.clone(), alone)
    };
    std::iter::once(Device::Cpu).chain(std::iter::once_with(gpu))
}

impl Device {
    /// Whether it is the GPU.
    pub fn is_gpu(&self) -> bool {
        matches!(self, Device::Gpu(..))
    }

    /// In words.
    pub fn name(&self) -> &str {
        match self {
            Device::Cpu => "the CPU",
            Device::Gpu(device, _) => &device.info().name,
        }
    }

    /// Largest accepted difference, relative to the largest element of the tensor.
    pub fn tolerance(&self) -> f64 {
        if self.is_gpu() { 1e-4 } else { 1e-5 }
    }

    /// What to plan for.
    pub fn target(&self) -> Target {
        match self {
            Device::Cpu => Target::Cpu,
            Device::Gpu(device, _) => Target::Gpu(device.limits()),
        }
    }

    fn try_prepare(
        &self,
        plan: &Plan,
        fault: Option<Fault>,
    ) -> Result<Box<dyn Executor>, DeviceError> {
        let options = Options { fault, ..Options::default() };
        Ok(match self {
            Device::Cpu => Box::new(CpuExecutor::new(plan.clone(), 2)?),
            Device::Gpu(device, _) => Box::new(device.clone().prepare(plan, options)?),
        })
    }

    /// An executor.
    pub fn prepare(&self, plan: &Plan) -> Box<dyn Executor> {
        self.prepare_with(plan, None)
    }

    /// An executor with a failure to come.
    pub fn prepare_with(&self, plan: &Plan, fault: Option<Fault>) -> Box<dyn Executor> {
        self.try_prepare(plan, fault).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Why a plan does not fit.
    pub fn refusal(&self, plan: &Plan) -> String {
        self.try_prepare(plan, None).err().expect("the plan does not fit").to_string()
    }
}

/// A graph whose leaves are all inputs, and what is asked of it.
#[derive(Debug)]
pub struct Problem {
    graph: Graph,
    inputs: Vec<(ValueId, Content)>,
    outputs: Vec<ValueId>,
    /// Names of the outputs.
    pub names: Vec<String>,
    /// How many of the inputs are the data's.
    data: usize,
}

const GLOBALS: Globals = Globals { step: 1, micro: 0, seed: [3, 4], hyper: [0.0; 8], pad: [0; 4] };

impl Problem {
    /// A graph with the content of its inputs.
    pub fn of(graph: Graph, inputs: Vec<(ValueId, Content)>, outputs: Vec<ValueId>) -> Self {
        let names = (0..outputs.len()).map(|i| format!("output {i}")).collect();
        Problem { graph, data: inputs.len(), inputs, outputs, names }
    }

    /// The gradients of a loss in a batch with respect to all parameters that are trained.
    pub fn new(model: &str, loss: &str, x: TensorType, y: TensorType, batch: usize) -> Self {
        let (loaded, model) = reference::load(&super::step::config(model, loss, "sgd: {lr: 0.1}"));
        let loss = LossSpec { config: &loaded.config, span: Span::whole(FileId(0)) };
        let inputs = [InputSpec { name: "x".into(), sample: x }];
        let target = InputSpec { name: "y".into(), sample: y };
        let mut registry = Registry::default();
        let built = model
            .forward(&mut registry, &inputs, &target, Some(INDICES), &loss, batch, Mode::Train)
            .unwrap_or_else(|error| panic!("{}: {:?}", error.message, error.note));
        let mut graph = built.forward.graph;
        let mut seeds = Vec::new();
        for (rows, factor) in built.forward.losses {
            let shape = graph.shape(rows).clone();
            seeds.push((rows, graph.constant(factor, shape)));
        }
        let leaf = |value: usize, graph: &Graph| match &graph.values[value].origin {
            Origin::Leaf(leaf) => Some(leaf.clone()),
            _ => None,
        };
        let trained: Vec<(String, ValueId)> = (0..graph.values.len())
            .filter_map(|value| match leaf(value, &graph)? {
                Leaf::Param(at) if registry.trained[at] => {
                    Some((registry.params[at].name.clone(), ValueId(value as u32)))
                }
                _ => None,
            })
            .collect();
        let (names, wrt): (Vec<String>, Vec<ValueId>) = trained.into_iter().unzip();
        let outputs = grad::grad(&mut graph, &seeds, &wrt).unwrap_or_else(|e| panic!("{e}"));
        let mut inputs: Vec<(ValueId, Content)> = Vec::new();
        let data = built.forward.inputs.len();
        for value in built.forward.inputs {
            inputs.push((value, content(graph.ty(value), 100 + inputs.len() as u64, 1.0)));
        }
        for value in 0..graph.values.len() {
            let (stream, scale) = match leaf(value, &graph) {
                Some(Leaf::Param(at)) => (named(&registry.params[at].name), 0.3),
                Some(Leaf::State(at)) => (named(&registry.states[at].name), 0.3),
                _ => continue,
            };
            let at = inputs.len();
            graph.values[value].origin = Origin::Leaf(Leaf::Input(at));
            let ty = graph.values[value].ty.clone();
            inputs.push((ValueId(value as u32), content(&ty, stream, scale)));
        }
        Problem { graph, inputs, outputs, names, data }
    }

    /// The data's inputs.
    pub fn batch(&self) -> Vec<&[u8]> {
        self.inputs[..self.data].iter().map(|(_, content)| content.bytes()).collect()
    }

    /// What the parameter of a name starts from.
    pub fn start(name: &str, ty: &TensorType) -> Content {
        content(ty, named(name), 0.3)
    }

    /// All outputs in double precision, op by op.
    pub fn reference(&self) -> Vec<Vec<f64>> {
        let values = eval::run::<f64>(&self.graph, &GLOBALS, |leaf, _| match leaf {
            Leaf::Input(at) => match &self.inputs[*at].1 {
                Content::F(values) => Tensor::F(values.iter().map(|v| f64::from(*v)).collect()),
                Content::I(values) => Tensor::I(values.clone()),
            },
            other => panic!("no content for {other:?}"),
        });
        self.outputs.iter().map(|out| values[out.index()].f().to_vec()).collect()
    }

    fn plan_of(&self, outputs: &[ValueId], target: &Target) -> Plan {
        let inputs: Vec<ValueId> = self.inputs.iter().map(|(value, _)| *value).collect();
        plan::of_graph(&self.graph, &inputs, outputs, target, Precision::Single)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// The plan that training would have.
    pub fn plan(&self, target: &Target) -> Plan {
        self.plan_of(&self.outputs, target)
    }

    /// A plan whose every value is an output after the others, so that no two ops become one.
    pub fn plan_unfused(&self, target: &Target) -> Plan {
        let mut outputs = self.outputs.clone();
        for value in self.graph.nodes.iter().flat_map(|node| &node.outputs) {
            if !outputs.contains(value) {
                outputs.push(*value);
            }
        }
        self.plan_of(&outputs, target)
    }

    fn bytes(&self) -> Vec<&[u8]> {
        self.inputs.iter().map(|(_, content)| content.bytes()).collect()
    }

    /// All outputs of a plan, whose activations are NaNs before.
    pub fn run(&self, executor: &mut dyn Executor, plan: &Plan) -> Vec<Vec<f32>> {
        for (page, bytes) in &plan.pages {
            if matches!(page, Page::Arena(_)) {
                fill(executor, Slot { page: *page, offset: 0, bytes: *bytes });
            }
        }
        self.try_run(executor).unwrap_or_else(|error| panic!("{error}"));
        read(executor, plan)
    }

    /// Runs a plan, as it finds the device's memory.
    pub fn try_run(&self, executor: &mut dyn Executor) -> Result<(), DeviceError> {
        submit(executor, Run { program: 0, inputs: self.bytes(), globals: GLOBALS })
    }

    /// All outputs of a plan, with NaNs after each step in all that no later step will read.
    pub fn run_over_nans(&self, device: &Device, plan: &Plan) -> Vec<Vec<f32>> {
        let whole = &plan.programs[0];
        let mut split = plan.clone();
        split.programs = (whole.steps.iter())
            .map(|step| plan::Program { steps: vec![step.clone()], ..plan::Program::default() })
            .collect();
        split.programs[0].inputs = whole.inputs.clone();
        let mut executor = device.prepare(&split);
        let mut live: Vec<Slot> = whole.outputs.iter().map(|(slot, _)| *slot).collect();
        let mut after: Vec<Vec<Slot>> = Vec::new();
        for step in whole.steps.iter().rev() {
            after.push(live.clone());
            live.retain(|slot| !step.outs.contains(slot));
            live.extend(&step.ins);
        }
        let mut filled = 0;
        for (program, live) in after.iter().rev().enumerate() {
            let inputs = if program == 0 { self.bytes() } else { Vec::new() };
            submit(executor.as_mut(), Run { program, inputs, globals: GLOBALS })
                .unwrap_or_else(|error| panic!("{error}"));
            for slot in released(plan, live) {
                fill(executor.as_mut(), slot);
                filled += slot.bytes;
            }
        }
        assert!(filled > 0, "no memory was released");
        read(executor.as_mut(), plan)
    }
}

/// Ranges of the activations that none of these slots holds.
fn released(plan: &Plan, live: &[Slot]) -> Vec<Slot> {
    let mut found: Vec<Slot> = Vec::new();
    for (page, bytes) in plan.pages.iter().filter(|(page, _)| matches!(page, Page::Arena(_))) {
        let mut held: Vec<&Slot> = live.iter().filter(|slot| slot.page == *page).collect();
        held.sort_by_key(|slot| slot.offset);
        let mut at = 0;
        for slot in held {
            if slot.offset > at {
                found.push(Slot { page: *page, offset: at, bytes: slot.offset - at });
            }
            at = at.max((slot.offset + slot.bytes).next_multiple_of(ALIGN));
        }
        if *bytes > at {
            found.push(Slot { page: *page, offset: at, bytes: bytes - at });
        }
    }
    found
}

fn submit(executor: &mut dyn Executor, run: Run<'_>) -> Result<(), DeviceError> {
    executor.submit(&[run], 0)?;
    executor.reports(true).map(|_| ())
}

/// Fills a slot with NaNs.
pub fn fill(executor: &mut dyn Executor, slot: Slot) {
    let nans = vec![0xff; slot.bytes as usize];
    executor.write(slot, &nans).unwrap_or_else(|error| panic!("{error}"));
}

fn read(executor: &mut dyn Executor, plan: &Plan) -> Vec<Vec<f32>> {
    let slots = plan.programs[0].outputs.iter().map(|(slot, _)| *slot);
    slots
        .map(|slot| {
            let bytes = executor.read(slot).unwrap_or_else(|error| panic!("{error}"));
            bytemuck::pod_collect_to_vec(&bytes)
        })
        .collect()
}

/// What all indices are below.
const INDICES: usize = 7;

/// A number for a name (FNV-1a).
fn named(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Numbers within ±`scale`, or indices.
fn content(ty: &TensorType, stream: u64, scale: f64) -> Content {
    let mut random = Random::new(stream);
    let count = ty.shape.elements();
    match ty.dtype {
        DType::I32 => Content::I((0..count).map(|_| random.below(INDICES) as i32).collect()),
        _ => {
            let number = |_| ((2.0 * random.uniform() - 1.0) * scale) as f32;
            Content::F((0..count).map(number).collect())
        }
    }
}

/// Holds what was found against what was wanted: differences up to `tolerance` of each tensor's
/// largest element.
pub fn agree(names: &[String], found: &[Vec<f32>], wanted: &[Vec<f64>], tolerance: f64) {
    assert_eq!(found.len(), wanted.len());
    for ((name, found), wanted) in names.iter().zip(found).zip(wanted) {
        assert_eq!(found.len(), wanted.len(), "size of {name}");
        let largest = wanted.iter().fold(0.0_f64, |top, v| top.max(v.abs()));
        for (index, (a, b)) in found.iter().zip(wanted).enumerate() {
            let difference = (f64::from(*a) - b).abs();
            assert!(
                difference <= tolerance * largest,
                "{name}[{index}] is {a} in the place of {b}; largest {largest}"
            );
        }
    }
}
