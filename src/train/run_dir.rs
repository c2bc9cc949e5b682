//! A run's folder: the resolved configuration, run.json, metrics.jsonl and the checkpoints. It is
//! append-only: a folder that holds a run is never written over.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::checkpoint::{self, CheckpointError, NamedTensor};
use super::records::Sink;
use crate::config::types::Precision;
use crate::device::DeviceInfo;
use crate::ops::Target;
use crate::ops::selection::Chosen;

/// What run.json says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunInfo {
    /// Version of this program.
    pub wootz: String,
    /// Version of the checkpoint format.
    pub checkpoint_format: u32,
    /// The run's name.
    pub name: String,
    /// The seed.
    pub seed: u64,
    /// Files that were read, with their SHA-256.
    pub files: Vec<FileHash>,
    /// Trained numbers.
    pub parameters: usize,
    /// The device at each start of the run, the first start first.
    pub starts: Vec<Start>,
}

/// A file and its hash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileHash {
    /// As it was named.
    pub path: String,
    /// In hexadecimal.
    pub sha256: String,
}

/// One start of the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    /// First step of this start.
    pub from_step: u64,
    /// The device.
    pub device: Json,
    /// Precision of the arithmetic.
    pub precision: String,
    /// What selection chose for the products of matrices; the others run with the fixed table's tiles.
    #[serde(default, skip_serializing_if = "Chosen::is_empty")]
    pub products: Chosen,
}

impl Start {
    /// A start on a device, with a plan for this target.
    pub fn new(from_step: u64, device: &DeviceInfo, precision: Precision, target: &Target) -> Self {
        Start {
            from_step,
            device: device_json(device),
            precision: precision.word().into(),
            products: match target {
                Target::Cpu => Chosen::NONE,
                Target::Gpu(limits) => limits.chosen.clone(),
            },
        }
    }
}

fn device_json(device: &DeviceInfo) -> Json {
    serde_json::to_value(device).unwrap_or_default()
}

impl RunInfo {
    /// What was chosen when the run last started on this device, if it ever did.
    pub fn products_on(&self, device: &DeviceInfo) -> Option<Chosen> {
        let device = device_json(device);
        let start = self.starts.iter().rev().find(|start| start.device == device);
        start.map(|start| start.products.clone())
    }
}

/// The folder of one run.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    metrics: BufWriter<File>,
    sinks: Vec<Box<dyn Sink>>,
    /// Held while this process trains; the system lets go of it however the process ends.
    _lock: File,
}

const CONFIG: &str = "config.yaml";
const INFO: &str = "run.json";
const PLAN: &str = "plan.json";
const METRICS: &str = "metrics.jsonl";
const LOCK: &str = ".lock";

/// Locks a run's folder for this process, and clears away what killed ones have left half written.
fn lock(path: &Path) -> Result<File, CheckpointError> {
    let file = path.join(LOCK);
    let lock = File::create(&file).map_err(CheckpointError::io("create", &file))?;
    if lock.try_lock().is_err() {
        let reason = "another process is training in it".to_owned();
        return Err(CheckpointError::Mismatch { path: path.to_owned(), reason });
    }
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if [".writing-", ".replaced-", ".removing-"].iter().any(|left| name.starts_with(left)) {
            let left = entry.path();
            fs::remove_dir_all(&left).map_err(CheckpointError::io("remove", &left))?;
        }
    }
    Ok(lock)
}

/// Whether a folder holds a run.
pub fn holds_run(path: &Path) -> bool {
    path.join(INFO).exists() || !checkpoint::by_age(path).is_empty()
}

/// The error of a folder that holds a run where a new one was to begin.
pub fn taken(path: &Path) -> CheckpointError {
    let reason = "it holds a run already; `--resume` continues it, another `--run-dir` starts anew"
        .to_owned();
    CheckpointError::Mismatch { path: path.to_owned(), reason }
}

/// The folder of a new run: `name` in `parent`, or `name-2`, `name-3`, … where that is taken.
pub fn fresh(parent: &Path, name: &str) -> PathBuf {
    let numbered = (2..).map(|n| parent.join(format!("{name}-{n}")));
    std::iter::once(parent.join(name))
        .chain(numbered)
        .find(|path| !path.exists())
        .unwrap_or_else(|| parent.join(name))
}

