//! `train`: a new run, or the continuation of one.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::session::Session;
use super::tune::TuneArgs;
use super::{CliError, ConfigArgs};
use crate::config::node::json_to_yaml;
use crate::data::Task;
use crate::device::gpu::{Fault, Options};
use crate::device::{DeviceInfo, Executor};
use crate::plan::report;
use crate::train::checkpoint::{self, CheckpointError, FORMAT, Snapshot, State};
use crate::train::compile::Compiled;
use crate::train::model_io;
use crate::train::progress::Progress;
use crate::train::records;
use crate::train::records::prometheus::{Facts, Prometheus};
use crate::train::records::tensorboard::TensorBoard;
use crate::train::rules::Clock;
use crate::train::run::{Outcome, Trainer};
use crate::train::run_dir::{self, FileHash, RunDir, RunInfo, Start};
use crate::train::signals::Signals;
use crate::train::weights;

/// How to train.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  wootz train --config configs/digits-cnn.yaml
  wootz train --config configs/digits-cnn.yaml --set train.epochs=3 --set optimizer.adamw.lr=0.01
  wootz train --config configs/digits-cnn.yaml --resume                 the newest run of this name
  wootz train --config configs/digits-cnn.yaml --resume checkpoints/digits-cnn/step-00000546 --run-dir checkpoints/branch")]
pub struct TrainArgs {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    tune: TuneArgs,
    /// Stop after this many steps in all, as if interrupted: the schedule is that of the whole
    /// run.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// The run's folder. Without it: the run's name in `checkpoint.dir`. Beside `--resume` with a
    /// path: a new folder that goes on from there.
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// Continue a run: its folder or one of its checkpoints; without a path, the newest run of
    /// this name.
    #[arg(long, value_name = "RUN_OR_CHECKPOINT", num_args = 0..=1)]
    resume: Option<Option<PathBuf>>,
    /// Resume with another configuration: the differences are shown, and the run goes on.
    #[arg(long, requires = "resume")]
    allow_changes: bool,
    /// Serve the latest numbers to Prometheus at this address, such as 127.0.0.1:9464.
    #[arg(long, value_name = "ADDRESS")]
    metrics_addr: Option<String>,
    /// Give the result as one JSON document on stdout.
    #[arg(long)]
    json: bool,
    /// End at once when standard input closes, as it does when the sweep that started this ends.
    #[arg(long, hide = true)]
    end_with_stdin: bool,
    /// Bring about a failure, for tests: drop-submission:N or lose-device:N of the GPU,
    /// nan-batch:STEP, or stall-save:STEP:BYTES.
    #[arg(long, hide = true, value_name = "FAULT")]
    inject_fault: Option<Injected>,
}

/// A failure for tests.
#[derive(Clone, Debug)]
enum Injected {
    /// Of the GPU.
    Gpu(Fault),
    /// A NaN in the batch of a step.
    NanBatch(u64),
    /// The process stops for good after so many bytes of the first checkpoint from a step on.
    StallSave(u64, usize),
}

impl std::str::FromStr for Injected {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(step) = text.strip_prefix("nan-batch:") {
            let step = step.parse().map_err(|_| "expected nan-batch:STEP")?;
            return Ok(Injected::NanBatch(step));
        }
        let Some(place) = text.strip_prefix("stall-save:") else {
            return text.parse().map(Injected::Gpu);
        };
        let (step, bytes) = place.split_once(':').unwrap_or_default();
        match (step.parse(), bytes.parse()) {
            (Ok(step), Ok(bytes)) => Ok(Injected::StallSave(step, bytes)),
            _ => Err("expected stall-save:STEP:BYTES".into()),
        }
    }
}

/// Where a run continues: in its folder, from a checkpoint, or from the start where it was killed
/// before the first one.
struct Resumed {
    folder: PathBuf,
    checkpoint: Option<(PathBuf, Snapshot)>,
    /// A new folder for what follows; the run itself stays as it is.
    branch: Option<PathBuf>,
}

