//! Every loss against PyTorch, value and gradient, on both executors: tests/reference/losses.py wrote
//! the file. docs/parity.md has a table of them, written by `WOOTZ_WRITE_PARITY=1 cargo test --test
//! losses`.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use common::parity_page::{self, Part, Row};
use common::reference::{self, Reference, Stored};
use libtest_mimic::{Arguments, Failed, Trial};
use safetensors::tensor::Dtype;
use wootz::config::source::{FileId, Span};
use wootz::device::{self, Globals, Run};
use wootz::graph::grad;
use wootz::layers::{InputSpec, LossSpec, Mode, Registry};
use wootz::ops::Stats;
use wootz::plan::{Precision, of_graph};

/// Largest accepted difference of a value, relative to the largest of its tensor, on the CPU and on
/// a GPU.
const TOLERANCE: [f64; 2] = [1e-5, 1e-4];

struct Case {
    name: String,
    loss: String,
    tensors: BTreeMap<String, Stored>,
}

fn cases() -> Vec<Case> {
    let file = Reference::read("losses");
    let list: Vec<BTreeMap<String, String>> =
        serde_json::from_str(&file.metadata["cases"]).unwrap();
    list.into_iter()
        .map(|entry| {
            let (name, loss) = (entry["name"].clone(), entry["loss"].clone());
            let prefix = format!("{name}/");
            let own = file.tensors.iter().filter_map(|(full, tensor)| {
                Some((full.strip_prefix(&prefix)?.to_owned(), tensor.clone()))
            });
            let tensors = own.collect();
            Case { name, loss, tensors }
        })
        .collect()
}

/// The loss and its gradient with respect to the output, as the executor of a device gives them, and
/// the device's name.
fn run(case: &Case, device: &str) -> Result<(f64, Vec<f64>, String), Failed> {
    let x = &case.tensors["x"];
    let none = Stored { dims: vec![x.dims[0]], dtype: Dtype::I32, bytes: vec![0; 4 * x.dims[0]] };
    let y = case.tensors.get("y").unwrap_or(&none);
    let kind = match y.dtype {
        Dtype::I32 => "kind: classification, classes: 2",
        _ => "kind: regression, outputs: 2",
    };
    let shape = &x.dims[1..];
    let text = format!(
        "version: 1\ndata: {{train: {{synthetic: {{{kind}, samples: 8, shape: [4]}}}}}}\n\
         model: {{layers: [{{reshape: {{name: a, shape: {shape:?}}}}}, {{reshape: {{name: b, shape: \
         {shape:?}}}}}]}}\nloss: {}\noptimizer: {{sgd: {{lr: 0.1}}}}\n\
         train: {{steps: 1, batch_size: 1}}\n",
        case.loss
    );
    let (loaded, model) = reference::load(&text);
    let nowhere = Span::whole(FileId(0));
    let spec = LossSpec { config: &loaded.config, span: nowhere };
    let inputs = [InputSpec { name: "x".into(), sample: x.ty(1) }];
    let target = InputSpec { name: "y".into(), sample: y.ty(1) };
    let mut registry = Registry::default();
    let built = model
        .forward(&mut registry, &inputs, &target, None, &spec, x.dims[0], Mode::Train)
        .map_err(|error| error.message)?;
    let forward = built.forward;
    let mut graph = forward.graph;
    let mut seeds = Vec::new();
    for (rows, factor) in &forward.losses {
        let shape = graph.shape(*rows).clone();
        seeds.push((*rows, graph.constant(*factor, shape)));
    }
    let dx =
        grad::grad(&mut graph, &seeds, &forward.inputs[..1]).map_err(|error| error.to_string())?[0];
    let sums = graph.op(Stats, &forward.stats)?;
    let opened = device::open(device, 2)?;
    let name = if device == "cpu" { "CPU".to_owned() } else { opened.info().name };
    let plan = of_graph(&graph, &forward.inputs, &[sums, dx], &opened.target(), Precision::Single)?;
    let mut executor = opened.prepare(&plan)?;
    let mut inputs: Vec<&[u8]> = vec![&x.bytes, &y.bytes];
    let factors = built.statistics.factors(&[(x.dims[0], inputs.clone())]);
    inputs.extend(factors.as_deref().map(bytemuck::cast_slice::<f32, u8>));
    executor.submit(&[Run { program: 0, inputs, globals: Globals::default() }], 0)?;
    executor.reports(true)?;
    let mut read = Vec::new();
    for (slot, _) in &plan.programs[0].outputs {
        let values: Vec<f32> = bytemuck::pod_collect_to_vec(&executor.read(*slot)?);
        read.push(values.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>());
    }
    let divisor = read[0][built.statistics.divisor];
    let gradient = read[1].iter().map(|d| d / divisor).collect();
    Ok((built.statistics.objective(&read[0]), gradient, name))
}