/// The newest run of this name in `parent`, by its records' age.
pub fn newest(parent: &Path, name: &str) -> Option<PathBuf> {
    let ours = |path: &PathBuf| RunDir::info(path).is_ok_and(|info| info.name == name);
    let entries = fs::read_dir(parent).ok()?;
    let mut runs: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(ours).collect();
    runs.sort_by_key(|path| fs::metadata(path.join(METRICS)).and_then(|m| m.modified()).ok());
    runs.pop()
}

impl RunDir {
    /// Creates the folder of a new run.
    ///
    /// # Errors
    /// When it holds a run already, another process trains in it, or it cannot be written.
    pub fn create(path: &Path, config: &str, info: &RunInfo) -> Result<Self, CheckpointError> {
        fs::create_dir_all(path).map_err(CheckpointError::io("create", path))?;
        let lock = lock(path)?;
        if holds_run(path) {
            return Err(taken(path));
        }
        write_whole(path, CONFIG, config.as_bytes())?;
        // Last: a folder without it holds no run, whatever else a killed process left there.
        write_info(path, info)?;
        Self::open(path, lock)
    }

    /// Opens the folder of a run to continue it from `step` with a configuration that may be longer:
    /// metrics of later steps are dropped, since they will be measured again.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn resume(
        path: &Path,
        config: &str,
        step: u64,
        start: Start,
    ) -> Result<Self, CheckpointError> {
        let lock = lock(path)?;
        write_whole(path, CONFIG, config.as_bytes())?;
        let mut info = Self::info(path)?;
        info.starts.push(start);
        write_info(path, &info)?;
        cut_metrics(path, step)?;
        Self::open(path, lock)
    }

    /// Goes back to the end of `step`: metrics of later steps are dropped.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn rewind(&mut self, step: u64) -> Result<(), CheckpointError> {
        self.flush()?;
        cut_metrics(&self.path, step)?;
        self.metrics = metrics(&self.path)?;
        self.each_sink(|sink| sink.rewound(step))
    }

    /// Makes the checkpoint of `step` the newest of a run that no process trains in: later ones are
    /// removed, with the lines of metrics.jsonl that belong to them.
    ///
    /// # Errors
    /// When there is no whole checkpoint of that step, or the run is in use.
    pub fn roll_back(path: &Path, step: u64) -> Result<Vec<PathBuf>, CheckpointError> {
        let _lock = lock(path)?;
        let all = checkpoint::by_age(path);
        let steps: Vec<u64> = all.iter().filter_map(|path| checkpoint::step_of(path)).collect();
        let Some(at) = steps.iter().position(|found| *found == step) else {
            let list: Vec<String> = steps.iter().map(u64::to_string).collect();
            let reason = format!("no checkpoint of step {step}; there are {}", list.join(", "));
            return Err(CheckpointError::Mismatch { path: path.to_owned(), reason });
        };
        checkpoint::load(&all[at])?;
        let later = &all[at + 1..];
        // The newest first: a kill on the way leaves a run that ends a little later.
        later.iter().rev().try_for_each(|path| checkpoint::remove(path))?;
        cut_metrics(path, step)?;
        Ok(later.to_vec())
    }

    fn open(path: &Path, lock: File) -> Result<Self, CheckpointError> {
        let (path, metrics) = (path.to_owned(), metrics(path)?);
        Ok(RunDir { path, metrics, sinks: Vec::new(), _lock: lock })
    }

    /// Its run.json.
    ///
    /// # Errors
    /// When it is missing or damaged.
    pub fn info(path: &Path) -> Result<RunInfo, CheckpointError> {
        let file = path.join(INFO);
        let text = fs::read(&file).map_err(CheckpointError::io("read", &file))?;
        serde_json::from_slice(&text)
            .map_err(|e| CheckpointError::Damaged { path: file, reason: e.to_string() })
    }

    /// The resolved configuration that the run was started with.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn config(path: &Path) -> Result<String, CheckpointError> {
        let file = path.join(CONFIG);
        fs::read_to_string(&file).map_err(CheckpointError::io("read", &file))
    }

    /// Writes plan.json: what was planned for the run.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write_plan(&self, plan: &Json) -> Result<(), CheckpointError> {
        write_whole(&self.path, PLAN, plan.to_string().as_bytes())
    }

    /// What was planned for a run.
    ///
    /// # Errors
    /// When it cannot be read; runs of earlier versions have none.
    pub fn plan(path: &Path) -> Result<Json, CheckpointError> {
        let file = path.join(PLAN);
        let text = fs::read(&file).map_err(CheckpointError::io("read", &file))?;
        serde_json::from_slice(&text)
            .map_err(|e| CheckpointError::Damaged { path: file, reason: e.to_string() })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Hands what is recorded from now on to `sink` too.
    pub fn attach(&mut self, sink: Box<dyn Sink>) {
        self.sinks.push(sink);
    }

    fn each_sink(
        &mut self,
        mut hand: impl FnMut(&mut dyn Sink) -> std::io::Result<()>,
    ) -> Result<(), CheckpointError> {
        let handed = self.sinks.iter_mut().try_for_each(|sink| hand(sink.as_mut()));
        handed.map_err(CheckpointError::io("write the records of", &self.path))
    }

    /// Whether a sink wants the parameters at validations.
    pub fn wants_weights(&self) -> bool {
        self.sinks.iter().any(|sink| sink.wants_weights())
    }

    /// The parameters after `step`, for the sinks.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn weights(&mut self, step: u64, tensors: &[NamedTensor]) -> Result<(), CheckpointError> {
        self.each_sink(|sink| sink.weights(step, tensors))
    }

    /// Appends one line to metrics.jsonl.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn record(&mut self, line: &Json) -> Result<(), CheckpointError> {
        let text = format!("{line}\n");
        self.metrics
            .write_all(text.as_bytes())
            .map_err(CheckpointError::io("write", self.path.join(METRICS)))?;
        self.each_sink(|sink| sink.record(line))
    }
}

