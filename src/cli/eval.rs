//! `eval`: measures a trained model on a set.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::CliError;
use super::session::{Session, SetName, set_sizes};
use crate::device::Executor;
use crate::train::checkpoint::{self, Snapshot};
use crate::train::compile::Compiled;
use crate::train::evaluate::{Evaluation, evaluate};
use crate::train::model_io;
use crate::train::run_dir::RunDir;

/// Which trained model.
#[derive(Debug, Clone, Args)]
pub struct TrainedArgs {
    /// The run's folder, or one of its checkpoints.
    #[arg(long, value_name = "RUN_OR_CHECKPOINT", required_unless_present = "config")]
    pub run: Option<PathBuf>,
    /// Instead of a run: a configuration whose `weights` are the trained model.
    #[arg(short, long, value_name = "FILE", conflicts_with = "run")]
    pub config: Option<PathBuf>,
    /// In a run's folder: the newest checkpoint instead of the best.
    #[arg(long, requires = "run")]
    pub last: bool,
    /// Use the average of the weights that the run keeps (`average`).
    #[arg(long, requires = "run")]
    pub average: bool,
    /// Set a key of the run's configuration, such as `data.test.csv.path=new.csv`.
    #[arg(long = "set", value_name = "KEY.PATH=VALUE")]
    pub sets: Vec<String>,
    /// Run on this device.
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// The set.
    #[arg(long, value_enum, default_value = "valid")]
    pub on: SetName,
}

/// What to measure.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  wootz eval --run checkpoints/digits-cnn
  wootz eval --run checkpoints/digits-cnn/step-00001560 --on train --json
  wootz eval --config configs/my-net.yaml --on test")]
pub struct EvalArgs {
    #[command(flatten)]
    trained: TrainedArgs,
    /// One JSON document.
    #[arg(long)]
    json: bool,
}

/// A trained model on a device.
pub struct Trained {
    /// The run's configuration and data.
    pub session: Session,
    /// The plan, for evaluation only.
    pub compiled: Compiled,
    /// The device, with the model's weights.
    pub executor: Box<dyn Executor>,
    /// The checkpoint.
    pub from: PathBuf,
    /// Steps it was trained for.
    pub step: u64,
}

impl Trained {
    /// Opens a trained model for batches of the given sizes.
    ///
    /// # Errors
    /// When the run, its data or the device cannot be used.
    pub fn open(
        args: &TrainedArgs,
        sizes: impl FnOnce(&Session) -> Result<Vec<usize>, CliError>,
    ) -> Result<Self, CliError> {
        let mut checkpoint = match &args.run {
            Some(run) => Some(find(run, args.last)?),
            None => None,
        };
        match checkpoint.as_mut() {
            Some((_, from, snapshot)) if args.average => use_average(snapshot, from)?,
            None if args.average => {
                let problem =
                    "`--average` is of a run: name it by `--run`; a file of weights has none";
                return Err(CliError::Usage(problem.into()));
            }
            _ => {}
        }
        let file = match (&checkpoint, &args.config) {
            (Some((folder, ..)), _) => {
                RunDir::config(folder)?;
                folder.join("config.yaml")
            }
            (None, config) => config.clone().unwrap_or_default(),
        };
        let session = Session::open_file(&file, &args.sets, args.device.as_deref())?;
        let weights = session.config().weights.as_ref().map(|weights| &weights.path);
        let from = match (&checkpoint, weights) {
            (Some((_, from, _)), _) | (None, Some(from)) => from.clone(),
            (None, None) => {
                let hint =
                    "has no `weights`: name the file of a trained model there, or a run by `--run`";
                return Err(CliError::Usage(format!("{} {hint}", file.display())));
            }
        };
        let device = session.device()?;
        let sizes = sizes(&session)?;
        let compiled = session.compile_sizes(&device.target(), Vec::new(), sizes)?;
        let mut executor = device.prepare(&compiled.plan)?;
        let Some((.., snapshot)) = checkpoint else {
            session.first_values(&compiled, executor.as_mut())?;
            return Ok(Trained { session, compiled, executor, from, step: 0 });
        };
        if snapshot.state.data != session.data.train.digest() {
            super::eprint(
                "warning: `data.train` is not what this model was trained on: its classes or tokens \
                 may mean something else",
            );
        }
        model_io::restore(executor.as_mut(), &compiled, &snapshot, false)?;
        Ok(Trained { session, compiled, executor, from, step: snapshot.state.step })
    }
}

/// Puts the averaged parameters in the place of the raw ones.
fn use_average(snapshot: &mut Snapshot, from: &Path) -> Result<(), CliError> {
    if snapshot.average.is_empty() {
        return Err(CliError::Usage(format!(
            "{} holds no average: the run was trained without `average`",
            from.display()
        )));
    }
    for averaged in std::mem::take(&mut snapshot.average) {
        if let Some(raw) = snapshot.model.iter_mut().find(|raw| raw.name == averaged.name) {
            *raw = averaged;
        }
    }
    Ok(())
}

/// A run's folder and its best checkpoint, with `last` the newest, or the one that is named.
///
/// # Errors
/// When there is none that is whole.
pub fn find(path: &Path, last: bool) -> Result<(PathBuf, PathBuf, Snapshot), CliError> {
    if !path.exists() {
        return Err(CliError::Usage(format!(
            "{}: there is no such run or checkpoint",
            path.display()
        )));
    }
    let path = &path.canonicalize().unwrap_or(path.to_owned());
    if checkpoint::step_of(path).is_some() {
        let folder = path.parent().map_or(PathBuf::from("."), Path::to_owned);
        return Ok((folder, path.to_owned(), checkpoint::load(path)?));
    }
    let found = if last { checkpoint::newest_good(path) } else { checkpoint::best(path) };
    let (from, snapshot, damaged) = found?;
    damaged.iter().for_each(|bad| {
        super::eprint(&format!("warning: passed over a checkpoint: {}", bad.error));
    });
    Ok((path.to_owned(), from, snapshot))
}

/// Measures.
pub fn run(args: EvalArgs) -> Result<u8, CliError> {
    let on = args.trained.on;
    let mut trained = Trained::open(&args.trained, |session| {
        Ok(set_sizes(session.set(on)?.as_ref(), session.config().train.batch_size))
    })?;
    let set = trained.session.set(on)?;
    let config = trained.session.config();
    let terms = config.loss.terms(&config.metrics);
    let Evaluation { metrics, tables } = {
        let (executor, compiled) = (trained.executor.as_mut(), &trained.compiled);
        evaluate(executor, compiled, &compiled.plan.roles.eval, &terms, &set, on.word())?
    };
    if args.json {
        let values: serde_json::Map<String, serde_json::Value> =
            metrics.iter().map(|(n, v)| (n.clone(), json!(v))).chain(tables).collect();
        super::print(&json!({"checkpoint": trained.from, "step": trained.step, "samples": set.len(), "metrics": values}).to_string());
    } else {
        let from = trained.from.display();
        super::eprint(&format!("{from} (step {}), {} samples", trained.step, set.len()));
        metrics.iter().for_each(|(name, value)| super::print(&format!("{name} {value:.6}")));
        tables.iter().for_each(|(name, table)| super::print(&format!("{name} {table}")));
    }
    Ok(0)
}
