//! Samples drawn at random with replacement: the sample at a place of an epoch is a function of the
//! seed, the epoch and the place, so that a run can begin anywhere.

use std::path::Path;

use super::{DataError, Dataset, Task};
use crate::config::nearest::nearest;
use crate::config::sampling::{Sampling, Weighted};
use crate::ops::philox;

/// Stream of the draws.
const STREAM: u32 = 0x5341_4d50;

/// Draws samples in proportion to their weights.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sampler {
    /// Sums of the weights of samples up to each.
    sums: Vec<f64>,
    key: [u32; 2],
    /// Samples of an epoch.
    epoch_len: usize,
}

impl Sampler {
    /// The sampler of a set.
    ///
    /// # Errors
    /// When the set has no classes, a class of that name does not exist, or weights cannot be read
    /// or are not those of its samples.
    pub(super) fn new(rule: &Sampling, set: &Dataset, seed: u64) -> Result<Self, DataError> {
        let (weights, samples) = match rule {
            Sampling::Balanced(balanced) => (balanced_weights(set)?, balanced.samples),
            Sampling::Weighted(weighted) => (weights(weighted, set)?, weighted.samples),
        };
        let mut total = 0.0;
        let add = |weight: f64| {
            total += weight;
            total
        };
        let sums: Vec<f64> = weights.into_iter().map(add).collect();
        if !(total.is_finite() && total > 0.0) {
            let reason = format!("the weights of `data.sampling` add up to {total}");
            return Err(DataError::Unfit(reason));
        }
        let epoch_len = samples.unwrap_or(set.len());
        Ok(Sampler { sums, key: [seed as u32, (seed >> 32) as u32], epoch_len })
    }

    /// Samples of an epoch.
    pub(super) fn epoch_len(&self) -> usize {
        self.epoch_len
    }

    /// The sample at a place of an epoch.
    pub(super) fn at(&self, epoch: u64, place: usize) -> usize {
        let counter = [place as u32, epoch as u32, STREAM, (place as u64 >> 32) as u32];
        let words = philox::block(counter, self.key);
        let bits = (u64::from(words[0]) << 21) | u64::from(words[1] >> 11);
        let total = self.sums.last().copied().unwrap_or(0.0);
        let drawn = bits as f64 * f64::powi(2.0, -53) * total;
        let found = self.sums.partition_point(|sum| *sum <= drawn);
        // Rounding may have taken the draw to the total itself.
        found.min(self.sums.partition_point(|sum| *sum < total))
    }
}

/// The class of each sample of a set.
fn classes(set: &Dataset) -> Result<Vec<usize>, DataError> {
    let class = |id| set.class_of(id);
    (0..set.len()).map(class).collect::<Option<_>>().ok_or_else(|| {
        let reason = "`data.sampling` by classes is for data with one class a sample";
        DataError::Unfit(reason.into())
    })
}

fn balanced_weights(set: &Dataset) -> Result<Vec<f64>, DataError> {
    let classes = classes(set)?;
    let mut counts = vec![0u64; set.classes().unwrap_or(0)];
    classes.iter().for_each(|class| counts[*class] += 1);
    Ok(classes.into_iter().map(|class| 1.0 / counts[class] as f64).collect())
}

fn weights(weighted: &Weighted, set: &Dataset) -> Result<Vec<f64>, DataError> {
    if let Some(path) = &weighted.path {
        let weights = read(path, set.source_len())?;
        return Ok((0..set.len()).map(|id| weights[set.source_number(id)]).collect());
    }
    let classes = classes(set)?;
    let Task::Classification { names, .. } = set.task() else {
        return Ok(vec![1.0; classes.len()]);
    };
    let mut of_class = vec![1.0; names.len()];
    for (name, weight) in weighted.classes.iter().flatten() {
        let Some(at) = names.iter().position(|known| known == name) else {
            let hint = nearest(name, names.iter().map(String::as_str))
                .map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            let reason = format!("`data.sampling`: there is no class `{name}`{hint}");
            return Err(DataError::Unfit(reason));
        };
        of_class[at] = *weight;
    }
    Ok(classes.into_iter().map(|class| of_class[class]).collect())
}

/// The weights of a file, one a line, as many as the source has samples.
fn read(path: &Path, samples: usize) -> Result<Vec<f64>, DataError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| DataError::Read { path: path.to_owned(), error })?;
    let weight = |(at, line): (usize, &str)| {
        let number = line.trim().parse::<f64>().ok().filter(|w| w.is_finite() && *w >= 0.0);
        number.ok_or_else(|| {
            let reason =
                format!("line {}: expected a weight of at least 0, found `{line}`", at + 1);
            DataError::content(path, reason)
        })
    };
    let weights: Vec<f64> = text.lines().enumerate().map(weight).collect::<Result<_, _>>()?;
    if weights.len() != samples {
        let reason = format!("{} weights, but `data.train` has {samples} samples", weights.len());
        return Err(DataError::content(path, reason));
    }
    Ok(weights)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests;
