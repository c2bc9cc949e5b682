//! What has gone wrong in other training tools, in silence: each case here was reported of one of
//! them. Gradients are held against the same graph in double precision, unfused, and must be the same
//! bits when repeated.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::collections::BTreeMap;

use common::problem::{Content, Device, Problem, agree, devices};
use common::{soak, step::Training, wootz};
use wootz::device::gpu::Fault;
use wootz::graph::{Graph, Leaf, TensorType, grad};
use wootz::ops::Target;
use wootz::ops::map::{self, Code};
use wootz::ops::matmul::matmul;
use wootz::ops::softmax::Softmax;

/// Gradients on a device, several times over.
fn right_and_repeated(problem: &Problem, device: &Device, repeats: usize) {
    let reference = problem.reference();
    let plan = problem.plan(&device.target());
    let mut executor = device.prepare(&plan);
    let first = problem.run(executor.as_mut(), &plan);
    agree(&problem.names, &first, &reference, device.tolerance());
    for repeat in 1..repeats {
        let again = problem.run(executor.as_mut(), &plan);
        assert!(first == again, "repeat {repeat} on {} gave other bits", device.name());
    }
}

/// A backward pass that was wrong past 32,768 rows, while its loss looked right.
#[test]
fn rows_past_32768() {
    for device in devices() {
        let width = if device.is_gpu() && !soak() { 16 } else { 64 };
        let model = format!(
            "layers:
- linear: {{name: first, out_features: {width}}}
- residual:
    layers: [{{linear: {{name: up, out_features: {width}}}}}, gelu, {{linear: {{name: down, out_features: {width}}}}}]
- linear: {{name: last, out_features: 3}}"
        );
        for rows in [32_767, 32_768, 32_769, 65_537] {
            let (x, y) = (TensorType::f32([5]), TensorType::f32([3]));
            let repeats = if device.is_gpu() && rows <= 32_768 && !soak() { 2 } else { 5 };
            right_and_repeated(&Problem::new(&model, "mse", x, y, rows), &device, repeats);
        }
    }
}

/// A head of many classes whose inner layer got a wrong gradient, the outer one a right one.
#[test]
fn a_head_of_50257_classes() {
    let width = if soak() { 130 } else { 16 };
    let model = format!(
        "layers: [{{linear: {{name: inner, out_features: {width}}}}}, {{linear: {{name: head, out_features: 50257}}}}]"
    );
    let (x, y) = (TensorType::f32([width]), TensorType::i32([]));
    let problem = Problem::new(&model, "cross_entropy", x, y, 512);
    for device in devices() {
        right_and_repeated(&problem, &device, 2);
    }
}

/// Norms whose parameters got other gradients each time, where their input needed none.
#[test]
fn a_norm_as_the_first_layer() {
    let norms = [
        "layer_norm",
        "rms_norm",
        "batch_norm",
        "group_norm: {num_groups: 2}",
        "instance_norm: {affine: true}",
    ];
    for norm in norms {
        let model = format!(
            "layers: [{{{norm}{}}}, flatten, {{linear: {{out_features: 3}}}}]",
            if norm.contains(':') { "" } else { ": {}" }
        );
        let (x, y) = (TensorType::f32([6, 13, 11]), TensorType::f32([3]));
        let problem = Problem::new(&model, "mse", x, y, 9);
        assert!(problem.names.iter().any(|name| name == "0.weight"), "{:?}", problem.names);
        for device in devices() {
            right_and_repeated(&problem, &device, 20);
        }
    }
}

/// Sums of many cotangents in few rows of a table, which atomics add in any order.
#[test]
fn a_vocabulary_of_8_and_320_tokens() {
    let model = "layers: [{embedding: {name: e, num_embeddings: 8, embedding_dim: 24}}, {linear: {out_features: 8}}]";
    let (x, y) = (TensorType::i32([10]), TensorType::i32([10]));
    let problem = Problem::new(model, "cross_entropy", x, y, 32);
    for device in devices() {
        right_and_repeated(&problem, &device, 100);
    }
}

