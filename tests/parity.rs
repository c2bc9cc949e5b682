//! Single layers against PyTorch: outputs, every gradient and new states of each case that
//! tests/reference/parity holds, on both executors. docs/parity.md is the table of them, written
//! by `WOOTZ_WRITE_PARITY=1 cargo test --test parity` (with a filter: of those cases only).

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use common::parity_page::{self, Part, Row};
use common::reference::{self, Reference, floats};
use libtest_mimic::{Arguments, Failed, Trial as Test};
use wootz::device::cpu::CpuExecutor;
use wootz::device::gpu::{self, GpuDevice, Options};
use wootz::device::{Executor, Globals, Run};
use wootz::graph::{Graph, Leaf, Origin, TensorType, ValueId, grad};
use wootz::layers::{InputSpec, Mode, Registry};
use wootz::ops::Target;
use wootz::plan::{self, Page, Slot};

/// Largest accepted difference, relative to the largest element of the tensor.
const CPU_TOLERANCE: f64 = 1e-5;
const GPU_TOLERANCE: f64 = 1e-4;

/// One case of a family's file.
#[derive(Debug, serde::Deserialize)]
struct Case {
    name: String,
    layer: String,
    options: String,
    /// YAML of the `model` section.
    model: String,
    /// `train` or `eval`.
    mode: String,
    #[serde(skip)]
    family: String,
}

/// The worst relative error of each case by device, for the page.
static WORST: Mutex<BTreeMap<(String, String), f64>> = Mutex::new(BTreeMap::new());

fn main() {
    let arguments = Arguments::from_args();
    let mut tests = Vec::new();
    let mut rows = Vec::new();
    for (family, file) in families() {
        let cases: Vec<Case> = serde_json::from_str(&file.metadata["cases"]).unwrap();
        for mut case in cases {
            case.family = family.clone();
            let name = format!("{family}::{}", case.name);
            rows.push(Row::new(&[&case.layer, &case.options, &case.mode, &name]));
            let (case, file) = (Arc::new(case), file.clone());
            let (again, again_file) = (case.clone(), file.clone());
            tests.push(Test::test(format!("cpu::{name}"), move || on_cpu(&case, &file)));
            tests.push(Test::test(format!("gpu::{name}"), move || on_gpu(&again, &again_file)));
        }
    }
    let writes = std::env::var_os("WOOTZ_WRITE_PARITY").is_some();
    if !writes {
        let rows = rows.clone();
        let complete = move || parity_page::is_complete(Part::Layers, &rows).map_err(Failed::from);
        tests.push(Test::test("the_page_lists_every_case", complete));
    }
    let conclusion = libtest_mimic::run(&arguments, tests);
    if writes {
        parity_page::write(Part::Layers, rows, &WORST.lock().unwrap());
    }
    conclusion.exit();
}

