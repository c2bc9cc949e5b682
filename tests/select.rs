//! Selection of tiles on a GPU: every product of a plan gets one, wrong candidates are refused, and a
//! run keeps what was chosen when it began.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::path::Path;
use std::process::Output;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::{gpu, wootz};
use wootz::device::DeviceError;
use wootz::device::gpu::{self, GpuDevice};
use wootz::device::select::{Cache, Selection, differences, select};
use wootz::graph::{DType, Graph, Leaf, Shape, ShapeError, TensorType};
use wootz::ops::conv2d::{Conv2d, Conv2dGradInput, Conv2dGradWeight};
use wootz::ops::matmul::MatMul;
use wootz::ops::selection::Product;
use wootz::ops::tile::{self, Choice, choose};
use wootz::ops::{Call, GpuCall, Grad, GradCall, Launch, Op, ScratchCall, Target};
use wootz::plan::{self, Plan, Precision};

/// Devices are opened one at a time.
static DEVICES: Mutex<()> = Mutex::new(());

fn lock() -> MutexGuard<'static, ()> {
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Long enough for a software adapter.
const LONG: Duration = Duration::from_secs(600);

/// A training program of one op, or of a chain, on these inputs.
fn plan_of(
    device: &GpuDevice,
    types: &[TensorType],
    build: impl Fn(
        &mut Graph,
        &[wootz::graph::ValueId],
    ) -> Result<Vec<wootz::graph::ValueId>, ShapeError>,
) -> Plan {
    let mut graph = Graph::new();
    let inputs: Vec<_> =
        types.iter().enumerate().map(|(i, ty)| graph.leaf(Leaf::Input(i), ty.clone())).collect();
    let outputs = build(&mut graph, &inputs).unwrap();
    let target = Target::Gpu(device.limits());
    let mut plan = plan::of_graph(&graph, &inputs, &outputs, &target, Precision::Single).unwrap();
    plan.roles.train = std::mem::take(&mut plan.roles.eval);
    plan
}

#[test]
fn every_product_gets_a_tile_that_is_right_and_the_cache_keeps_it() {
    let _lock = lock();
    let device = gpu::open(&gpu()).unwrap();
    let types = [[2, 3, 12, 12], [8, 3, 3, 3], [2, 8, 12, 12]].map(TensorType::f32);
    let plan = plan_of(&device, &types, |graph, v| {
        let conv = Conv2d::new([1, 1], [1; 4], [1, 1], 1);
        let y = graph.op(conv.clone(), &v[..2])?;
        let (a, b) = (in_rows(graph, y)?, in_rows(graph, v[2])?);
        let product = graph.op(MatMul::new(false, true), &[a, b])?;
        let seeds = [(y, v[2])];
        let grads = wootz::graph::grad::grad(graph, &seeds, &v[..2]).unwrap();
        Ok([vec![product], grads].concat())
    });
    let found = select(&device, &plan, LONG).unwrap();
    assert_eq!(found.refused, Vec::<String>::new());
    assert_eq!((found.measured, found.unmeasured, found.chosen.len()), (4, 0, 4));

    let folder = tempfile::tempdir().unwrap();
    let cache = |program: &[u8]| Cache::within(folder.path().join("deep"), &device, program);
    assert!(cache(b"one").load().is_empty());
    cache(b"one").store(&found.chosen).unwrap();
    assert_eq!(cache(b"one").load(), found.chosen);
    assert!(cache(b"two").load().is_empty(), "another program's choices");
    for file in std::fs::read_dir(folder.path().join("deep")).unwrap() {
        std::fs::write(file.unwrap().path(), b"[{\"kernel\": \"mat").unwrap();
    }
    assert!(cache(b"one").load().is_empty(), "a damaged file");

    let again = select(&device.clone().choosing(found.chosen.clone()), &plan, LONG).unwrap();
    assert_eq!(again, Selection { chosen: found.chosen, ..Selection::default() });
    let hurried = select(&device, &plan, Duration::ZERO).unwrap();
    assert_eq!((hurried.measured, hurried.unmeasured), (0, 4));
}

