//! What a plan promises: memory to the byte, no allocation and no compilation in the loop, the
//! same results fused or not and cut or not.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::collections::HashMap;
use std::path::Path;

use wootz::config::load::load_with;
use wootz::config::source::{FileId, Span};
use wootz::data::{Batches, Splits};
use wootz::device::gpu::{self, Options, staging_bytes};
use wootz::device::{Device, Executor, Globals, Run, open};
use wootz::graph::eval::{self, Tensor};
use wootz::graph::{Graph, Leaf, TensorType, ValueId, grad};
use wootz::layers::{LossSpec, Mode, Model, Registry};
use wootz::ops::{GpuLimits, Target, philox};
use wootz::plan::{Page, Plan, fuse, report};
use wootz::train::compile::{Compiled, Spec, compile};
use wootz::train::model_io;

/// A configuration of the repository with its data.
struct Case {
    config: wootz::config::types::Config,
    model: Model,
    data: Splits,
}

fn case(path: &str) -> Case {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::env::set_current_dir(env!("CARGO_MANIFEST_DIR")).unwrap();
    let (loaded, _) =
        load_with(&path, &[], &|_| None, |node, cx| Model::decode(node, 2, cx)).unwrap();
    let data = wootz::data::open(&loaded.config.data, loaded.config.seed).unwrap();
    let classes = data.train.classes().unwrap_or(2);
    let mut cx = wootz::config::decode::Cx::new(wootz::config::types::Config::places());
    let model = Model::decode(&loaded.config.model, classes, &mut cx).unwrap();
    Case { config: loaded.config, model, data }
}

impl Case {
    fn batches(&self) -> Batches {
        Batches::of(&self.data.train, &self.config.train, self.config.seed)
    }

    fn compiled(&self, target: &Target) -> Compiled {
        let spec = Spec {
            config: &self.config,
            model: &self.model,
            loss_span: Span::whole(FileId(0)),
            inputs: self.data.train.inputs().to_vec(),
            target: self.data.train.target().clone(),
            classes: self.data.train.classes(),
            train_sizes: self.batches().sizes(),
            eval_sizes: vec![self.config.train.batch_size],
        };
        compile(&spec, target).unwrap()
    }

    /// Trains some steps; the parameters' bits afterwards.
    fn train(&self, compiled: &Compiled, executor: &mut dyn Executor, steps: u64) -> Vec<u8> {
        model_io::initialise(executor, compiled, self.config.seed).unwrap();
        let batches = self.batches();
        let roles = &compiled.plan.roles;
        for step in 1..=steps {
            let micros = batches.micros(step);
            let mut filled = Vec::new();
            for ids in &micros {
                let mut buffers = self.data.train.buffers(ids.len());
                self.data.train.fill(ids, &mut buffers).unwrap();
                filled.push((ids.len(), buffers));
            }
            let mut runs = Vec::new();
            let globals = |micro: usize| Globals {
                step: step as u32,
                micro: micro as u32,
                seed: [1, 2],
                hyper: compiled.rule.hyper(1e-3, step),
                ..Globals::default()
            };
            for (micro, (size, buffers)) in filled.iter().enumerate() {
                let at = compiled.train_sizes.iter().position(|s| s == size).unwrap();
                runs.push(Run {
                    program: roles.train[at],
                    inputs: buffers.inputs(),
                    globals: globals(micro),
                });
                runs.extend(roles.accumulate.map(|program| Run {
                    program,
                    inputs: Vec::new(),
                    globals: globals(micro),
                }));
            }
            runs.extend(roles.update.map(|program| Run {
                program,
                inputs: Vec::new(),
                globals: globals(0),
            }));
            executor.submit(&runs, step).unwrap();
            executor.reports(true).unwrap();
        }
        let bytes = executor.page_bytes(Page::Params);
        executor.read(wootz::plan::Slot { page: Page::Params, offset: 0, bytes }).unwrap()
    }
}

const CONFIGS: [&str; 3] =
    ["configs/digits-cnn.yaml", "configs/digits-mlp.yaml", "configs/char-gpt.yaml"];

