//! Optimizers and schedules against PyTorch and papers' formulas: a hundred steps of each on both
//! executors. tests/reference/optimizers.py wrote the files.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use safetensors::SafeTensors;
use serde_json::Value as Json;
use wootz::config::load::{Loaded, load_with};
use wootz::config::schedule::Schedule;
use wootz::device::{self, Device, Globals, Run};
use wootz::graph::{Graph, Leaf, Shape, TensorType, ValueId};
use wootz::layers::Model;
use wootz::ops::map::{self, Code};
use wootz::plan::{
    self, Forward, Init, Layout, Page, ParamSpec, Plan, REPORT_HEAD, Request, Update,
};
use wootz::train::{optimizer, schedule, watch};

/// Largest accepted difference, relative to the largest number of a tensor.
const TOLERANCE: f64 = 1e-5;

fn reference(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference").join(name)
}

/// A configuration with these sections; its data and model do not matter.
fn config(sections: &str) -> Loaded {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    let text = format!(
        "version: 1
data: {{train: {{synthetic: {{kind: classification, samples: 8, shape: [2], classes: 2}}}}, valid: {{split: 0.5}}}}
model: {{layers: [{{linear: {{out_features: 2}}}}]}}
loss: cross_entropy
{sections}
train: {{steps: 100, batch_size: 4}}
"
    );
    std::fs::write(&path, text).unwrap();
    let read = load_with(&path, &[], &|_| None, |node, cx| Model::decode(node, 2, cx));
    read.unwrap_or_else(|error| panic!("{error}")).0
}

/// The parameters of the reference, in the order of its file's script.
const NAMES: [&str; 4] = ["matrix", "tall", "bias", "one"];

struct Reference {
    bytes: Vec<u8>,
}

impl Reference {
    fn file(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.bytes).unwrap()
    }

    fn cases(&self) -> Vec<(String, String)> {
        let (_, metadata) = SafeTensors::read_metadata(&self.bytes).unwrap();
        let cases = metadata.metadata().as_ref().unwrap()["cases"].clone();
        let cases: Vec<Json> = serde_json::from_str(&cases).unwrap();
        let text = |case: &Json, key: &str| case[key].as_str().unwrap().to_owned();
        cases.iter().map(|case| (text(case, "name"), text(case, "config"))).collect()
    }

    fn shape(&self, name: &str) -> Shape {
        Shape::new(self.file().tensor(name).unwrap().shape())
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        self.file().tensor(name).unwrap().data().to_vec()
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        bytemuck::pod_collect_to_vec(&self.bytes(name))
    }
}