/// The values as a matrix of eight columns.
fn in_rows(
    graph: &mut Graph,
    value: wootz::graph::ValueId,
) -> Result<wootz::graph::ValueId, ShapeError> {
    let elements = graph.shape(value).elements();
    graph.reshape(value, [elements / 8, 8])
}

/// Tiles by splits of each of the four kernels, in both precisions, on extents that no tile divides.
#[test]
fn every_variant_agrees_with_the_cpu() {
    let _lock = lock();
    let device = gpu::open(&gpu()).unwrap();
    let conv = Conv2d::new([2, 1], [1; 4], [1, 1], 1);
    let (x, w, y) = ([3, 37, 19, 17], [67, 37, 3, 3], [3, 67, 10, 17]);
    let window = conv.0;
    let products: [(Arc<dyn Op>, Vec<usize>, Vec<usize>); 4] = [
        (Arc::new(MatMul::new(true, false)), vec![333, 130], vec![333, 201]),
        (Arc::new(conv), x.to_vec(), w.to_vec()),
        (Arc::new(Conv2dGradInput(window, [19, 17])), w.to_vec(), y.to_vec()),
        (Arc::new(Conv2dGradWeight(window, [3, 3])), x.to_vec(), y.to_vec()),
    ];
    let limits = device.limits();
    let mut variants = 0;
    for (op, a, b) in products {
        for dtype in
            [DType::F32, DType::F16].into_iter().filter(|t| *t == DType::F32 || limits.half)
        {
            let types = [&a, &b].map(|dims| TensorType { shape: Shape::new(dims.clone()), dtype });
            let ins: Vec<&TensorType> = types.iter().collect();
            let outs = op.infer(&ins).unwrap();
            let outs: Vec<&TensorType> = outs.iter().collect();
            let call = GpuCall { ins: &ins, outs: &outs, limits: &limits };
            let product = op.product(&call).unwrap();
            let mut choices = tile::candidates(&product.problem, &limits);
            choices.retain(|choice| [1, 4].contains(&choice.parts));
            assert_eq!(choices.len(), 2 * product.problem.tiles().len());
            let (found, tolerance) = differences(&device, &product, &types, &choices).unwrap();
            for (choice, error) in choices.iter().zip(found) {
                assert!(error <= tolerance, "{}: {choice} is off by {error:e}", product.problem);
                variants += 1;
            }
        }
    }
    assert_eq!(variants, if limits.half { 48 } else { 24 });
}

/// A matrix product whose kernel leaves out the last term of the sums with these choices.
#[derive(Clone, Debug)]
struct Planted(MatMul, Vec<Choice>);

impl Op for Planted {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        self.0.infer(ins)
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        self.0.grad(graph, call)
    }

    fn flops(&self, ins: &[&TensorType], outs: &[&TensorType]) -> u64 {
        self.0.flops(ins, outs)
    }

    fn cpu_f32(&self, call: Call<'_, f32>) {
        self.0.cpu_f32(call);
    }

    fn cpu_f64(&self, call: Call<'_, f64>) {
        self.0.cpu_f64(call);
    }

    fn scratch(&self, call: &ScratchCall<'_>) -> usize {
        self.0.scratch(call)
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let mut launches = self.0.gpu(call);
        let problem = self.0.product(call).unwrap().problem;
        if self.1.contains(&choose(&problem, call.limits)) {
            launches[0].dims[2] -= 1;
            for constant in &mut launches[0].kernel.constants {
                if constant.0 == "WHOLE" {
                    constant.1 = 0;
                }
            }
        }
        launches
    }

    fn product(&self, call: &GpuCall<'_>) -> Option<Product> {
        let product = self.0.product(call)?;
        Some(Product { op: Arc::new(self.clone()), ..product })
    }
}

