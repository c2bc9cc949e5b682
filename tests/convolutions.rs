//! Every convolution over stride 1–3, padding 0–3, dilation 1–2, one group, two and one for each
//! channel, and kernel 1, 3 and 7, whose windows fit: the result and both gradients against the
//! definition, on both executors. Software Vulkan takes long to compile a kernel for each, so on the
//! GPU a combination is checked in one of the three, by turns; in all of them in the long form.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use common::Random;
use wootz::device::cpu::CpuExecutor;
use wootz::device::gpu::{self, Options};
use wootz::device::{Executor, Globals, Run};
use wootz::graph::{Graph, Leaf, TensorType, ValueId, grad};
use wootz::ops::Target;
use wootz::ops::conv2d::Conv2d;
use wootz::plan::{self, Plan, Precision};

const BATCH: usize = 2;
const CHANNELS: usize = 4;
const OUT: usize = 8;
const IMAGE: [usize; 2] = [8, 9];

/// Largest accepted difference, relative to the largest element of the tensor.
const TOLERANCE: f64 = 1e-5;

#[derive(Clone, Copy, Debug)]
struct Conv {
    stride: usize,
    padding: usize,
    dilation: usize,
    groups: usize,
    kernel: usize,
}

impl Conv {
    fn output(&self) -> Option<[usize; 2]> {
        let reach = self.dilation * (self.kernel - 1) + 1;
        let fits = IMAGE.iter().all(|size| size + 2 * self.padding >= reach);
        fits.then(|| IMAGE.map(|size| (size + 2 * self.padding - reach) / self.stride + 1))
    }

    /// Calls `body` with the indices of y, w and x of every product in the definition.
    fn each_product(&self, mut body: impl FnMut(usize, usize, usize)) {
        let ([rows, cols], [height, width]) = (self.output().unwrap(), IMAGE);
        let (taken, made) = (CHANNELS / self.groups, OUT / self.groups);
        let inside = |window: usize, tap: usize, size: usize| {
            let at = window * self.stride + tap * self.dilation;
            at.checked_sub(self.padding).filter(|at| *at < size)
        };
        for y in 0..BATCH * OUT * rows * cols {
            let (sample, out) = (y / (OUT * rows * cols), y / (rows * cols) % OUT);
            let (row, col) = (y / cols % rows, y % cols);
            for tap in 0..taken * self.kernel * self.kernel {
                let (i, j) = (tap / self.kernel % self.kernel, tap % self.kernel);
                let channel = out / made * taken + tap / (self.kernel * self.kernel);
                let (Some(r), Some(c)) = (inside(row, i, height), inside(col, j, width)) else {
                    continue;
                };
                let w = out * taken * self.kernel * self.kernel + tap;
                body(y, w, ((sample * CHANNELS + channel) * height + r) * width + c);
            }
        }
    }
}

fn all(kernel: usize) -> Vec<Conv> {
    let mut found = Vec::new();
    for stride in 1..=3 {
        for padding in 0..=3 {
            for dilation in 1..=2 {
                for groups in [1, 2, CHANNELS] {
                    found.push(Conv { stride, padding, dilation, groups, kernel });
                }
            }
        }
    }
    found.retain(|conv| conv.output().is_some());
    found
}

/// One graph of many convolutions, their inputs, and what they and their gradients are.
struct Sweep {
    plan: Plan,
    inputs: Vec<Vec<f32>>,
    wanted: Vec<(String, Vec<f64>)>,
}