/// Two blocks with adapters: `FREEZE` is the list of what is frozen.
const ADAPTED: &str = "
freeze: FREEZE
blocks:
  adapted:
    layers:
      - residual:
          layers: [{layer_norm: {name: ln_1}}, {multi_head_attention: {name: attn, num_heads: 2, causal: true}}]
      - residual:
          layers:
            - layer_norm: {name: ln_2}
            - linear: {name: fc, out_features: 28}
            - gelu
            - parallel:
                merge: add
                branches:
                  - - linear: {name: proj, out_features: 12}
                  - [{linear: {name: lora_a, out_features: 4, bias: false}}, {linear: {name: lora_b, out_features: 12, bias: false}}]
layers:
  - embedding: {name: wte, num_embeddings: 11, embedding_dim: 12}
  - repeat: {name: h, times: 2, layers: [adapted]}
  - linear: {name: head, out_features: 11}";

/// A pruned backward pass that gave NaN where the full one was right, and what had run before in the
/// process mattered.
#[test]
fn adapters_alone_get_what_they_get_with_the_rest() {
    let frozen = "[wte.*, head.*, h.*.ln_1.*, h.*.ln_2.*, h.*.attn.*, h.*.fc.*, h.*.proj.*]";
    let (x, y) = (TensorType::i32([7]), TensorType::i32([7]));
    let problem = |freeze: &str| {
        let model = match freeze {
            "" => ADAPTED.replace("freeze: FREEZE\n", ""),
            list => ADAPTED.replace("FREEZE", list),
        };
        Problem::new(&model, "cross_entropy", x.clone(), y.clone(), 3)
    };
    let (all, few) = (problem(""), problem(frozen));
    assert_eq!(few.names.len(), 4, "{:?}", few.names);
    let reference: BTreeMap<&String, Vec<f64>> = all.names.iter().zip(all.reference()).collect();
    let wanted: Vec<Vec<f64>> = few.names.iter().map(|name| reference[name].clone()).collect();
    for device in devices() {
        let plan = few.plan(&device.target());
        let fresh = few.run(device.prepare(&plan).as_mut(), &plan);
        agree(&few.names, &fresh, &wanted, device.tolerance());
        let full_plan = all.plan(&device.target());
        assert!(plan.programs[0].steps.len() < full_plan.programs[0].steps.len());
        let full = all.run(device.prepare(&full_plan).as_mut(), &full_plan);
        let again = few.run(device.prepare(&plan).as_mut(), &plan);
        assert!(fresh == again, "a full backward pass before it changed bits on {}", device.name());
        for (name, gradient) in few.names.iter().zip(&fresh) {
            let at = all.names.iter().position(|other| other == name).unwrap();
            let other: Vec<f64> = full[at].iter().map(|v| f64::from(*v)).collect();
            let names = std::slice::from_ref(name);
            agree(names, std::slice::from_ref(gradient), &[other], device.tolerance() / 10.0);
        }
    }
}

const TIED: &str = "
layers:
  - embedding: {name: wte, num_embeddings: 11, embedding_dim: 12}
  - linear: {name: turn, out_features: 12}
  - tanh
  - linear: {share: turn, out_features: 12}
  - linear: {share: wte, out_features: 11, bias: false}";

const TRANSPOSED: &str = "
layers:
  - conv2d: {name: down, out_channels: 4, kernel_size: 3, stride: 2, padding: 1, bias: false}
  - tanh
  - conv_transpose2d: {share: down, out_channels: 3, kernel_size: 3, stride: 2, padding: 1, bias: false}";

