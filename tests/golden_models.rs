//! The known architectures in configs/models: each has the published number of parameters, plans on
//! every kind of GPU, and trains.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::fs;
use std::path::Path;

use common::soak;
use wootz::config::decode::Cx;
use wootz::config::load::{Loaded, load_with};
use wootz::config::source::{FileId, Span};
use wootz::config::types::Config;
use wootz::device::gpu::check_fit;
use wootz::device::profiles::PROFILES;
use wootz::device::{self, Globals, Run};
use wootz::graph::{DType, Shape, TensorType};
use wootz::layers::{InputSpec, Model};
use wootz::ops::Target;
use wootz::plan::REPORT_HEAD;
use wootz::train::compile::{Compiled, LOSS, Spec, WEIGHT, compile};
use wootz::train::model_io;

/// What a model takes: one sample of each input.
#[derive(Clone, Copy)]
enum Takes {
    /// Numbers.
    Numbers(&'static [usize]),
    /// Tokens, so many of them.
    Tokens(usize),
    /// Tokens, and the segment of each.
    Segments(usize),
    /// So many numbers in one input, and so many inputs of one id.
    Table(usize, usize),
}

use Takes::{Numbers, Segments, Table, Tokens};

/// A known architecture.
struct Golden {
    /// File in configs/models.
    file: &'static str,
    takes: Takes,
    /// Classes or tokens that it tells apart.
    classes: usize,
    /// Published number of parameters, or counted by hand in the file.
    parameters: usize,
    /// What is minimized in the test.
    loss: &'static str,
    /// Whether three steps take a few seconds at most on a CPU.
    quick: bool,
    /// Kinds of GPU that it cannot train on, in single precision and for two samples.
    too_large_for: &'static [&'static str],
}

const PHOTO: Takes = Numbers(&[3, 224, 224]);

const fn classifier(
    file: &'static str,
    takes: Takes,
    classes: usize,
    parameters: usize,
    quick: bool,
    too_large_for: &'static [&'static str],
) -> Golden {
    Golden { file, takes, classes, parameters, loss: "cross_entropy", quick, too_large_for }
}

const MODELS: &[Golden] = &[
    classifier("mlp", Numbers(&[1, 8, 8]), 10, 8_970, true, &[]),
    classifier("lenet5", Numbers(&[1, 32, 32]), 10, 61_706, true, &[]),
    classifier("resnet20", Numbers(&[3, 32, 32]), 10, 269_722, true, &[]),
    classifier("resnet18", PHOTO, 1000, 11_689_512, true, &[]),
    classifier("resnet50", PHOTO, 1000, 25_557_032, false, &[]),
    classifier("vgg16", PHOTO, 1000, 138_357_544, false, &["webgpu"]),
    classifier("mobilenet_v2", PHOTO, 1000, 3_504_872, true, &[]),
    classifier("efficientnet_b0", PHOTO, 1000, 5_288_548, true, &[]),
    classifier("convnext_tiny", PHOTO, 1000, 28_589_128, false, &[]),
    classifier("densenet121", PHOTO, 1000, 7_978_856, false, &[]),
    classifier("vit_b16", PHOTO, 1000, 86_567_656, false, &["webgpu"]),
    classifier("vit_tiny16", PHOTO, 1000, 5_717_416, true, &[]),
    classifier("bert_base", Segments(512), 2, 109_482_240, false, &["webgpu"]),
    classifier("gpt2", Tokens(1024), 50_257, 124_439_808, false, &["webgpu"]),
    classifier(
        "tinyllama",
        Tokens(128),
        32_000,
        1_100_048_384,
        false,
        &["apple-m1", "apple-m4", "nvidia", "webgpu"],
    ),
    classifier("char_lstm", Tokens(64), 65, 243_969, true, &[]),
    classifier("char_gru", Tokens(64), 65, 186_113, true, &[]),
    classifier("wavenet", Numbers(&[4000]), 10, 64_554, true, &[]),
    Golden {
        file: "unet",
        takes: Numbers(&[1, 256, 256]),
        classes: 2,
        parameters: 31_031_685,
        loss: "binary_cross_entropy",
        quick: false,
        too_large_for: &[],
    },
    Golden {
        file: "dlrm",
        takes: Table(13, 26),
        classes: 2,
        parameters: 540_677_217,
        loss: "binary_cross_entropy",
        quick: false,
        too_large_for: &["nvidia", "webgpu"],
    },
    Golden {
        file: "autoencoder",
        takes: Numbers(&[784]),
        classes: 2,
        parameters: 209_968,
        loss: "{image: {loss: mse, target: features}}",
        quick: true,
        too_large_for: &[],
    },
];