fn gpu_device() -> gpu::GpuDevice {
    gpu::open(&common::gpu())
        .unwrap_or_else(|error| panic!("the tests need a GPU or software Vulkan: {error}"))
}

#[test]
fn what_the_device_holds_is_what_was_predicted_and_nothing_comes_later() {
    for path in CONFIGS {
        let case = case(path);
        let device = gpu_device();
        let compiled = case.compiled(&Target::Gpu(device.limits()));
        let mut executor = device.prepare(&compiled.plan, Options::default()).unwrap();
        case.train(&compiled, &mut executor, 1);
        let first = executor.usage();
        let pages: u64 = first.pages.iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(pages, report::total_bytes(&compiled.plan), "{path}");
        assert_eq!(first.staging + first.small, staging_bytes(&compiled.plan), "{path}");
        case.train(&compiled, &mut executor, 3);
        let later = executor.usage();
        assert_eq!(
            (later.allocations, later.compilations),
            (first.allocations, first.compilations),
            "{path}"
        );
        assert_eq!(later.pages, first.pages, "{path}");
    }
}

#[test]
fn the_cpu_holds_what_was_predicted() {
    for path in CONFIGS {
        let case = case(path);
        let compiled = case.compiled(&Target::Cpu);
        let Device::Cpu(_) = open("cpu", 2).unwrap() else { panic!("`cpu` is the CPU") };
        let executor = open("cpu", 2).unwrap().prepare(&compiled.plan).unwrap();
        let pages: u64 = executor.usage().pages.iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(pages, report::total_bytes(&compiled.plan), "{path}");
    }
}

#[test]
fn cutting_a_step_into_submissions_changes_no_bit() {
    let case = case("configs/digits-mlp.yaml");
    let mut found = Vec::new();
    for flops in [None, Some(1), Some(200_000)] {
        let device = gpu_device();
        let compiled = case.compiled(&Target::Gpu(device.limits()));
        let options = Options { submission_flops: flops, ..Options::default() };
        let mut executor = device.prepare(&compiled.plan, options).unwrap();
        let bits = case.train(&compiled, &mut executor, 3);
        found.push((executor.usage().submissions, bits));
    }
    assert!(found[1].0 > found[2].0 && found[2].0 > found[0].0, "the budgets cut differently");
    assert!(found.iter().all(|(_, bits)| *bits == found[0].1));
}

#[test]
fn threads_change_no_bit() {
    let case = case("configs/digits-cnn.yaml");
    let compiled = case.compiled(&Target::Cpu);
    let run = |threads| {
        let mut executor = open("cpu", threads).unwrap().prepare(&compiled.plan).unwrap();
        case.train(&compiled, executor.as_mut(), 4)
    };
    let one = run(1);
    assert_eq!(one, run(2));
    assert_eq!(one, run(3));
}

/// A training graph with its gradients, and what must stay.
fn graph_of(case: &Case) -> (Graph, Vec<ValueId>) {
    let mut registry = Registry::default();
    let nowhere = Span::whole(FileId(0));
    let loss = LossSpec { config: &case.config, span: nowhere };
    let (train, classes) = (&case.data.train, case.data.train.classes());
    let built = case
        .model
        .forward(&mut registry, train.inputs(), train.target(), classes, &loss, 3, Mode::Train)
        .unwrap();
    let mut graph = built.forward.graph;
    let params: Vec<ValueId> = (0..graph.values.len() as u32)
        .map(ValueId)
        .filter(|v| {
            matches!(graph.values[v.index()].origin, wootz::graph::Origin::Leaf(Leaf::Param(_)))
        })
        .collect();
    let mut seeds = Vec::new();
    for (rows, factor) in built.forward.losses {
        let shape = graph.shape(rows).clone();
        seeds.push((rows, graph.constant(factor, shape)));
    }
    let mut keep = grad::grad(&mut graph, &seeds, &params).unwrap();
    keep.extend(built.forward.outputs);
    keep.extend(built.forward.stats);
    keep.retain(|value| !grad::is_leaf(&graph, *value));
    (graph, keep)
}