/// Σ curvature · (p − target)² / 2 over all parameters: targets and curvatures are inputs.
fn quadratic(shapes: &[Shape]) -> Forward {
    let mut graph = Graph::new();
    let (mut inputs, mut losses, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    for (index, shape) in shapes.iter().enumerate() {
        let ty = TensorType::f32(shape.clone());
        let p = graph.leaf(Leaf::Param(index), ty.clone());
        let target = graph.leaf(Leaf::Input(2 * index), ty.clone());
        let curvature = graph.leaf(Leaf::Input(2 * index + 1), ty);
        inputs.extend([target, curvature]);
        let code = Code::of(|code| {
            let (p, target, curvature) = (code.input(0), code.input(1), code.input(2));
            let off = code.sub(p, target);
            let square = code.mul(off, off);
            let scaled = code.mul(square, curvature);
            code.scale(scaled, 0.5)
        });
        let loss = map::apply(&mut graph, code, &[p, target, curvature], shape.clone()).unwrap();
        losses.push((loss, 1.0));
        rows.push(graph.reshape(loss, Shape::new([shape.elements()])).unwrap());
    }
    let weight = graph.constant(1.0, [1]);
    let stats: Vec<ValueId> = vec![rows[0], weight];
    Forward { graph, inputs, outputs: Vec::new(), losses, stats, state_updates: Vec::new() }
}

struct Planned {
    plan: Plan,
    layout: Layout,
    loaded: Loaded,
}

fn planned(reference: &Reference, sections: &str, device: &Device) -> Planned {
    let loaded = config(sections);
    let shapes: Vec<Shape> =
        NAMES.iter().map(|name| reference.shape(&format!("start/{name}"))).collect();
    let specs: Vec<ParamSpec> = (NAMES.iter().zip(&shapes))
        .map(|(name, shape)| ParamSpec {
            name: (*name).to_owned(),
            shape: shape.clone(),
            init: Init::Constant(0.0),
            decay: true,
        })
        .collect();
    let groups = optimizer::groups(&loaded.config, &specs, &[true; 4]).unwrap();
    let layout = Layout::new(specs, &groups.of);
    let moments = layout.moments(|index| {
        let group = &groups.groups[layout.group_of(index).unwrap()];
        group.rule.moments(&layout.params[index].spec.shape)
    });
    let update = Update {
        groups: groups.groups,
        moments,
        clip_norm: None,
        clip_adaptive: None,
        noise: false,
        average: false,
        accumulate: 1,
        weight_index: 1,
    };
    let plan = plan::build(Request {
        target: &device.target(),
        precision: plan::Precision::Single,
        params: &layout,
        states: &Layout::default(),
        train: vec![quadratic(&shapes)],
        eval: Vec::new(),
        update: Some(update),
    })
    .unwrap();
    Planned { plan, layout, loaded }
}

/// Follows a trajectory; gives the largest relative difference and where it is.
fn follow(reference: &Reference, name: &str, sections: &str, device: &str) -> (f64, String) {
    let device = device::open(device, 1).unwrap();
    let Planned { plan, layout, loaded } = planned(reference, sections, &device);
    let mut executor = device.prepare(&plan).unwrap();
    for (index, name) in NAMES.iter().enumerate() {
        let start = reference.bytes(&format!("start/{name}"));
        executor.write(layout.params[index].slot(Page::Params), &start).unwrap();
    }
    let curvatures: Vec<Vec<u8>> =
        NAMES.iter().map(|name| reference.bytes(&format!("curvature/{name}"))).collect();
    let targets: Vec<Vec<u8>> =
        NAMES.iter().map(|name| reference.bytes(&format!("target/{name}"))).collect();
    let rule = optimizer::rule(&loaded.config.optimizer);
    let mut worst = (0.0, String::new());
    for step in 1..=100_u64 {
        let mut inputs = Vec::new();
        for (targets, curvature) in targets.iter().zip(&curvatures) {
            let len = curvature.len();
            inputs.push(&targets[(step as usize - 1) * len..step as usize * len]);
            inputs.push(&curvature[..]);
        }
        let hyper = rule.hyper(loaded.config.optimizer.lr(), step);
        let globals = Globals { step: step as u32, hyper, ..Globals::default() };
        let runs = [
            Run { program: plan.roles.train[0], inputs, globals },
            Run { program: plan.roles.update.unwrap(), inputs: Vec::new(), globals },
        ];
        executor.submit(&runs, step).unwrap();
        let reports = executor.reports(true).unwrap();
        assert!(reports[0].values[REPORT_HEAD].is_finite());
        for (index, param) in NAMES.iter().enumerate() {
            let key = format!("{name}/{step}/{param}");
            if reference.file().tensor(&key).is_err() {
                continue;
            }
            let wanted = reference.floats(&key);
            let bytes = executor.read(layout.params[index].slot(Page::Params)).unwrap();
            let found: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
            let scale = wanted.iter().fold(0.0_f64, |most, v| most.max(f64::from(v.abs())));
            for (a, b) in found.iter().zip(&wanted) {
                let error = (f64::from(*a) - f64::from(*b)).abs() / scale;
                if error.is_nan() || error > worst.0 {
                    worst = (error, format!("{param} after step {step}: {a}, not {b}"));
                }
            }
        }
    }
    worst
}

fn follow_all(device: &str) {
    let reference =
        Reference { bytes: std::fs::read(reference("optimizers.safetensors")).unwrap() };
    let mut wrong = Vec::new();
    for (name, sections) in reference.cases() {
        let (error, place) = follow(&reference, &name, &sections, device);
        println!("{name}: {error:.1e}");
        if error.is_nan() || error > TOLERANCE {
            wrong.push(format!("{name}: off by {error:.1e} ({place})"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_optimizer_follows_its_reference_on_the_cpu() {
    follow_all("cpu");
}

#[test]
fn every_optimizer_follows_its_reference_on_the_gpu() {
    follow_all(&common::gpu());
}

#[test]
fn every_schedule_gives_its_reference() {
    let text = std::fs::read_to_string(reference("schedules.json")).unwrap();
    let document: Json = serde_json::from_str(&text).unwrap();
    let (lr, total) = (document["lr"].as_f64().unwrap(), document["total"].as_u64().unwrap());
    for case in document["schedules"].as_array().unwrap() {
        let section = case["schedule"].as_str().unwrap();
        let loaded = config(&format!("optimizer: {{sgd: {{lr: {lr}}}}}\nschedule: {section}"));
        for (at, wanted) in case["rates"].as_array().unwrap().iter().enumerate() {
            let found = schedule::rate(&loaded.config.schedule, lr, at as u64 + 1, total);
            let wanted = wanted.as_f64().unwrap();
            let close = (found - wanted).abs() <= 1e-9 * lr;
            assert!(close, "{section}: step {}: {found}, not {wanted}", at + 1);
        }
    }
    let values: Vec<f64> = document["plateau_values"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_f64().unwrap())
        .collect();
    for case in document["plateaus"].as_array().unwrap() {
        let section = case["schedule"].as_str().unwrap();
        let loaded = config(&format!("optimizer: {{sgd: {{lr: {lr}}}}}\nschedule: {section}"));
        let Schedule::ReduceOnPlateau(rule) = &loaded.config.schedule else { panic!("{section}") };
        let mut state = None;
        for (value, wanted) in values.iter().zip(case["rates"].as_array().unwrap()) {
            let metrics = vec![("valid/loss".to_owned(), *value)];
            watch::update_plateau(&mut state, rule, lr, &metrics);
            let found = lr * state.as_ref().unwrap().factor;
            let wanted = wanted.as_f64().unwrap();
            assert!((found - wanted).abs() <= 1e-9, "{section}: {found}, not {wanted}");
        }
    }
}

#[test]
fn every_optimizer_file_stands_alone() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/optimizers");
    let mut words = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let loaded = config(&format!("optimizer: {}", path.display()));
        words.push(loaded.config.optimizer.word());
        let rule: Arc<_> = optimizer::rule(&loaded.config.optimizer);
        assert!(rule.hyper(loaded.config.optimizer.lr(), 1).iter().all(|x| x.is_finite()));
    }
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), 14, "each optimizer has a file: {words:?}");
}