/// Updates that left some weights as they were, where they were shared or used in another order.
#[test]
fn tied_and_transposed_weights_move_as_adam_says() {
    let cases = [
        (TIED, "cross_entropy", TensorType::i32([7]), TensorType::i32([7]), 35.0),
        (TRANSPOSED, "mse", TensorType::f32([3, 9, 9]), TensorType::f32([3, 9, 9]), 1215.0),
    ];
    for (model, loss, x, y, count) in cases {
        let problem = Problem::new(model, loss, x.clone(), y.clone(), 5);
        let gradients = problem.reference();
        for device in devices() {
            let optimizer = "adam: {lr: 0.05, eps: 1.0e-3}";
            let mut training = Training::new(model, loss, optimizer, (&x, &y), 5, &device);
            let before = training.set_parameters();
            training.step(1, &problem.batch());
            let after = training.parameters();
            for (name, gradient) in problem.names.iter().zip(&gradients) {
                let (old, new) = (&before[name], &after[name]);
                // After one step both moments are the mean gradient's: m̂ = g and √v̂ = |g|.
                let wanted: Vec<f64> = (old.iter().zip(gradient))
                    .map(|(p, sum)| (f64::from(*p), sum / count))
                    .map(|(p, g)| p - 0.05 * g / (g.abs() + 1e-3))
                    .collect();
                assert!(old != new, "`{name}` stays as it was on {}", device.name());
                let names = std::slice::from_ref(name);
                agree(names, std::slice::from_ref(new), &[wanted], device.tolerance());
            }
        }
    }
}

const NETS: [(&str, &str); 2] = [
    (
        "cross_entropy",
        "layers:
  - conv2d: {out_channels: 5, kernel_size: 3, padding: 1}
  - batch_norm
  - relu
  - max_pool2d: {kernel_size: 2}
  - dropout: {p: 0.3}
  - flatten
  - linear: {out_features: 19}
  - gelu
  - linear: {out_features: 7}",
    ),
    ("cross_entropy", ADAPTED),
];

fn net(index: usize) -> (String, &'static str, TensorType, TensorType) {
    let (loss, model) = NETS[index];
    match index {
        0 => (model.to_owned(), loss, TensorType::f32([3, 9, 11]), TensorType::i32([])),
        _ => {
            let model = model.replace("freeze: FREEZE\n", "");
            (model, loss, TensorType::i32([7]), TensorType::i32([7]))
        }
    }
}

/// Memory that was used again before it was done with, or read before it was written: between steps,
/// and after every op of the backward pass, all that nothing will read is filled with NaNs.
#[test]
fn released_memory_full_of_nans_changes_nothing() {
    for index in 0..NETS.len() {
        let (model, loss, x, y) = net(index);
        for device in devices() {
            let problem = Problem::new(&model, loss, x.clone(), y.clone(), 5);
            let trained = |poison: bool| {
                let optimizer = "adamw: {lr: 0.01}";
                let mut training = Training::new(&model, loss, optimizer, (&x, &y), 5, &device);
                training.set_parameters();
                for step in 1..=3 {
                    training.step(step, &problem.batch());
                    if poison {
                        training.poison();
                    }
                }
                training.parameters()
            };
            assert!(trained(false) == trained(true), "net {index} on {}", device.name());

            let plan = problem.plan(&device.target());
            let plain = problem.run(device.prepare(&plan).as_mut(), &plan);
            let poisoned = problem.run_over_nans(&device, &plan);
            assert!(plain == poisoned, "net {index}, op by op on {}", device.name());
        }
    }
}

/// Fusion that made a loss explode: with every value kept, no op can be fused into another.
#[test]
fn fusion_on_and_off_agree() {
    for index in 0..NETS.len() {
        let (model, loss, x, y) = net(index);
        let problem = Problem::new(&model, loss, x, y, 5);
        for device in devices() {
            let fused = problem.plan(&device.target());
            let single = problem.plan_unfused(&device.target());
            let counts = [&fused, &single].map(|plan| plan.programs[0].steps.len());
            assert!(counts[0] < counts[1], "{counts:?} steps on {}", device.name());
            let with = problem.run(device.prepare(&fused).as_mut(), &fused);
            let without = problem.run(device.prepare(&single).as_mut(), &single);
            let without: Vec<Vec<f64>> = (without.iter().take(with.len()))
                .map(|values| values.iter().map(|v| f64::from(*v)).collect())
                .collect();
            agree(&problem.names, &with, &without, device.tolerance());
        }
    }
}