/// Trains.
pub fn run(args: TrainArgs) -> Result<u8, CliError> {
    if args.end_with_stdin {
        std::thread::spawn(|| {
            // An error is an end, too.
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            std::process::exit(143);
        });
    }
    let session = Session::open(&args.config)?;
    let name = run_name(&session, &args.config.config);
    let resumed = match &args.resume {
        Some(path) => Some(find(path.as_deref(), &session, &name, args.run_dir.as_deref())?),
        None => None,
    };
    if let Some(path) =
        args.run_dir.as_deref().filter(|path| resumed.is_none() && run_dir::holds_run(path))
    {
        return Err(usage_if_taken(run_dir::taken(path)));
    }
    let device = session.device()?;
    let recorded = match &resumed {
        Some(resumed) => RunDir::info(&resumed.folder).ok(),
        None => None,
    };
    let recorded = recorded.and_then(|run| run.products_on(&device.info()));
    let (device, compiled) = args.tune.planned(&session, device, recorded)?;
    let (mut fault, mut poisoned_step, mut stalled_save) = (None, None, None);
    match &args.inject_fault {
        Some(Injected::Gpu(injected)) => fault = Some(injected.clone()),
        Some(Injected::NanBatch(step)) => poisoned_step = Some(*step),
        Some(Injected::StallSave(step, bytes)) => stalled_save = Some((*step, *bytes)),
        None => {}
    }
    let options = Options { fault, ..Options::default() };
    let mut executor = device.prepare_with(&compiled.plan, options)?;
    let info = executor.info().clone();
    super::eprint(&format!(
        "{name}: {} parameters on {} ({})",
        compiled.params.parameter_count(),
        info.name,
        info.backend
    ));
    // Before the run's folder is made: an address that is taken leaves nothing behind.
    let prometheus = match &args.metrics_addr {
        Some(address) => Some(listen(address, &session, &compiled, &name)?),
        None => None,
    };
    let (mut folder, state) = match resumed {
        Some(resumed) => {
            let executor = executor.as_mut();
            resume(&session, &compiled, executor, resumed, &name, args.allow_changes)?
        }
        None => start(&session, &compiled, executor.as_mut(), &args, &name)?,
    };
    let total = session.total_steps();
    let last = args.steps.map_or(total, |steps| steps.min(total));
    if state.step >= last {
        super::eprint(&format!(
            "{}: step {} of {last} is done already; raise {} to go on",
            folder.path().display(),
            state.step,
            if last < total { "`--steps`" } else { "`train.epochs` or `train.steps`" }
        ));
    }
    if let Some(sink) = prometheus {
        folder.attach(Box::new(sink));
    }
    attach_records(&session, &mut folder, state.step)?;
    let shown = folder.path().to_owned();
    let trainer = Trainer {
        config: session.config(),
        compiled: &compiled,
        executor,
        train: session.data.train.clone(),
        valid: session.data.valid.clone(),
        batches: session.batches(),
        folder: Some(folder),
        progress: Progress::new(last, state.step, false),
        signals: Signals::watch()
            .map_err(|e| CliError::Usage(format!("cannot watch for signals: {e}")))?,
        state,
        last_step: last,
        total_steps: total,
        digest: session.data.train.digest(),
        poisoned_step,
        stalled_save,
        slow: Clock::default(),
        striking: Vec::new(),
    };
    let outcome = trainer.run();
    // However the run ended, its numbers are there as a table.
    let table = records::csv::write(&shown).map_err(CheckpointError::io("write", &shown));
    let outcome = outcome?;
    table?;
    show(&outcome, total, &shown, &info, args.json);
    Ok(outcome.stopped.map_or(0, |stop| stop.exit_code()))
}

/// Attaches what the configuration asks to be recorded.
fn attach_records(session: &Session, folder: &mut RunDir, step: u64) -> Result<(), CliError> {
    let path = folder.path().to_owned();
    let asked = &session.config().records;
    if let Some(options) = &asked.tensorboard {
        let sink = TensorBoard::create(&path, step, &resolved(session), options.histograms);
        let sink = sink.map_err(CheckpointError::io("write the event files of", &path))?;
        folder.attach(Box::new(sink));
    }
    Ok(())
}

fn listen(
    address: &str,
    session: &Session,
    compiled: &Compiled,
    name: &str,
) -> Result<Prometheus, CliError> {
    let facts = Facts {
        run: name.to_owned(),
        total_steps: session.total_steps(),
        planned_bytes: report::total_bytes(&compiled.plan),
    };
    let server = Prometheus::listen(address, facts)
        .map_err(|e| CliError::Usage(format!("cannot listen at `{address}`: {e}")))?;
    super::eprint(&format!("metrics: http://{}/metrics", server.address()));
    Ok(server)
}