#[test]
fn a_wrong_variant_is_refused() {
    let _lock = lock();
    let device = gpu::open(&gpu()).unwrap();
    let types = [[130, 320], [320, 70]].map(TensorType::f32);
    let with = |wrong: Vec<Choice>| {
        let op = Planted(MatMul::new(false, false), wrong);
        plan_of(&device, &types, |graph, v| graph.apply(Arc::new(op.clone()), v))
    };
    let plain = select(&device, &with(Vec::new()), LONG).unwrap();
    assert_eq!(plain.refused, Vec::<String>::new());
    let ins: Vec<&TensorType> = types.iter().collect();
    let out = TensorType::f32([130, 70]);
    let call = GpuCall { ins: &ins, outs: &[&out], limits: &device.limits() };
    let problem = MatMul::new(false, false).product(&call).unwrap().problem;
    let fastest = plain.chosen.get(&problem).unwrap();

    let found = select(&device, &with(vec![fastest]), LONG).unwrap();
    let chosen = found.chosen.get(&problem).unwrap();
    assert_ne!(chosen, fastest, "the wrong one was the fastest");
    let [refused] = found.refused.as_slice() else { panic!("{:?}", found.refused) };
    assert!(refused.starts_with(&format!("{problem}: {fastest} is off by ")), "{refused}");

    let all = tile::candidates(&problem, &device.limits());
    let Err(DeviceError::Unfit(said)) = select(&device, &with(all), LONG) else {
        panic!("a product that is wrong in every way was accepted")
    };
    assert!(said.contains("matmul of 1×130×70 with sums of 320"), "{said}");
}

const CONFIG: &str = "
version: 1
name: selected
data: {train: {synthetic: {kind: classification, classes: 5, samples: 96, shape: [40]}}}
model: {layers: [{linear: {out_features: 48}}, relu, {linear: {out_features: 5}}]}
loss: cross_entropy
optimizer: {adam: {lr: 0.01}}
train: {steps: 6, batch_size: 32}
checkpoint: {every_steps: 3}
";

fn train(folder: &Path, args: &[&str]) -> Output {
    let config = folder.join("selected.yaml");
    std::fs::write(&config, CONFIG).unwrap();
    let output = wootz()
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .args(["train", "--device", &gpu(), "--config"])
        .arg(config)
        .args(args)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn starts(run: &Path) -> Vec<serde_json::Value> {
    let info: serde_json::Value =
        serde_json::from_slice(&std::fs::read(run.join("run.json")).unwrap()).unwrap();
    info["starts"].as_array().unwrap().clone()
}

#[test]
fn a_resumed_run_keeps_its_tiles() {
    let _lock = lock();
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str| folder.path().join(name);
    let word = |path: &Path| path.to_str().unwrap().to_owned();
    train(folder.path(), &["--tune", "--run-dir", &word(&run("whole"))]);
    train(folder.path(), &["--tune", "--steps", "3", "--run-dir", &word(&run("cut"))]);
    std::fs::remove_dir_all(folder.path().join("cache")).unwrap();
    train(folder.path(), &["--no-tune", "--resume", &word(&run("cut"))]);
    let of_cut = starts(&run("cut"));
    assert_eq!(of_cut.len(), 2);
    assert_eq!(of_cut[0]["products"].as_array().unwrap().len(), 5);
    assert_eq!(of_cut[0]["products"], of_cut[1]["products"]);
    assert_eq!(of_cut[0]["products"], starts(&run("whole"))[0]["products"]);
    let weights = |name: &str| {
        std::fs::read(run(name).join("step-00000006").join("model.safetensors")).unwrap()
    };
    assert!(weights("whole") == weights("cut"), "the resumed run ended with other bytes");

    train(folder.path(), &["--no-tune", "--run-dir", &word(&run("fixed"))]);
    assert!(starts(&run("fixed"))[0].get("products").is_none());
    train(folder.path(), &["--tune", "--resume", &word(&run("fixed"))]);
    assert!(starts(&run("fixed"))[1].get("products").is_none(), "the table's tiles are kept too");
}
