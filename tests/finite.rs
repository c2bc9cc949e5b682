//! The finite check of the update counts exactly: NaN and infinities of either sign, and nothing else;
//! a gradient that overflows changes no weight, and its layer is named.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::fs;

use common::problem::{Content, Problem, devices};
use common::{Random, gpu, wootz};
use wootz::graph::{Graph, Leaf, TensorType};
use wootz::ops::grad_scale::GradScale;
use wootz::train::checkpoint;

/// Every bit pattern that must count: quiet and signalling NaNs of either sign with the least, a
/// middle and the greatest payload, and both infinities.
const BAD: [u32; 10] = [
    0x7f80_0000,
    0xff80_0000,
    0x7f80_0001,
    0xff80_0001,
    0x7fbf_ffff,
    0x7fc0_0000,
    0xffc0_0000,
    0x7fd5_5555,
    0x7fff_ffff,
    0xffff_ffff,
];

/// The neighbours that must not: zeros, denormals from the least to the greatest, small normal
/// numbers, and large ones whose squares still add up.
const GOOD: [u32; 12] = [
    0x0000_0000,
    0x8000_0000,
    0x0000_0001,
    0x8000_0001,
    0x0040_0000,
    0x007f_ffff,
    0x807f_ffff,
    0x0080_0000,
    0x8080_0000,
    0x3f80_0000,
    0x5c00_0000,
    0xdc00_0000,
];

#[test]
fn what_is_not_finite_is_counted_exactly_on_both_executors() {
    let mut random = Random::new(3);
    for device in devices() {
        // One element, a workgroup and one more, several pieces of work of the CPU.
        for (count, planted) in [(1, 0), (1, 1), (257, 3), (8191, 40), (20_011, 777), (20_011, 0)] {
            let mut bits: Vec<u32> = (0..count).map(|_| GOOD[random.below(GOOD.len())]).collect();
            let mut places: Vec<usize> = (0..count).collect();
            for at in 0..planted {
                let other = at + random.below(count - at);
                places.swap(at, other);
                bits[places[at]] = BAD[at % BAD.len()];
            }
            let mut graph = Graph::default();
            let gradients = graph.leaf(Leaf::Input(0), TensorType::f32([count]));
            let statistics = graph.leaf(Leaf::Input(1), TensorType::f32([2]));
            let op = GradScale { clip_norm: None, weight_index: 1, scaled: false };
            let control = graph.op(op, &[gradients, statistics]).unwrap();
            let numbers = bits.iter().map(|bits| f32::from_bits(*bits)).collect();
            let inputs =
                vec![(gradients, Content::F(numbers)), (statistics, Content::F(vec![1.0, 4.0]))];
            let problem = Problem::of(graph, inputs, vec![control]);
            let plan = problem.plan(&device.target());
            let found = problem.run(device.prepare(&plan).as_mut(), &plan).remove(0);
            let name = device.name();
            assert_eq!(found[2], planted as f32, "{name}: {planted} of {count} planted");
            assert_eq!(found[0] == 0.0, planted > 0, "{name}: the factor is {}", found[0]);
            assert!(found[1].is_finite(), "{name}: the norm is {}", found[1]);
        }
    }
}

/// Two rows hold 3·10³⁸: the losses are finite, and the sum over rows that is the gradient of the
/// weight is not. The model after it is finite both ways.
const CONFIG: &str = "
version: 1
name: overflow
data: {train: {csv: {path: CSV, target: y, task: regression}}}
model:
  layers:
    - linear: {name: first, out_features: 4, bias: false, init: {normal: {std: 1.0e-2}}}
    - scale: {name: factor, init_value: 1.0e-36, trainable: false}
    - tanh
    - linear: {name: last, out_features: 1, init: {constant: {value: 1.0e36}}}
loss: l1
optimizer: {adamw: {lr: 1.0e-3}}
train: {epochs: 2, batch_size: 4, shuffle: false}
checkpoint: {every_steps: 1, keep_last: 99}
health: {not_finite: skip}
";

fn overflow_on(device: &str) {
    let folder = tempfile::tempdir().unwrap();
    let rows = (0..12).map(|row| {
        let a = if row == 5 || row == 6 { "3e38".to_owned() } else { format!("{}.5", row % 3) };
        format!("{a},{}.25,0.5\n", row % 4)
    });
    let csv = folder.path().join("rows.csv");
    fs::write(&csv, format!("a,b,y\n{}", rows.collect::<String>())).unwrap();
    let config = CONFIG.replace("CSV", &csv.display().to_string());
    fs::write(folder.path().join("config.yaml"), config).unwrap();
    let train = |run: &str, more: &[&str]| {
        let mut command = wootz();
        command.args(["train", "--device", device, "--config"]);
        command.arg(folder.path().join("config.yaml"));
        command.arg("--run-dir").arg(folder.path().join(run)).args(more);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = train("skips", &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("gradients are not finite"), "{said}");
    let at =
        |step: u64| checkpoint::load(&folder.path().join(format!("skips/step-{step:08}"))).unwrap();
    assert_eq!((at(1).model, at(1).optimizer), (at(2).model, at(2).optimizer));
    assert_ne!(at(2).model, at(3).model);
    let (code, said) = train("stops", &["--set", "health.not_finite=stop"]);
    assert_eq!(code, Some(5), "{said}");
    for words in ["step 2", "gradients are not finite", "samples 4, 5, 6, 7", "first (backward)"] {
        assert!(said.contains(words), "`{words}` is not in: {said}");
    }
}

#[test]
fn an_overflow_in_one_gradient_changes_nothing_and_names_the_layer() {
    overflow_on("cpu");
    overflow_on(&gpu());
}
