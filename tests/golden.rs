//! Training against PyTorch: from the same first weights and the same batches, twenty steps of
//! each reference net must follow PyTorch's losses, gradient norms and final weights, on both
//! executors. tests/reference/make.py wrote the files.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use common::reference::{self, Reference};
use wootz::config::source::{FileId, Span};
use wootz::device::{self, Executor, Globals, Run};
use wootz::layers::InputSpec;
use wootz::plan::REPORT_HEAD;
use wootz::train::checkpoint::{NamedTensor, Snapshot};
use wootz::train::compile::{Compiled, LOSS, Spec, WEIGHT, compile};
use wootz::train::model_io;

/// Relative error allowed in a loss: the bound of the project's promise.
const LOSS_TOLERANCE: f64 = 1e-4;

const MLP: &str = "
model: {layers: [{linear: {out_features: 32}}, relu, {linear: {out_features: 32}}, gelu, {linear: {out_features: 5}}]}
loss: cross_entropy
optimizer: {adamw: {lr: 1.0e-2, weight_decay: 0.1, decay: all}}
train: {steps: 20, batch_size: 16}";

const MLP_SGD: &str = "
model: {layers: [{linear: {out_features: 32}}, relu, {linear: {out_features: 32}}, gelu, {linear: {out_features: 5}}]}
loss: {cross_entropy: {label_smoothing: 0.1}}
optimizer: {sgd: {lr: 0.1, momentum: 0.9, nesterov: true, weight_decay: 1.0e-3, decay: all}}
train: {steps: 20, batch_size: 16, clip_norm: 0.5}";

const CNN: &str = "
model:
  layers:
    - conv2d: {out_channels: 8, kernel_size: 3, padding: 1, bias: false}
    - batch_norm
    - relu
    - max_pool2d: {kernel_size: 2}
    - conv2d: {out_channels: 16, kernel_size: 3, padding: 1}
    - batch_norm
    - relu
    - global_avg_pool
    - linear: {out_features: 10}
loss: cross_entropy
optimizer: {sgd: {lr: 0.1, momentum: 0.9}}
train: {steps: 20, batch_size: 16}";

const CNN_GROUPS: &str = "
model:
  layers:
    - conv2d: {out_channels: 8, kernel_size: 3, stride: 2, padding: 1, groups: 2}
    - sigmoid
    - conv2d: {out_channels: 8, kernel_size: 3, padding: 2, dilation: 2, groups: 2}
    - tanh
    - avg_pool2d: {kernel_size: 3, stride: 2, padding: 1}
    - conv2d: {out_channels: 6, kernel_size: 2, groups: 2}
    - silu
    - flatten
    - linear: {out_features: 3}
loss: mse
optimizer: {adam: {lr: 3.0e-3}}
train: {steps: 20, batch_size: 8}";

const GPT: &str = "
model:
  blocks:
    transformer:
      layers:
        - residual:
            layers:
              - layer_norm: {name: ln_1}
              - multi_head_attention: {name: attn, num_heads: 2, causal: true}
        - residual:
            layers:
              - layer_norm: {name: ln_2}
              - linear: {name: fc, out_features: 64}
              - gelu: {approximate: tanh}
              - linear: {name: proj, out_features: 16}
  layers:
    - embedding: {name: wte, num_embeddings: 17, embedding_dim: 16}
    - positional_embedding: {name: wpe}
    - repeat: {name: h, times: 2, layers: [transformer]}
    - layer_norm: {name: ln_f}
    - linear: {share: wte, out_features: 17, bias: false}
loss: cross_entropy
optimizer: {adamw: {lr: 3.0e-3, weight_decay: 0.01, decay: all}}
train: {steps: 20, batch_size: 4}";

/// A training run's reference.
struct Recorded(Reference);

impl Recorded {
    /// Bytes and type of one step's `x` or `y`.
    fn batch(&self, name: &str, step: usize) -> &[u8] {
        let tensor = self.0.tensor(name);
        let each = tensor.bytes.len() / tensor.dims[0];
        &tensor.bytes[step * each..(step + 1) * each]
    }

    /// `x` or `y` as an input whose sample has no batch axis.
    fn input(&self, name: &str) -> InputSpec {
        InputSpec { name: name.to_owned(), sample: self.0.tensor(name).ty(2) }
    }

    fn initial(&self) -> Snapshot {
        let model = (self.0.tensors.iter())
            .filter_map(|(name, tensor)| {
                let name = name.strip_prefix("init.")?.to_owned();
                Some(NamedTensor { name, dims: tensor.dims.clone(), bytes: tensor.bytes.clone() })
            })
            .collect();
        Snapshot { model, ..Snapshot::default() }
    }
}

/// A reference net on an executor.
struct Net {
    reference: Recorded,
    compiled: Compiled,
    executor: Box<dyn Executor>,
    rate: f64,
}