/// One more element than fits 65,535 workgroups of 256 threads, and 70 million.
#[test]
fn elementwise_over_more_workgroups_than_a_dimension_has() {
    for device in devices() {
        for count in [4_194_241, 65_535 * 256 + 1, 70_000_000] {
            let mut graph = Graph::new();
            let x = graph.leaf(Leaf::Input(0), TensorType::f32([count]));
            let code = Code::of(|code| {
                let x = code.input(0);
                let half = code.scale(x, 0.5);
                code.offset(half, 0.25)
            });
            let y = map::apply(&mut graph, code, &[x], [count]).unwrap();
            let values: Vec<f32> = (0..count).map(|i| (i % 8191) as f32 / 8192.0).collect();
            let problem = Problem::of(graph, vec![(x, Content::F(values))], vec![y]);
            let plan = problem.plan(&device.target());
            if let Target::Gpu(limits) = device.target()
                && limits.binding_bytes < 4 * count as u64
            {
                let refusal = device.refusal(&plan);
                assert!(refusal.contains("binds at most"), "{refusal}");
                continue;
            }
            let found = problem.run(device.prepare(&plan).as_mut(), &plan);
            let wrong = (0..count).find(|i| found[0][*i] != (i % 8191) as f32 / 16384.0 + 0.25);
            assert_eq!(wrong, None, "of {count} elements on {}", device.name());
        }
    }
}

/// More matrices than a dimension of a dispatch has workgroups. Small integers: all sums are exact.
#[test]
fn a_product_of_70000_batches() {
    const BATCH: usize = 70_000;
    let (m, k, n) = (3, 5, 2);
    let mut graph = Graph::new();
    let a = graph.leaf(Leaf::Input(0), TensorType::f32([BATCH, m, k]));
    let b = graph.leaf(Leaf::Input(1), TensorType::f32([BATCH, k, n]));
    let c = matmul(&mut graph, a, b, false, false).unwrap();
    let seed = graph.constant(1.0, [BATCH, m, n]);
    let gradients = grad::grad(&mut graph, &[(c, seed)], &[a, b]).unwrap();
    let numbers = |count: usize, period: usize| -> Vec<f32> {
        (0..count).map(|i| (i % period) as f32 - 8.0).collect()
    };
    let inputs = vec![
        (a, Content::F(numbers(BATCH * m * k, 17))),
        (b, Content::F(numbers(BATCH * k * n, 19))),
    ];
    let problem = Problem::of(graph, inputs, vec![c, gradients[0], gradients[1]]);
    let reference = problem.reference();
    for device in devices() {
        let plan = problem.plan(&device.target());
        let found = problem.run(device.prepare(&plan).as_mut(), &plan);
        agree(&problem.names, &found, &reference, 0.0);
    }
}

/// Rows in which a mask leaves nothing: no NaN, forward and backward.
#[test]
fn softmax_of_rows_that_are_masked_whole() {
    for cols in [1, 7, 33, 257] {
        let rows = 6;
        let mut graph = Graph::new();
        let ty = TensorType::f32([rows, cols]);
        let x = graph.leaf(Leaf::Input(0), ty.clone());
        let dy = graph.leaf(Leaf::Input(1), ty);
        let y = graph.op(Softmax, &[x]).unwrap();
        let dx = grad::grad(&mut graph, &[(y, dy)], &[x]).unwrap()[0];
        let scores = (0..rows * cols).map(|i| {
            let (row, col) = (i / cols, i % cols);
            let masked = row % 3 == 0 || (row % 3 == 1 && col % 2 == 1);
            if masked { f32::NEG_INFINITY } else { (i % 23) as f32 - 11.0 }
        });
        let cotangents = (0..rows * cols).map(|i| (i % 5) as f32 - 2.0).collect();
        let inputs = vec![(x, Content::F(scores.collect())), (dy, Content::F(cotangents))];
        let problem = Problem::of(graph, inputs, vec![y, dx]);
        let reference = problem.reference();
        assert!(reference.iter().flatten().all(|v| v.is_finite()));
        assert!(reference[0][..cols].iter().all(|v| *v == 0.0), "a masked row has no weights");
        for device in devices() {
            let plan = problem.plan(&device.target());
            let found = problem.run(device.prepare(&plan).as_mut(), &plan);
            agree(&problem.names, &found, &reference, device.tolerance());
        }
    }
}

