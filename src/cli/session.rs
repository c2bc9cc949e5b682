//! What most commands begin with: the configuration, its data, the device, the plan.

use std::path::Path;
use std::sync::Arc;

use crate::config::decode::Cx;
use crate::config::diagnostic::Diagnostics;
use crate::config::load::{Loaded, load_with};
use crate::config::node::Node;
use crate::config::overrides::Override;
use crate::config::source::{FileId, Span};
use crate::config::types::Config;
use crate::data::{Batches, Dataset, Splits};
use crate::device::{self, Device, Executor};
use crate::layers::Model;
use crate::ops::Target;
use crate::train::compile::{Compiled, Spec, compile};
use crate::train::weights;

use super::{CliError, ConfigArgs};

/// A configuration with its data, ready to be planned.
pub struct Session {
    /// The configuration.
    pub loaded: Loaded,
    /// The model, read with the data's number of classes.
    pub model: Model,
    /// The sets.
    pub data: Splits,
}

/// Number of classes that a model is read with before its data is known, so that errors of the
/// configuration come before errors of the data.
pub const UNKNOWN_CLASSES: usize = 2;

impl Session {
    /// Loads a configuration and its data.
    ///
    /// # Errors
    /// Everything that is wrong in the configuration; then whatever is wrong with the data.
    pub fn open(args: &ConfigArgs) -> Result<Self, CliError> {
        Self::open_file(&args.config, &args.sets, args.device.as_deref())
    }

    /// As [`Session::open`], for a file.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn open_file(path: &Path, sets: &[String], device: Option<&str>) -> Result<Self, CliError> {
        let loaded = load(path, sets, device)?;
        let data = crate::data::open(&loaded.config.data, loaded.config.seed)?;
        let node = &loaded.config.model;
        let mut cx = Cx::new(Config::places());
        let classes = data.train.classes().unwrap_or(UNKNOWN_CLASSES);
        let model = cx.within("model", |cx| Model::decode(node, classes, cx));
        let diagnostics = cx.finish();
        match model {
            Some(model) if diagnostics.is_empty() => Ok(Session { loaded, model, data }),
            _ => Err(rendered(&diagnostics, &loaded)),
        }
    }

    /// The typed configuration.
    pub fn config(&self) -> &Config {
        &self.loaded.config
    }

    /// Which samples each step takes.
    pub fn batches(&self) -> Batches {
        Batches::new(self.data.train.len(), &self.config().train, self.config().seed)
    }

    /// Steps of the whole run.
    pub fn total_steps(&self) -> u64 {
        let train = &self.config().train;
        match (train.steps, train.epochs) {
            (Some(steps), _) => steps as u64,
            (None, epochs) => self.batches().steps_per_epoch() * epochs.unwrap_or(1) as u64,
        }
    }

    /// Opens the device that the configuration or the command line names. A GPU takes the tiles that
    /// earlier runs chose on it.
    ///
    /// # Errors
    /// When there is none.
    pub fn device(&self) -> Result<Device, CliError> {
        let threads = self.config().train.threads.unwrap_or(0);
        let device = device::open(&self.config().device.to_string(), threads)?;
        let known = super::tune::known(&device);
        Ok(device.choosing(known))
    }

    /// Plans training and evaluation.
    ///
    /// # Errors
    /// When a layer does not fit.
    pub fn compile(&self, target: &Target) -> Result<Compiled, CliError> {
        self.compile_sizes(target, self.batches().sizes(), self.eval_sizes())
    }

    /// Plans for the given batch sizes.
    ///
    /// # Errors
    /// When a layer does not fit.
    pub fn compile_sizes(
        &self,
        target: &Target,
        train_sizes: Vec<usize>,
        eval_sizes: Vec<usize>,
    ) -> Result<Compiled, CliError> {
        let spec = Spec {
            config: self.config(),
            model: &self.model,
            loss_span: self.span("loss"),
            inputs: self.data.train.inputs().to_vec(),
            target: self.data.train.target().clone(),
            classes: self.data.train.classes(),
            train_sizes,
            eval_sizes,
        };
        compile(&spec, target)
            .map_err(|error| rendered(&error.diagnostics(self.span("model")), &self.loaded))
    }

    /// Batch sizes that occur when the held-out sets are evaluated in batches of the training
    /// size.
    pub fn eval_sizes(&self) -> Vec<usize> {
        let batch = self.config().train.batch_size;
        let mut sizes = Vec::new();
        for set in [&self.data.valid, &self.data.test].into_iter().flatten() {
            sizes.extend(set_sizes(set, batch));
        }
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes.dedup();
        sizes
    }

    /// Gives a prepared device the first values of a run: drawn from the seed, or those of `weights`.
    ///
    /// # Errors
    /// When the file of `weights` does not fit, or the device fails.
    pub fn first_values(
        &self,
        compiled: &Compiled,
        executor: &mut dyn Executor,
    ) -> Result<(), CliError> {
        let left = weights::first_values(executor, compiled, self.config())?;
        if let Some(weights) = &self.config().weights {
            super::eprint(&format!("weights from {}", weights.path.display()));
            left.iter().for_each(|list| super::eprint(&format!("  {list}")));
        }
        Ok(())
    }

    /// Where a section stands.
    fn span(&self, key: &str) -> Span {
        self.loaded.root.get(key).map_or(Span::whole(FileId(0)), |node: &Node| node.span)
    }

    /// A set by its name.
    ///
    /// # Errors
    /// When the configuration has none of that name.
    pub fn set(&self, name: SetName) -> Result<Arc<Dataset>, CliError> {
        let found = match name {
            SetName::Train => Some(&self.data.train),
            SetName::Valid => self.data.valid.as_ref(),
            SetName::Test => self.data.test.as_ref(),
        };
        found.cloned().ok_or_else(|| {
            CliError::Usage(format!("the configuration has no `data.{}`", name.word()))
        })
    }
}

/// Batch sizes that occur when a set is read in batches of at most `batch`.
pub fn set_sizes(set: &Dataset, batch: usize) -> Vec<usize> {
    let mut sizes = vec![batch.min(set.len())];
    let rest = set.len() % batch;
    if rest > 0 && rest != sizes[0] {
        sizes.push(rest);
    }
    sizes
}

/// One of the sets of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SetName {
    /// What is trained on.
    Train,
    /// What is held out during training.
    Valid,
    /// What is held out until the end.
    Test,
}

impl SetName {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            SetName::Train => "train",
            SetName::Valid => "valid",
            SetName::Test => "test",
        }
    }
}

/// Loads a configuration without its data; the model is read to find its errors.
///
/// # Errors
/// Everything that is wrong in it.
pub fn load(path: &Path, sets: &[String], device: Option<&str>) -> Result<Loaded, CliError> {
    let mut overrides: Vec<Override> = sets.iter().map(Override::new).collect();
    overrides.extend(device.map(|device| Override::new(format!("device={device}"))));
    let variables = |name: &str| std::env::var(name).ok();
    let (loaded, _) = load_with(path, &overrides, &variables, |node, cx| {
        Model::decode(node, UNKNOWN_CLASSES, cx)
    })?;
    Ok(loaded)
}

fn rendered(diagnostics: &Diagnostics, loaded: &Loaded) -> CliError {
    CliError::Config(diagnostics.render(&loaded.sources).trim_end().to_owned())
}
