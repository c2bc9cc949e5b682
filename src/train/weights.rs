//! First values of parameters and states from a file that another program may have written.

use std::collections::BTreeMap;
use std::path::Path;

use half::{bf16, f16};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use sha2::{Digest, Sha256};

use crate::config::Config;
use crate::config::pattern::{fits, rename};
use crate::config::weights::Weights;
use crate::device::{DeviceError, Executor};
use crate::graph::Shape;
use crate::plan::Slot;

use super::compile::Compiled;
use super::model_io;

/// Why a file's tensors are not the model's.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// The file cannot be read, or does not fit the model: all differences are listed.
    #[error("`weights`: {0}")]
    Unfit(String),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

fn unfit(path: &Path, reason: impl std::fmt::Display) -> WeightsError {
    WeightsError::Unfit(format!("{}: {reason}", path.display()))
}

/// Writes the first values of all parameters and states: drawn from the seed, then those of the
/// file that `weights` names, if it does. Returns what was left as it was because `strict` is off,
/// in words.
///
/// # Errors
/// When the file cannot be read, or names or shapes differ: then all differences are listed, and
/// nothing of it is written.
pub fn first_values(
    executor: &mut dyn Executor,
    compiled: &Compiled,
    config: &Config,
) -> Result<Vec<String>, WeightsError> {
    model_io::initialise(executor, compiled, config.seed)?;
    match &config.weights {
        Some(weights) => load(executor, compiled, weights),
        None => Ok(Vec::new()),
    }
}

fn load(
    executor: &mut dyn Executor,
    compiled: &Compiled,
    weights: &Weights,
) -> Result<Vec<String>, WeightsError> {
    let Matched { found, left } = matched(compiled, weights)?;
    for (slot, values) in found {
        executor.write(slot, bytemuck::cast_slice(&values))?;
    }
    model_io::start_averages(executor, compiled)?;
    Ok(left)
}

/// Holds a file of weights against the model, without a device.
///
/// # Errors
/// When [`first_values`] would refuse it.
pub fn check(compiled: &Compiled, weights: &Weights) -> Result<(), WeightsError> {
    matched(compiled, weights).map(|_| ())
}

/// The SHA-256 of a file of weights, in hexadecimal.
///
/// # Errors
/// When it cannot be read.
pub fn sha256(weights: &Weights) -> Result<String, WeightsError> {
    let content = std::fs::read(&weights.path).map_err(|error| unfit(&weights.path, error))?;
    Ok(Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What a file gives a model.
struct Matched {
    /// Where the values go that were found.
    found: Vec<(Slot, Vec<f32>)>,
    /// What was left as it was, in words.
    left: Vec<String>,
}

fn matched(compiled: &Compiled, weights: &Weights) -> Result<Matched, WeightsError> {
    let path = &weights.path;
    let content = std::fs::read(path).map_err(|error| unfit(path, error))?;
    let file = SafeTensors::deserialize(&content)
        .map_err(|error| unfit(path, format!("this is no safetensors file: {error}")))?;
    let mut given = named(&file, weights)?;
    let (mut missing, mut misshaped, mut found) = (Vec::new(), Vec::new(), Vec::new());
    for (placed, page) in model_io::places(compiled) {
        let (name, shape) = (&placed.spec.name, &placed.spec.shape);
        match given.remove(name) {
            None => missing.push(format!("`{name}` {shape}")),
            Some((_, view)) if view.shape() != shape.dims() => misshaped.push(format!(
                "`{name}` is {} in the file, {shape} in the model",
                Shape::new(view.shape())
            )),
            Some((_, view)) => found.push((placed.slot(page), floats(path, name, &view)?)),
        }
    }
    let unexpected: Vec<String> = given
        .into_iter()
        .map(|(ours, (theirs, view))| {
            let renamed = if ours == theirs { String::new() } else { format!(", as `{ours}`") };
            format!("`{theirs}` {}{renamed}", Shape::new(view.shape()))
        })
        .collect();
    let lists: Vec<String> =
        [("missing", missing), ("unexpected", unexpected), ("misshaped", misshaped)]
            .into_iter()
            .filter(|(_, list)| !list.is_empty())
            .map(|(kind, list)| format!("{kind}:\n    {}", list.join("\n    ")))
            .collect();
    let fatal = |list: &String| weights.strict || list.starts_with("misshaped");
    if lists.iter().any(fatal) {
        let list = lists.join("\n  ");
        return Err(unfit(path, format!("its tensors are not the model's\n  {list}")));
    }
    if found.is_empty() {
        let list = lists.join("\n  ");
        return Err(unfit(path, format!("none of its tensors is the model's\n  {list}")));
    }
    Ok(Matched { found, left: lists })
}

/// A file's tensors by the names that they have in the model, each with its own name.
fn named<'f>(
    file: &'f SafeTensors<'f>,
    weights: &Weights,
) -> Result<BTreeMap<String, (String, TensorView<'f>)>, WeightsError> {
    let path = &weights.path;
    let mut names = file.names();
    names.retain(|name| !is_counter(name));
    names.sort_unstable();
    for theirs in weights.map.keys() {
        if !names.iter().any(|name| fits(theirs, name)) {
            let reason = format!("`{theirs}` in `weights.map` fits no tensor of the file");
            return Err(unfit(path, reason));
        }
    }
    let mut given = BTreeMap::new();
    for theirs in names {
        let patterns = weights.map.iter().filter(|(pattern, _)| fits(pattern, theirs));
        let longest = patterns.max_by_key(|(pattern, _)| pattern.len());
        let ours = longest.and_then(|(pattern, other)| rename(pattern, other, theirs));
        let ours = ours.unwrap_or(theirs.to_owned());
        let view = file.tensor(theirs).map_err(|error| unfit(path, error))?;
        if let Some((other, _)) = given.insert(ours.clone(), (theirs.to_owned(), view)) {
            let reason = format!("`{other}` and `{theirs}` would both be `{ours}`");
            return Err(unfit(path, reason));
        }
    }
    Ok(given)
}

/// PyTorch's count of a batch norm's batches, which nothing here depends on.
fn is_counter(name: &str) -> bool {
    name.rsplit('.').next() == Some("num_batches_tracked")
}

/// A tensor's elements in single precision.
fn floats(path: &Path, name: &str, view: &TensorView<'_>) -> Result<Vec<f32>, WeightsError> {
    let words = || view.data().chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    match view.dtype() {
        Dtype::F32 => Ok(bytemuck::pod_collect_to_vec(view.data())),
        Dtype::F16 => Ok(words().map(|bits| f16::from_bits(bits).to_f32()).collect()),
        Dtype::BF16 => Ok(words().map(|bits| bf16::from_bits(bits).to_f32()).collect()),
        other => Err(unfit(path, format!("`{name}` is of type {other:?}, not F32, F16 or BF16"))),
    }
}