/// The worst relative error of each case by device, for the page.
static WORST: Mutex<BTreeMap<(String, String), f64>> = Mutex::new(BTreeMap::new());

impl Case {
    /// Its row of the page.
    fn row(&self) -> Row {
        let bare = |text: &str| {
            let inside = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
            inside.unwrap_or(text).to_owned()
        };
        let inside = bare(&self.loss);
        let (word, options) = inside.split_once(": ").unwrap_or((&inside, "defaults"));
        if word.len() == 1 || self.loss.contains('\n') {
            let sum = self.loss.replace('\n', "; ");
            return Row::new(&["several", &sum, &self.name]);
        }
        Row::new(&[word, &bare(options).replace(": ", " "), &self.name])
    }
}

fn compare(case: &Case, device: &str, tolerance: f64) -> Result<(), Failed> {
    let (loss, gradient, name) = run(case, device)?;
    let wanted = case.tensors["loss"].floats()[0];
    // A loss of zero (one sample, nothing to tell it from) has no scale of its own.
    let off = (loss - wanted).abs() / wanted.abs().max(1e-3);
    if off.is_nan() || off > tolerance {
        return Err(format!("the loss is {loss}, PyTorch's {wanted}").into());
    }
    let wanted = case.tensors["dx"].floats();
    let scale = wanted.iter().fold(1e-3_f64, |most, d| most.max(d.abs()));
    assert_eq!(gradient.len(), wanted.len());
    let worst =
        gradient.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / scale;
    // What is not a number is not below the tolerance either.
    if worst <= tolerance && gradient.iter().all(|d| d.is_finite()) {
        let key = (case.name.clone(), format!("{name} f32"));
        WORST.lock().unwrap().insert(key, worst.max(off));
        return Ok(());
    }
    Err(format!("the gradient is off by {worst:.1e}: {gradient:?}, PyTorch's {wanted:?}").into())
}

fn main() {
    let arguments = Arguments::from_args();
    let cases: Vec<Arc<Case>> = cases().into_iter().map(Into::into).collect();
    let rows: Vec<Row> = cases.iter().map(|case| case.row()).collect();
    let devices = [("cpu", "cpu".to_owned()), ("gpu", common::gpu())];
    let mut trials = Vec::new();
    for ((kind, device), tolerance) in devices.into_iter().zip(TOLERANCE) {
        for case in &cases {
            let (case, device) = (case.clone(), device.clone());
            let name = format!("{kind}::{}", case.name);
            trials.push(Trial::test(name, move || compare(&case, &device, tolerance)));
        }
    }
    let writes = std::env::var_os("WOOTZ_WRITE_PARITY").is_some();
    if !writes {
        let rows = rows.clone();
        let complete = move || parity_page::is_complete(Part::Losses, &rows).map_err(Failed::from);
        trials.push(Trial::test("the_page_lists_every_case", complete));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if writes {
        parity_page::write(Part::Losses, rows, &WORST.lock().unwrap());
    }
    conclusion.exit();
}