/// Memory that grew from step to step until nothing was left: a recurrent net creates no buffer and
/// compiles nothing after its first step.
#[test]
fn recurrent_steps_hold_the_memory_of_the_first() {
    let model =
        "layers: [{lstm: {hidden_size: 12}}, {gru: {hidden_size: 9}}, {linear: {out_features: 3}}]";
    let (x, y) = (TensorType::f32([5, 4]), TensorType::f32([5, 3]));
    let problem = Problem::new(model, "mse", x.clone(), y.clone(), 3);
    for device in devices() {
        let optimizer = "adam: {lr: 1.0e-3}";
        let mut training = Training::new(model, "mse", optimizer, (&x, &y), 3, &device);
        training.step(1, &problem.batch());
        let first = training.usage();
        for step in 2..=if soak() { 50_000 } else { 200 } {
            training.step(step, &problem.batch());
        }
        let last = training.usage();
        assert_eq!(
            (first.pages, first.allocations, first.compilations),
            (last.pages, last.allocations, last.compilations),
            "on {}",
            device.name()
        );
    }
}

/// A command buffer that fails while the device says it is done: not in training alone.
#[test]
fn a_dropped_submission_of_any_program_is_noticed() {
    let (x, y) = (TensorType::f32([5]), TensorType::f32([3]));
    let problem = Problem::new("layers: [{linear: {out_features: 3}}]", "mse", x, y, 7);
    for device in devices().filter(Device::is_gpu) {
        let plan = problem.plan(&device.target());
        let mut executor = device.prepare_with(&plan, Some(Fault::DropSubmission(2)));
        assert!(problem.try_run(executor.as_mut()).is_ok());
        let error = problem.try_run(executor.as_mut()).unwrap_err().to_string();
        assert!(error.contains("submission 2"), "{error}");
    }
}

const SEEDED: &str = "
version: 1
name: seeded
data:
  train: {synthetic: {kind: classification, samples: 60, shape: [1, 8, 8], classes: 4}}
  augment: [{random_crop: {padding: 1}}]
model:
  layers:
    - conv2d: {out_channels: 4, kernel_size: 3}
    - relu
    - flatten
    - dropout: {p: 0.5}
    - linear: {out_features: 4}
loss: cross_entropy
optimizer: {sgd: {lr: 0.1}}
train: {steps: 12, batch_size: 10}
checkpoint: {every_steps: 12}
";

/// Seeds that some draws did not heed: first values, dropout, order and crops depend on the seed, and
/// on nothing else.
#[test]
fn a_run_is_what_its_seed_says() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.yaml");
    std::fs::write(&config, SEEDED).unwrap();
    let model = |name: &str, sets: &[&str]| {
        let run = folder.path().join(name);
        let mut command = wootz();
        command.args(["train", "--device", "cpu", "--config"]).arg(&config);
        command.arg("--run-dir").arg(&run);
        sets.iter().for_each(|set| _ = command.args(["--set", set]));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let last = wootz::train::checkpoint::by_age(&run).pop().unwrap();
        std::fs::read(last.join("model.safetensors")).unwrap()
    };
    let one = model("one", &["seed=1", "train.threads=1"]);
    assert!(one == model("again", &["seed=1", "train.threads=8"]), "the seed decides all");
    assert!(one != model("two", &["seed=2", "train.threads=1"]), "the seed decides something");
}

/// A precision that was asked for and quietly not had.
#[test]
fn a_precision_that_the_device_lacks_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.yaml");
    std::fs::write(&config, SEEDED.replace("name: seeded", "name: seeded\nprecision: mixed"))
        .unwrap();
    let mut command = wootz();
    command.args(["train", "--device", "cpu", "--config"]).arg(&config);
    let output = command.arg("--run-dir").arg(folder.path().join("run")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("`precision: mixed` needs a GPU") && said.contains("use `precision: f32`")
    );
}