fn run_name(session: &Session, path: &Path) -> String {
    let stem = path.file_stem().map_or("run".into(), |s| s.to_string_lossy().into_owned());
    session.config().name.clone().unwrap_or(stem)
}

/// Begins a new run in a folder of its own.
fn start(
    session: &Session,
    compiled: &Compiled,
    executor: &mut dyn Executor,
    args: &TrainArgs,
    name: &str,
) -> Result<(RunDir, State), CliError> {
    let path = args
        .run_dir
        .clone()
        .unwrap_or_else(|| run_dir::fresh(&session.config().checkpoint.dir, name));
    session.first_values(compiled, executor)?;
    let folder = create(session, compiled, executor, &path, name, 1)?;
    Ok((folder, State::default()))
}

/// A new run's folder.
fn create(
    session: &Session,
    compiled: &Compiled,
    executor: &dyn Executor,
    path: &Path,
    name: &str,
    first_step: u64,
) -> Result<RunDir, CliError> {
    let files = session.loaded.sources.files().map(|(path, content)| FileHash {
        path: path.display().to_string(),
        sha256: Sha256::digest(content).iter().map(|b| format!("{b:02x}")).collect(),
    });
    let mut files: Vec<FileHash> = files.collect();
    // What goes on from a checkpoint does not read them.
    if let Some(given) = session.config().weights.as_ref().filter(|_| first_step == 1) {
        let path = given.path.display().to_string();
        files.push(FileHash { path, sha256: weights::sha256(given)? });
    }
    let info = RunInfo {
        wootz: env!("CARGO_PKG_VERSION").into(),
        checkpoint_format: FORMAT,
        name: name.to_owned(),
        seed: session.config().seed,
        files,
        parameters: compiled.params.parameter_count(),
        starts: vec![Start::new(
            first_step,
            executor.info(),
            session.config().precision,
            &compiled.plan.target,
        )],
    };
    let folder = RunDir::create(path, &resolved(session), &info).map_err(usage_if_taken)?;
    let classes = match session.data.train.task() {
        Task::Classification { names, .. } => names.as_slice(),
        _ => &[],
    };
    folder.write_plan(&json!({
        "steps": session.total_steps(),
        "layers": super::plan::layers(compiled),
        "memory": report::memory(&compiled.plan),
        "classes": classes,
    }))?;
    super::eprint(&format!("run folder: {}", path.display()));
    Ok(folder)
}

/// A folder that holds a run is a matter of the command line, not of the disk.
fn usage_if_taken(error: CheckpointError) -> CliError {
    match error {
        CheckpointError::Mismatch { path, reason } => {
            CliError::Usage(format!("{}: {reason}", path.display()))
        }
        other => CliError::File(other),
    }
}

/// The configuration as it was resolved, as YAML.
fn resolved(session: &Session) -> String {
    let mut tree = crate::config::decode::Decode::to_json(session.config());
    escape(&mut tree);
    json_to_yaml(&tree)
}

/// Writes `${` as `$${`, so that values are not taken for variables when they are read again.
fn escape(tree: &mut serde_json::Value) {
    match tree {
        serde_json::Value::String(text) => *text = text.replace("${", "$${"),
        serde_json::Value::Array(items) => items.iter_mut().for_each(escape),
        serde_json::Value::Object(entries) => entries.values_mut().for_each(escape),
        _ => {}
    }
}

/// Finds the run and the checkpoint to continue from, passing over damaged ones aloud.
fn find(
    path: Option<&Path>,
    session: &Session,
    name: &str,
    run_dir: Option<&Path>,
) -> Result<Resumed, CliError> {
    let dir = &session.config().checkpoint.dir;
    let branch = path.and(run_dir).map(Path::to_owned);
    let path = match (path, run_dir) {
        (Some(path), _) | (None, Some(path)) => path.to_owned(),
        (None, None) => run_dir::newest(dir, name).ok_or_else(|| {
            CliError::Usage(format!("there is no run `{name}` in {} to resume", dir.display()))
        })?,
    };
    if !path.exists() {
        return Err(CliError::Usage(format!(
            "{}: there is no such run or checkpoint",
            path.display()
        )));
    }
    // So that `.` and a checkpoint's bare name have a parent.
    let path = path.canonicalize().unwrap_or(path);
    if checkpoint::step_of(&path).is_some() {
        let snapshot = checkpoint::load(&path)?;
        let folder = path.parent().map_or(PathBuf::from("."), Path::to_owned);
        let newest = checkpoint::by_age(&folder).pop().filter(|newest| *newest != path);
        if let Some(newest) = newest.filter(|_| branch.is_none()) {
            return Err(CliError::Usage(format!(
                "{} is newer than {}: to go on from the older one, name a new folder with `--run-dir`",
                newest.display(),
                path.display()
            )));
        }
        return Ok(Resumed { folder, checkpoint: Some((path, snapshot)), branch });
    }
    if run_dir::holds_run(&path) && checkpoint::by_age(&path).is_empty() {
        return Ok(Resumed { folder: path, checkpoint: None, branch });
    }
    let (from, snapshot, damaged) = checkpoint::newest_good(&path)?;
    for bad in &damaged {
        super::eprint(&format!("warning: passed over a checkpoint: {}", bad.error));
    }
    Ok(Resumed { folder: path, checkpoint: Some((from, snapshot)), branch })
}