/// Samples in a batch: the fewest that a batch norm can be trained with.
const BATCH: usize = 2;

impl Golden {
    fn loaded(&self) -> (Loaded, Model) {
        let folder = tempfile::tempdir().unwrap();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/models").join(self.file);
        let text = format!(
            "version: 1\ndata: {{train: {{synthetic: {{kind: classification, samples: 2, shape: [2], classes: 2}}}}}}\n\
             loss: {}\noptimizer: {{adamw: {{lr: 1.0e-4}}}}\ntrain: {{steps: 3, batch_size: {BATCH}}}\n\
             model: '{}.yaml'\n",
            self.loss,
            file.display()
        );
        let config = folder.path().join("config.yaml");
        fs::write(&config, text).unwrap();
        let read = |node: &_, cx: &mut Cx| Model::decode(node, self.classes, cx);
        load_with(&config, &[], &|_| None, read).unwrap_or_else(|error| panic!("{error}"))
    }

    fn inputs(&self) -> Vec<InputSpec> {
        let spec = |name: &str, sample| InputSpec { name: name.into(), sample };
        match self.takes {
            Numbers(dims) => {
                let name = if dims.len() == 3 { "image_in" } else { "features" };
                vec![spec(name, TensorType::f32(Shape::new(dims)))]
            }
            Tokens(length) => vec![spec("tokens", TensorType::i32([length]))],
            Segments(length) => {
                ["tokens", "segments"].map(|name| spec(name, TensorType::i32([length]))).into()
            }
            Table(numbers, ids) => {
                let ids = (1..=ids).map(|at| spec(&format!("c{at}"), TensorType::i32([1])));
                ids.chain([spec("dense", TensorType::f32([numbers]))]).collect()
            }
        }
    }

    fn target(&self) -> InputSpec {
        let sample = match (self.takes, self.file) {
            (Numbers(dims), "unet") => TensorType::f32(Shape::new(dims)),
            (Tokens(length), _) => TensorType::i32([length]),
            _ => TensorType::i32([]),
        };
        InputSpec { name: "target".into(), sample }
    }

    fn compiled(&self, config: &Config, model: &Model, target: &Target) -> Compiled {
        let spec = Spec {
            config,
            model,
            loss_span: Span::whole(FileId(0)),
            inputs: self.inputs(),
            target: self.target(),
            classes: Some(self.classes),
            train_sizes: vec![BATCH],
            eval_sizes: vec![BATCH],
        };
        compile(&spec, target).unwrap_or_else(|error| panic!("{}: {error}", self.file))
    }

    /// Trains three steps on one batch; the losses.
    fn three_steps(&self) -> Vec<f32> {
        let (loaded, model) = self.loaded();
        let device = device::open("cpu", 0).unwrap();
        let compiled = self.compiled(&loaded.config, &model, &device.target());
        let mut executor = device.prepare(&compiled.plan).unwrap();
        model_io::initialise(executor.as_mut(), &compiled, 1).unwrap();
        let specs: Vec<InputSpec> = self.inputs().into_iter().chain([self.target()]).collect();
        let batch: Vec<Vec<u8>> = specs.iter().map(sample_bytes).collect();
        let rate = loaded.config.optimizer.lr();
        let roles = &compiled.plan.roles;
        let mut losses = Vec::new();
        for step in 1..=3 {
            let hyper = compiled.rule.hyper(rate, step);
            let globals = Globals { step: step as u32, hyper, ..Globals::default() };
            let inputs = batch.iter().map(Vec::as_slice).collect();
            let runs = [
                Run { program: roles.train[0], inputs, globals },
                Run { program: roles.update.unwrap(), inputs: Vec::new(), globals },
            ];
            executor.submit(&runs, step).unwrap();
            let report = executor.reports(true).unwrap().pop().unwrap();
            let stats = &report.values[REPORT_HEAD..];
            losses.push(stats[LOSS] / stats[WEIGHT]);
        }
        losses
    }
}

