//! Sources: one file each, from what is on disk to samples in memory.

mod cifar10;
mod csv;
mod idx;
mod synthetic;
mod text;

use std::fs;
use std::io::Read;
use std::path::Path;

use super::DataError;
use super::dataset::{Content, Samples};
use crate::config::data::{Normalize, Source};
use crate::graph::TensorType;
use crate::layers::InputSpec;

/// Reads a source. `like` is the training set for a held-out one, which takes its vocabulary and
/// its classes from there.
pub(super) fn open(
    source: &Source,
    normalize: Option<&Normalize>,
    like: Option<&Content>,
) -> Result<Content, DataError> {
    match source {
        Source::Idx(options) => idx::open(options, normalize, like),
        Source::Cifar10(options) => cifar10::open(options, normalize, like),
        Source::Csv(options) => csv::open(options, like),
        Source::Text(options) => text::open(options, like),
        Source::Synthetic(options) => synthetic::open(options, normalize),
    }
}

/// A file's bytes; gunzipped where it begins like a gzip file.
fn read(path: &Path) -> Result<Vec<u8>, DataError> {
    let failed = |error| DataError::Read { path: path.to_owned(), error };
    let bytes = fs::read(path).map_err(failed)?;
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes);
    }
    let mut whole = Vec::new();
    flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_end(&mut whole).map_err(failed)?;
    Ok(whole)
}

fn spec(name: &str, sample: TensorType) -> InputSpec {
    InputSpec { name: name.into(), sample }
}

/// `(scale, shift)` of each channel so that byte · scale + shift is
/// (byte / divisor − mean) / std.
fn channels(
    count: usize,
    divisor: f64,
    normalize: Option<&Normalize>,
) -> Result<Vec<(f32, f32)>, DataError> {
    let Some(normalize) = normalize else {
        return Ok(vec![((1.0 / divisor) as f32, 0.0); count]);
    };
    if normalize.mean.len() != count {
        return Err(DataError::Unfit(format!(
            "`data.normalize` is for {} channels, and the images have {count}",
            normalize.mean.len()
        )));
    }
    let pairs = normalize.mean.iter().zip(&normalize.std);
    Ok(pairs.map(|(mean, std)| ((1.0 / (divisor * std)) as f32, (-mean / std) as f32)).collect())
}

/// What pixels are divided by: as it was given, or as those of the training set are.
fn divisor(given: Option<f64>, like: Option<&Content>) -> f64 {
    let trained_on = match like.map(|content| &content.samples) {
        Some(Samples::Images { divisor, .. }) => Some(*divisor),
        _ => None,
    };
    given.or(trained_on).unwrap_or(255.0)
}

fn number_names(classes: usize) -> Vec<String> {
    (0..classes).map(|class| class.to_string()).collect()
}