impl RunDir {
    /// Hands all recorded lines to the system.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn flush(&mut self) -> Result<(), CheckpointError> {
        self.metrics.flush().map_err(CheckpointError::io("write", self.path.join(METRICS)))?;
        self.each_sink(|sink| sink.flush())
    }
}

/// The metrics of a run, to append to.
fn metrics(path: &Path) -> Result<BufWriter<File>, CheckpointError> {
    let file = path.join(METRICS);
    let open = OpenOptions::new().create(true).append(true).open(&file);
    Ok(BufWriter::new(open.map_err(CheckpointError::io("open", &file))?))
}

/// Drops the metrics of steps after `step`.
fn cut_metrics(path: &Path, step: u64) -> Result<(), CheckpointError> {
    let metrics = path.join(METRICS);
    let kept = match File::open(&metrics) {
        Ok(file) => kept_lines(file, step).map_err(CheckpointError::io("read", &metrics))?,
        Err(_) => String::new(),
    };
    write_whole(path, METRICS, kept.as_bytes())
}

/// Whole lines of a metrics file up to a step; a last line cut off by a kill is dropped.
fn kept_lines(file: File, step: u64) -> std::io::Result<String> {
    let mut kept = String::new();
    for line in BufReader::new(file).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        let at = serde_json::from_str::<Json>(&line).ok().and_then(|json| json["step"].as_u64());
        if at.is_some_and(|at| at <= step) {
            kept.push_str(&line);
            kept.push('\n');
        }
    }
    Ok(kept)
}

fn write_info(path: &Path, info: &RunInfo) -> Result<(), CheckpointError> {
    let text = serde_json::to_string_pretty(info)
        .map_err(|e| CheckpointError::Damaged { path: path.join(INFO), reason: e.to_string() })?;
    write_whole(path, INFO, text.as_bytes())
}

/// Writes a file so that a kill leaves the old one or the new one.
fn write_whole(folder: &Path, name: &str, content: &[u8]) -> Result<(), CheckpointError> {
    let (temporary, file) = (folder.join(format!(".{name}.new")), folder.join(name));
    let mut out = File::create(&temporary).map_err(CheckpointError::io("create", &temporary))?;
    out.write_all(content).map_err(CheckpointError::io("write", &temporary))?;
    out.sync_all().map_err(CheckpointError::io("sync", &temporary))?;
    fs::rename(&temporary, &file).map_err(CheckpointError::io("rename", &temporary))
}