/// A batch of an input: numbers from 0 to 1, or the ids 0 and 1.
fn sample_bytes(spec: &InputSpec) -> Vec<u8> {
    let mut random = common::Random::new(3);
    let count = BATCH * spec.sample.shape.elements();
    match spec.sample.dtype {
        DType::I32 => (0..count).flat_map(|_| (random.below(2) as i32).to_le_bytes()).collect(),
        _ => (0..count).flat_map(|_| (random.uniform() as f32).to_le_bytes()).collect(),
    }
}

#[test]
fn every_file_is_in_the_table() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/models");
    let mut files: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    files.sort();
    let mut known: Vec<&str> = MODELS.iter().map(|golden| golden.file).collect();
    known.sort_unstable();
    assert_eq!(files, known);
}

#[test]
fn each_has_its_published_number_of_parameters() {
    let mut wrong = Vec::new();
    for golden in MODELS {
        let (loaded, model) = golden.loaded();
        let compiled = golden.compiled(&loaded.config, &model, &Target::Cpu);
        let found = compiled.params.parameter_count();
        if found != golden.parameters {
            wrong.push(format!("{}: {found}, published {}", golden.file, golden.parameters));
        }
        let text = fs::read_to_string(format!(
            "{}/configs/models/{}.yaml",
            env!("CARGO_MANIFEST_DIR"),
            golden.file
        ));
        let most = if golden.file == "gpt2" { 40 } else { 60 };
        assert!(text.unwrap().lines().count() < most, "{}: {most} lines or more", golden.file);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn each_plans_on_every_profile_and_says_where_it_does_not_fit() {
    let mut wrong = Vec::new();
    for golden in MODELS {
        let (loaded, model) = golden.loaded();
        for profile in PROFILES {
            let target = Target::Gpu(profile.limits.clone());
            let begin = std::time::Instant::now();
            let compiled = golden.compiled(&loaded.config, &model, &target);
            let fit = check_fit(&compiled.plan, &profile.limits, profile.name);
            let expected = !golden.too_large_for.contains(&profile.word);
            println!("{} on {}: {:?}, {fit:?}", golden.file, profile.word, begin.elapsed());
            if fit.is_ok() != expected {
                wrong.push(format!("{} on {}: {fit:?}", golden.file, profile.word));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_command_line_plans_for_each_profile() {
    let plan = |profile: &str| {
        let arguments = ["plan", "--config", "configs/char-gpt.yaml", "--profile", profile];
        common::wootz().args(arguments).output().unwrap()
    };
    for profile in PROFILES {
        let output = plan(profile.word);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}: {output:?}", profile.word);
        assert!(said.starts_with(&format!("device      {}", profile.name)), "{said}");
    }
    let output = plan("apple-m0");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(PROFILES.iter().all(|profile| said.contains(profile.word)), "{said}");
}

/// Those of a gigabyte of parameters and more are left to machines that have the memory.
const TRAINED: usize = 250_000_000;

#[test]
fn three_steps_lower_the_loss() {
    let trained = |golden: &&Golden| golden.quick || (soak() && golden.parameters < TRAINED);
    for golden in MODELS.iter().filter(trained) {
        let begin = std::time::Instant::now();
        let losses = golden.three_steps();
        println!("{}: {losses:?} in {:?}", golden.file, begin.elapsed());
        assert!(losses.iter().all(|loss| loss.is_finite()), "{}: {losses:?}", golden.file);
        assert!(losses[2] < losses[0], "{}: {losses:?}", golden.file);
    }
}
