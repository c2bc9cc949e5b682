//! Whole steps of training: plan, parameters and optimizer as `wootz train` has them.

use std::collections::BTreeMap;

use super::problem::{Device, Problem, fill};
use super::reference;
use wootz::config::source::{FileId, Span};
use wootz::device::{Executor, Globals, Run, Usage};
use wootz::graph::TensorType;
use wootz::layers::InputSpec;
use wootz::plan::{Page, Slot};
use wootz::train::compile::{Compiled, Spec, compile};
use wootz::train::model_io;

/// A configuration's text; its data is not used.
pub fn config(model: &str, loss: &str, optimizer: &str) -> String {
    let kind = match loss {
        "cross_entropy" => "kind: classification, classes: 7",
        _ => "kind: regression",
    };
    format!(
        "version: 1\ndata: {{train: {{synthetic: {{{kind}, samples: 8, shape: [4]}}}}}}\n\
         loss: {loss}\noptimizer: {{{optimizer}}}\ntrain: {{steps: 9, batch_size: 1}}\n\
         model:\n  {}\n",
        model.trim().replace('\n', "\n  ")
    )
}

/// A model in training.
pub struct Training {
    compiled: Compiled,
    executor: Box<dyn Executor>,
    rate: f64,
}

impl Training {
    /// Plans steps of one batch.
    pub fn new(
        model: &str,
        loss: &str,
        optimizer: &str,
        (x, y): (&TensorType, &TensorType),
        batch: usize,
        device: &Device,
    ) -> Self {
        let (loaded, model) = reference::load(&config(model, loss, optimizer));
        let spec = Spec {
            config: &loaded.config,
            model: &model,
            loss_span: Span::whole(FileId(0)),
            inputs: vec![InputSpec { name: "x".into(), sample: x.clone() }],
            target: InputSpec { name: "y".into(), sample: y.clone() },
            classes: None,
            train_sizes: vec![batch],
            eval_sizes: Vec::new(),
        };
        let compiled = compile(&spec, &device.target()).unwrap_or_else(|error| panic!("{error}"));
        let mut executor = device.prepare(&compiled.plan);
        model_io::initialise(executor.as_mut(), &compiled, 1)
            .unwrap_or_else(|error| panic!("{error}"));
        let rate = loaded.config.optimizer.lr();
        Training { compiled, executor, rate }
    }

    /// Sets all parameters to what they are in problems; gives them.
    pub fn set_parameters(&mut self) -> BTreeMap<String, Vec<f32>> {
        for param in &self.compiled.params.params {
            let start =
                Problem::start(&param.spec.name, &TensorType::f32(param.spec.shape.clone()));
            let slot = param.slot(Page::Params);
            self.executor.write(slot, start.bytes()).unwrap_or_else(|error| panic!("{error}"));
        }
        self.parameters()
    }

    /// All parameters by name.
    pub fn parameters(&mut self) -> BTreeMap<String, Vec<f32>> {
        let mut found = BTreeMap::new();
        for param in &self.compiled.params.params {
            let bytes = self.executor.read(param.slot(Page::Params));
            let bytes = bytes.unwrap_or_else(|error| panic!("{error}"));
            found.insert(param.spec.name.clone(), bytemuck::pod_collect_to_vec(&bytes));
        }
        found
    }

    /// What the executor holds and has done.
    pub fn usage(&self) -> Usage {
        self.executor.usage()
    }

    /// One step.
    pub fn step(&mut self, step: u32, inputs: &[&[u8]]) {
        let globals = Globals {
            step,
            seed: [3, 4],
            hyper: self.compiled.rule.hyper(self.rate, u64::from(step)),
            ..Globals::default()
        };
        let roles = &self.compiled.plan.roles;
        let update = roles.update.expect("the plan trains");
        let runs = [
            Run { program: roles.train[0], inputs: inputs.to_vec(), globals },
            Run { program: update, inputs: Vec::new(), globals },
        ];
        self.executor.submit(&runs, u64::from(step)).unwrap_or_else(|error| panic!("{error}"));
        self.executor.reports(true).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Fills with NaNs what the next step must not need. (Gaps between gradients stay zeros.)
    pub fn poison(&mut self) {
        let pages = self.compiled.plan.pages.iter();
        let mut slots: Vec<Slot> = (pages.copied())
            .filter(|(page, _)| matches!(page, Page::Arena(_) | Page::Batch | Page::Report))
            .map(|(page, bytes)| Slot { page, offset: 0, bytes })
            .collect();
        slots.extend(self.compiled.params.params.iter().map(|param| param.slot(Page::Grads)));
        slots.into_iter().for_each(|slot| fill(self.executor.as_mut(), slot));
    }
}