/// Every reference file of the folder, by its family.
fn families() -> Vec<(String, Arc<Reference>)> {
    let entries = std::fs::read_dir(reference::folder().join("parity")).unwrap();
    let mut found: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "safetensors"))
        .map(|path| {
            let family = path.file_stem().unwrap().to_string_lossy().into_owned();
            let file = Reference::read(&format!("parity/{family}"));
            (family, Arc::new(file))
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(!found.is_empty(), "there are no parity files");
    found
}

/// A case as a graph whose leaves are all inputs.
struct Problem {
    graph: Graph,
    /// Leaves in order, with their content.
    inputs: Vec<(ValueId, Vec<u8>)>,
    /// Names in the file of what is computed, and the values.
    outputs: Vec<(String, ValueId)>,
}

impl Problem {
    fn new(case: &Case, file: &Reference) -> Self {
        let prefix = format!("{}/", case.name);
        let tensors: BTreeMap<&str, _> = (file.tensors.iter())
            .filter_map(|(name, tensor)| Some((name.strip_prefix(&prefix)?, tensor)))
            .collect();
        let (_, model) = reference::load_model(&case.model);
        let given: Vec<String> = (0..)
            .map(|i| format!("x{i}"))
            .take_while(|n| tensors.contains_key(n.as_str()))
            .collect();
        let specs: Vec<InputSpec> = given
            .iter()
            .map(|name| InputSpec { name: name.clone(), sample: tensors[name.as_str()].ty(1) })
            .collect();
        let mode = if case.mode == "train" { Mode::Train } else { Mode::Eval };
        let mut registry = Registry::default();
        let body = model
            .body(&mut registry, &specs, tensors["x0"].dims[0], mode)
            .unwrap_or_else(|error| panic!("{}: {:?}", error.message, error.note));
        let mut problem = Problem { graph: body.graph, inputs: Vec::new(), outputs: Vec::new() };
        for (value, name) in body.inputs.iter().zip(&given) {
            problem.inputs.push((*value, tensors[name.as_str()].bytes.clone()));
        }
        let names = |kind: &str, specs: &[plan::ParamSpec]| -> Vec<String> {
            specs.iter().map(|spec| format!("{kind}.{}", spec.name)).collect()
        };
        let params = names("param", &registry.params);
        let states = names("state", &registry.states);
        let recorded = |kind: &str| -> BTreeSet<String> {
            tensors.keys().filter(|n| n.starts_with(kind)).map(|n| (*n).to_owned()).collect()
        };
        assert_eq!(BTreeSet::from_iter(params.clone()), recorded("param."), "parameters differ");
        assert_eq!(BTreeSet::from_iter(states.clone()), recorded("state."), "states differ");
        let leaves = problem.take_leaves(&params, &states, |name| tensors[name].bytes.clone());

        let mut seeds = Vec::new();
        for (index, value) in body.outputs.iter().enumerate() {
            let (y, dy) = (format!("y{index}"), format!("dy{index}"));
            let ty = problem.graph.ty(*value).clone();
            assert_eq!(ty.shape.dims(), tensors[y.as_str()].dims, "shape of {y}");
            seeds.push((*value, problem.input(ty, tensors[dy.as_str()].bytes.clone())));
            problem.outputs.push((y, *value));
        }
        let sources = given.iter().cloned().zip(body.inputs.iter().copied());
        let sources = sources.chain(leaves.iter().map(|(name, value)| (name.clone(), *value)));
        let (names, wrt): (Vec<String>, Vec<ValueId>) = sources
            .map(|(name, value)| (format!("d{name}"), value))
            .filter(|(name, _)| tensors.contains_key(name.as_str()))
            .unzip();
        let grads = grad::grad(&mut problem.graph, &seeds, &wrt)
            .unwrap_or_else(|error| panic!("{error} of {names:?}"));
        problem.outputs.extend(names.into_iter().zip(grads));
        for value in &body.state_updates {
            let name = problem.updated(*value, &leaves);
            problem.outputs.push((format!("new{name}"), *value));
        }
        let computed: BTreeSet<&str> = problem.outputs.iter().map(|(n, _)| n.as_str()).collect();
        let results = |n: &&str| {
            n.starts_with('y')
                || n.starts_with("dx")
                || n.starts_with("dparam")
                || n.starts_with("newstate")
        };
        let wanted: BTreeSet<&str> = tensors.keys().copied().filter(results).collect();
        assert_eq!(computed, wanted, "what is computed is not what was recorded");
        problem
    }

    /// A new input.
    fn input(&mut self, ty: TensorType, bytes: Vec<u8>) -> ValueId {
        let value = self.graph.leaf(Leaf::Input(self.inputs.len()), ty);
        self.inputs.push((value, bytes));
        value
    }

    /// Turns parameters and states into inputs; gives their names and values.
    fn take_leaves(
        &mut self,
        params: &[String],
        states: &[String],
        bytes: impl Fn(&str) -> Vec<u8>,
    ) -> Vec<(String, ValueId)> {
        let mut found = Vec::new();
        for (index, info) in self.graph.values.iter_mut().enumerate() {
            let name = match &info.origin {
                Origin::Leaf(Leaf::Param(at)) => &params[*at],
                Origin::Leaf(Leaf::State(at)) => &states[*at],
                _ => continue,
            };
            let value = ValueId(index as u32);
            info.origin = Origin::Leaf(Leaf::Input(self.inputs.len()));
            self.inputs.push((value, bytes(name)));
            found.push((name.clone(), value));
        }
        found
    }

    /// The name of the state whose new value this is.
    fn updated(&self, value: ValueId, leaves: &[(String, ValueId)]) -> String {
        let (node, output) = self.graph.producer(value).expect("a node computes it");
        let node = &self.graph.nodes[node.index()];
        let pair = node.op.in_place().iter().find(|(_, out)| *out == output);
        let state = node.inputs[pair.expect("it is updated in place").0];
        leaves.iter().find(|(_, leaf)| *leaf == state).expect("it is a state").0.clone()
    }

    fn plan(&self, target: &Target) -> plan::Plan {
        let inputs: Vec<ValueId> = self.inputs.iter().map(|(value, _)| *value).collect();
        let outputs: Vec<ValueId> = self.outputs.iter().map(|(_, value)| *value).collect();
        plan::of_graph(&self.graph, &inputs, &outputs, target, plan::Precision::Single)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs the plan; gives the outputs' bytes. With `poison` the arena is full of NaNs before, so
    /// that reading what was not written shows.
    fn run(
        &self,
        executor: &mut dyn Executor,
        plan: &plan::Plan,
        poison: bool,
    ) -> Result<Vec<Vec<u8>>, Failed> {
        let bytes = executor.page_bytes(Page::Arena(0));
        if poison && bytes > 0 {
            let slot = Slot { page: Page::Arena(0), offset: 0, bytes };
            executor.write(slot, &vec![0xff; bytes as usize])?;
        }
        let inputs = self.inputs.iter().map(|(_, bytes)| bytes.as_slice()).collect();
        let globals = Globals { step: 1, ..Globals::default() };
        executor.submit(&[Run { program: 0, inputs, globals }], 0)?;
        executor.reports(true)?;
        let slots = plan.programs[0].outputs.iter().map(|(slot, _)| *slot);
        slots.map(|slot| Ok(executor.read(slot)?)).collect()
    }

    /// Compares outputs with the file's; gives the worst error relative to the largest element of
    /// its tensor.
    fn worst(
        &self,
        outputs: &[Vec<u8>],
        wanted: impl Fn(&str) -> Vec<f64>,
        tolerance: f64,
    ) -> Result<f64, Failed> {
        let mut worst = 0.0_f64;
        for ((name, _), bytes) in self.outputs.iter().zip(outputs) {
            let (found, wanted) = (floats(bytes), wanted(name));
            assert_eq!(found.len(), wanted.len(), "size of {name}");
            let scale = wanted.iter().fold(0.0_f64, |top, v| top.max(v.abs()));
            for (index, (a, b)) in found.iter().zip(&wanted).enumerate() {
                let difference = (a - b).abs();
                if difference.is_nan() || difference > tolerance * scale {
                    let message = format!("{name}[{index}] is {a}, PyTorch's {b}; largest {scale}");
                    return Err(message.into());
                }
                if difference > 0.0 {
                    worst = worst.max(difference / scale);
                }
            }
        }
        Ok(worst)
    }
}

fn compare(
    case: &Case,
    file: &Reference,
    device: &str,
    tolerance: f64,
    target: &Target,
    prepare: impl FnOnce(&plan::Plan) -> Result<Box<dyn Executor>, Failed>,
) -> Result<(), Failed> {
    let problem = Problem::new(case, file);
    let plan = problem.plan(target);
    let mut executor = prepare(&plan)?;
    let wanted = |name: &str| file.floats(&format!("{}/{name}", case.name));
    let outputs = problem.run(executor.as_mut(), &plan, true)?;
    let worst = problem.worst(&outputs, wanted, tolerance)?;
    if outputs != problem.run(executor.as_mut(), &plan, false)? {
        return Err("a repeat gives other bits".into());
    }
    let test = format!("{}::{}", case.family, case.name);
    WORST.lock().unwrap().insert((test, format!("{device} f32")), worst);
    Ok(())
}

fn on_cpu(case: &Case, file: &Reference) -> Result<(), Failed> {
    compare(case, file, "CPU", CPU_TOLERANCE, &Target::Cpu, |plan| {
        Ok(Box::new(CpuExecutor::new(plan.clone(), 2)?))
    })
}

fn on_gpu(case: &Case, file: &Reference) -> Result<(), Failed> {
    static DEVICE: OnceLock<Result<GpuDevice, String>> = OnceLock::new();
    let device = DEVICE
        .get_or_init(|| gpu::open(&common::gpu()).map_err(|error| error.to_string()))
        .clone()?;
    // One at a time: waiting for a device from several threads is a race inside of wgpu.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (name, target) = (device.info().name.clone(), Target::Gpu(device.limits()));
    compare(case, file, &name, GPU_TOLERANCE, &target, |plan| {
        Ok(Box::new(device.prepare(plan, Options::default())?))
    })
}