impl Sweep {
    /// `every` asks for all of y, dx and dw of each, else for one of them.
    fn new(convs: &[Conv], every: bool, target: &Target) -> Sweep {
        let mut graph = Graph::new();
        let (mut leaves, mut inputs) = (Vec::new(), Vec::new());
        let (mut outputs, mut wanted) = (Vec::new(), Vec::new());
        let mut random = Random::new(3);
        let mut leaf = |graph: &mut Graph, dims: [usize; 4]| -> (ValueId, Vec<f64>) {
            let count = dims.iter().product();
            let values: Vec<f32> =
                (0..count).map(|_| (random.uniform() * 2.0 - 1.0) as f32).collect();
            let value = graph.leaf(Leaf::Input(leaves.len()), TensorType::f32(dims));
            leaves.push(value);
            inputs.push(values.clone());
            (value, values.iter().map(|v| f64::from(*v)).collect())
        };
        for (index, conv) in convs.iter().enumerate() {
            let (n, k) = (conv.groups, conv.kernel);
            let (x, xs) = leaf(&mut graph, [BATCH, CHANNELS, IMAGE[0], IMAGE[1]]);
            let (w, ws) = leaf(&mut graph, [OUT, CHANNELS / n, k, k]);
            let [rows, cols] = conv.output().unwrap();
            let (dy, dys) = leaf(&mut graph, [BATCH, OUT, rows, cols]);
            let op = Conv2d::new([conv.stride; 2], [conv.padding; 4], [conv.dilation; 2], n);
            let y = graph.op(op, &[x, w]).unwrap();
            let grads = grad::grad(&mut graph, &[(y, dy)], &[x, w]).unwrap();
            let mut results = [vec![0.0; dys.len()], vec![0.0; xs.len()], vec![0.0; ws.len()]];
            conv.each_product(|y, w, x| {
                results[0][y] += ws[w] * xs[x];
                results[1][x] += ws[w] * dys[y];
                results[2][w] += xs[x] * dys[y];
            });
            let turn = (index + index / 3) % 3;
            let all = [("y", y), ("dx", grads[0]), ("dw", grads[1])].into_iter().zip(results);
            for (which, ((what, value), result)) in all.enumerate() {
                if every || which == turn {
                    wanted.push((format!("{what} of {conv:?}"), result));
                    outputs.push(value);
                }
            }
        }
        let plan = plan::of_graph(&graph, &leaves, &outputs, target, Precision::Single).unwrap();
        Sweep { plan, inputs, wanted }
    }

    fn check(&self, executor: &mut dyn Executor) {
        let bytes: Vec<Vec<u8>> = (self.inputs.iter())
            .map(|values| values.iter().flat_map(|v| v.to_le_bytes()).collect())
            .collect();
        let inputs = bytes.iter().map(Vec::as_slice).collect();
        let globals = Globals { step: 1, ..Globals::default() };
        executor.submit(&[Run { program: 0, inputs, globals }], 0).unwrap();
        executor.reports(true).unwrap();
        let slots = &self.plan.programs[0].outputs;
        assert_eq!(slots.len(), self.wanted.len());
        for ((slot, _), (name, wanted)) in slots.iter().zip(&self.wanted) {
            let found = common::reference::floats(&executor.read(*slot).unwrap());
            assert_eq!(found.len(), wanted.len(), "size of {name}");
            let scale = wanted.iter().fold(0.0_f64, |top, v| top.max(v.abs()));
            for (found, wanted) in found.iter().zip(wanted) {
                let fits = (found - wanted).abs() <= TOLERANCE * scale;
                assert!(fits, "{name}: {found}, not {wanted}; largest {scale}");
            }
        }
    }
}

fn on_cpu(kernel: usize) {
    let sweep = Sweep::new(&all(kernel), true, &Target::Cpu);
    sweep.check(&mut CpuExecutor::new(sweep.plan.clone(), 2).unwrap());
}

fn on_gpu(kernel: usize) {
    let device = gpu::open(&common::gpu()).unwrap();
    for part in all(kernel).chunks(24) {
        let sweep = Sweep::new(part, common::soak(), &Target::Gpu(device.limits()));
        sweep.check(&mut device.clone().prepare(&sweep.plan, Options::default()).unwrap());
    }
}

#[test]
fn every_combination_is_there() {
    assert_eq!([1, 3, 7].map(|kernel| all(kernel).len()), [72, 72, 45]);
}

#[test]
fn kernel_1_on_the_cpu() {
    on_cpu(1);
}

#[test]
fn kernel_3_on_the_cpu() {
    on_cpu(3);
}

#[test]
fn kernel_7_on_the_cpu() {
    on_cpu(7);
}

#[test]
fn kernel_1_on_the_gpu() {
    on_gpu(1);
}

#[test]
fn kernel_3_on_the_gpu() {
    on_gpu(3);
}

#[test]
fn kernel_7_on_the_gpu() {
    on_gpu(7);
}