/// The same pseudo-random content for a leaf in every graph that has it.
fn content(leaf: &Leaf, ty: &TensorType) -> Tensor<f64> {
    let stream = match leaf {
        Leaf::Param(index) => 1000 + *index as u32,
        Leaf::State(index) => 2000 + *index as u32,
        Leaf::Input(index) => 3000 + *index as u32,
        other => panic!("no content for {other:?}"),
    };
    let word = |i: usize| philox::block([i as u32, stream, 0, 0], [1, 2])[0];
    let n = ty.shape.elements();
    match ty.dtype {
        wootz::graph::DType::F32 | wootz::graph::DType::F16 => {
            Tensor::F((0..n).map(|i| f64::from(word(i)) / 4_294_967_296.0 - 0.4).collect())
        }
        wootz::graph::DType::I32 => Tensor::I((0..n).map(|i| (word(i) % 2) as i32).collect()),
    }
}

#[test]
fn fusion_changes_no_result_and_saves_ops() {
    for path in CONFIGS {
        let case = case(path);
        let (graph, keep) = graph_of(&case);
        let globals = Globals { step: 1, seed: [3, 4], ..Globals::default() };
        let plain = eval::run::<f64>(&graph, &globals, content);
        for target in [Target::Cpu, Target::Gpu(GpuLimits::FLOOR)] {
            let (fused, to): (Graph, HashMap<ValueId, ValueId>) =
                fuse::fuse(&graph, &keep, &target);
            assert!(
                fused.nodes.len() < graph.nodes.len(),
                "{path}: {} ops stay {}",
                graph.nodes.len(),
                fused.nodes.len()
            );
            let values = eval::run::<f64>(&fused, &globals, content);
            for value in &keep {
                let (a, b) = (plain[value.index()].f(), values[to[value].index()].f());
                let scale = a.iter().fold(1e-300_f64, |top, v| top.max(v.abs()));
                for (x, y) in a.iter().zip(b) {
                    assert!((x - y).abs() <= 1e-12 * scale, "{path}: {x} became {y}");
                }
            }
        }
    }
}

#[test]
fn a_batch_that_fits_a_ceiling_fits_and_one_more_does_not() {
    let case = case("configs/digits-cnn.yaml");
    let bytes = |batch: usize| -> Result<u64, ()> {
        let mut config = case.config.clone();
        config.train.batch_size = batch;
        let other = Case { config, model: case.model.clone(), data: case.data.clone() };
        let plan: Plan = other.compiled(&Target::Cpu).plan;
        Ok(report::total_bytes(&plan))
    };
    let ceiling = 8 << 20;
    let batch = report::largest_batch(ceiling, bytes).unwrap().unwrap();
    assert!(
        bytes(batch).unwrap() <= ceiling && bytes(batch + 1).unwrap() > ceiling,
        "batch {batch}"
    );
}

/// The fused kernels of the shipped configurations, beside those of the ops' cases.
#[test]
fn every_kernel_of_the_shipped_configurations_translates() {
    let limits = GpuLimits::FLOOR;
    let mut seen = Vec::new();
    for path in CONFIGS {
        let compiled = case(path).compiled(&Target::Gpu(limits.clone()));
        for step in compiled.plan.programs.iter().flat_map(|program| &program.steps) {
            let (ins, outs): (Vec<_>, Vec<_>) =
                (step.in_types.iter().collect(), step.out_types.iter().collect());
            let call = wootz::ops::GpuCall { ins: &ins, outs: &outs, limits: &limits };
            for launch in step.op.gpu(&call) {
                assert!(
                    launch.binds.len() <= limits.storage_bindings as usize,
                    "{path}: {launch:?}"
                );
                if seen.contains(&launch.kernel) {
                    continue;
                }
                let assembled = wootz::kernels::assemble(&launch.kernel).unwrap();
                let checked = wootz::kernels::check(&assembled)
                    .unwrap_or_else(|error| panic!("{path}: {error}\n{}", assembled.text));
                let translated = checked.translate(launch.kernel.entry).unwrap();
                assert!(translated.msl.contains("kernel void"), "{path}");
                seen.push(launch.kernel);
            }
        }
    }
    assert!(seen.len() > 40, "only {} kernels", seen.len());
}