/// Restores a run; refuses what would make it another one.
fn resume(
    session: &Session,
    compiled: &Compiled,
    executor: &mut dyn Executor,
    resumed: Resumed,
    name: &str,
    allow_changes: bool,
) -> Result<(RunDir, State), CliError> {
    let Resumed { folder, checkpoint, branch } = resumed;
    let differences = super::differences::between(&RunDir::config(&folder)?, &resolved(session));
    if !differences.is_empty() {
        let list = differences.join("\n  ");
        let said =
            format!("{} was started with another configuration:\n  {list}", folder.display());
        if !allow_changes {
            return Err(CliError::Usage(format!(
                "{said}\nresume with the same values, allow the changes with `--allow-changes`, or start a new run"
            )));
        }
        super::eprint(&format!("warning: {said}"));
    }
    let Some((from, snapshot)) = checkpoint else {
        super::eprint(&format!("{} has no checkpoint yet: starting at step 1", folder.display()));
        session.first_values(compiled, executor)?;
        let start =
            Start::new(1, executor.info(), session.config().precision, &compiled.plan.target);
        let folder =
            RunDir::resume(&folder, &resolved(session), 0, start).map_err(usage_if_taken)?;
        return Ok((folder, State::default()));
    };
    let state = snapshot.state.clone();
    let samples = session.data.train.len() as u64;
    if state.samples == samples && state.data != session.data.train.digest() {
        return Err(CliError::Usage(format!(
            "{} was trained on other data: as many samples, but not the same ones",
            folder.display()
        )));
    }
    if state.samples != samples {
        return Err(CliError::Usage(format!(
            "{} was trained on {} samples; the data now holds {samples}",
            folder.display(),
            state.samples
        )));
    }
    model_io::restore(executor, compiled, &snapshot, true)?;
    super::eprint(&format!("resuming {} after step {}", from.display(), state.step));
    if let Some(branch) = branch {
        let folder = create(session, compiled, executor, &branch, name, state.step + 1)?;
        return Ok((folder, state));
    }
    let start = Start::new(
        state.step + 1,
        executor.info(),
        session.config().precision,
        &compiled.plan.target,
    );
    let folder =
        RunDir::resume(&folder, &resolved(session), state.step, start).map_err(usage_if_taken)?;
    Ok((folder, state))
}

fn show(outcome: &Outcome, total: u64, folder: &Path, info: &DeviceInfo, as_json: bool) {
    let metrics: serde_json::Map<String, serde_json::Value> =
        outcome.metrics.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    if as_json {
        let document = json!({
            "run": folder, "step": outcome.step, "total_steps": total, "metrics": metrics, "best": outcome.best, "device": info,
            "checkpoint": outcome.checkpoint, "early_stop": outcome.early, "interrupted": outcome.stopped.is_some(),
        });
        return super::print(&document.to_string());
    }
    let words: Vec<String> =
        outcome.metrics.iter().map(|(name, value)| format!("{name} {value:.4}")).collect();
    let why = match (outcome.stopped, outcome.early) {
        (Some(_), _) => "interrupted at",
        (None, true) => "stopped early at",
        (None, false) => "done:",
    };
    super::print(format!("{why} step {}  {}", outcome.step, words.join("  ")).trim_end());
    if let Some(best) = &outcome.best {
        super::print(&format!("best {} {:.4} at step {}", best.metric, best.value, best.step));
    }
    super::print(&format!("run {}", folder.display()));
}