impl Net {
    fn open(name: &str, yaml: &str, device: &str) -> Self {
        let reference = Recorded(Reference::read(name));
        let kind = if yaml.contains("loss: mse") {
            "kind: regression"
        } else {
            "kind: classification, classes: 2"
        };
        let data = format!("data: {{train: {{synthetic: {{{kind}, samples: 64, shape: [4]}}}}}}");
        let (loaded, model) = reference::load(&format!("version: 1\n{data}\n{yaml}\n"));
        let batch = loaded.config.train.batch_size;
        let spec = Spec {
            config: &loaded.config,
            model: &model,
            loss_span: Span::whole(FileId(0)),
            classes: None,
            inputs: vec![reference.input("x")],
            target: reference.input("y"),
            train_sizes: vec![batch],
            eval_sizes: vec![batch],
        };
        let device = device::open(device, 2).unwrap_or_else(|error| panic!("{error}"));
        let compiled = compile(&spec, &device.target()).unwrap_or_else(|error| panic!("{error}"));
        let mut executor = device.prepare(&compiled.plan).unwrap_or_else(|error| panic!("{error}"));
        model_io::restore(executor.as_mut(), &compiled, &reference.initial(), false)
            .unwrap_or_else(|e| panic!("{e}"));
        Net { reference, compiled, executor, rate: loaded.config.optimizer.lr() }
    }

    /// One step; its loss and gradient norm.
    fn step(&mut self, step: usize) -> (f64, f64) {
        let globals = Globals {
            step: step as u32 + 1,
            hyper: self.compiled.rule.hyper(self.rate, step as u64 + 1),
            ..Globals::default()
        };
        let inputs = vec![self.reference.batch("x", step), self.reference.batch("y", step)];
        let roles = &self.compiled.plan.roles;
        let update = roles.update.expect("the plan trains");
        let runs = [
            Run { program: roles.train[0], inputs, globals },
            Run { program: update, inputs: Vec::new(), globals },
        ];
        self.executor.submit(&runs, step as u64).expect("the device works");
        let report = self
            .executor
            .reports(true)
            .expect("the device works")
            .pop()
            .expect("one report a step");
        let stats = &report.values[REPORT_HEAD..];
        (f64::from(stats[LOSS] / stats[WEIGHT]), f64::from(report.values[1]))
    }

    fn eval_logits(&mut self) -> Vec<f64> {
        let program = self.compiled.plan.roles.eval[0];
        let inputs = vec![self.reference.batch("x", 19), self.reference.batch("y", 19)];
        self.executor
            .submit(&[Run { program, inputs, globals: Globals::default() }], 99)
            .expect("the device works");
        self.executor.reports(true).expect("the device works");
        let (slot, _) = self.compiled.plan.programs[program].outputs[0];
        let bytes = self.executor.read(slot).expect("the device works");
        bytes
            .chunks_exact(4)
            .map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap())))
            .collect()
    }
}

fn follow(name: &str, yaml: &str, device: &str) {
    let mut net = Net::open(name, yaml, device);
    let (losses, norms) = (net.reference.0.floats("losses"), net.reference.0.floats("grad_norms"));
    for step in 0..20 {
        let (loss, norm) = net.step(step);
        let (wanted, wanted_norm) = (losses[step], norms[step]);
        assert!(
            (loss - wanted).abs() <= LOSS_TOLERANCE * wanted.abs(),
            "{name} on {device}, step {step}: loss {loss}, PyTorch {wanted}"
        );
        assert!(
            (norm - wanted_norm).abs() <= 1e-3 * wanted_norm.abs(),
            "{name} on {device}, step {step}: gradient norm {norm}, PyTorch {wanted_norm}"
        );
    }
    let (logits, wanted) = (net.eval_logits(), net.reference.0.floats("eval_logits"));
    let scale = wanted.iter().fold(1e-3_f64, |m, v| m.max(v.abs()));
    for (index, (a, b)) in logits.iter().zip(&wanted).enumerate() {
        assert!(
            (a - b).abs() <= 1e-3 * scale,
            "{name} on {device}: logit {index} is {a}, PyTorch's {b}"
        );
    }
    final_weights(name, device, &mut net);
}

/// Final parameters and running statistics.
fn final_weights(name: &str, device: &str, net: &mut Net) {
    let tensors =
        model_io::read_model(net.executor.as_mut(), &net.compiled).expect("the device works");
    for tensor in tensors {
        let given: Vec<f64> = tensor
            .bytes
            .chunks_exact(4)
            .map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap())))
            .collect();
        let wanted = net.reference.0.floats(&format!("final.{}", tensor.name));
        let scale = wanted.iter().fold(1e-2_f64, |m, v| m.max(v.abs()));
        for (index, (a, b)) in given.iter().zip(&wanted).enumerate() {
            // The keys' bias has a gradient of exactly zero: softmax ignores a shift of all
            // scores. What Adam makes of the rounding noise there means nothing.
            let keys = tensor.name.ends_with("in_proj_bias") && (16..32).contains(&index);
            assert!(
                keys || (a - b).abs() <= 1e-3 * scale,
                "{name} on {device}: {}[{index}] is {a}, PyTorch's {b}",
                tensor.name
            );
        }
    }
}

macro_rules! nets {
    ($($test:ident: $file:literal, $yaml:ident;)*) => {
        mod cpu {
            $(#[test] fn $test() { super::follow($file, super::$yaml, "cpu"); })*
        }
        mod gpu {
            $(#[test] fn $test() { super::follow($file, super::$yaml, &super::common::gpu()); })*
        }
    };
}

nets! {
    mlp: "mlp", MLP;
    mlp_sgd: "mlp_sgd", MLP_SGD;
    cnn: "cnn", CNN;
    cnn_groups: "cnn_groups", CNN_GROUPS;
    gpt: "gpt", GPT;
}
