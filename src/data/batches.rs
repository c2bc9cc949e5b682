//! Which samples each step takes: arithmetic in the step, so that a run can begin at any step.

use super::order::Permutation;
use crate::config::train::Train;

/// Key of the permutation of an epoch; keys below are taken by other uses of the seed.
const EPOCH_KEY: u64 = 1 << 32;

/// The division of epochs into windows (one optimizer step each) of micro-batches.
#[derive(Clone, Debug, PartialEq)]
pub struct Batches {
    len: usize,
    batch: usize,
    accumulate: usize,
    shuffle: bool,
    seed: u64,
    /// Micro-batches of an epoch.
    micros: usize,
}

/// Where a step begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The epoch, from 0.
    pub epoch: u64,
    /// Samples of the epoch that earlier steps took.
    pub cursor: u64,
}

impl Batches {
    /// The division of `len` samples. `drop_last` never drops the only batch.
    pub fn new(len: usize, train: &Train, seed: u64) -> Self {
        let batch = train.batch_size.min(len);
        let micros = if train.drop_last { len / batch } else { len.div_ceil(batch) };
        Batches { len, batch, accumulate: train.accumulate, shuffle: train.shuffle, seed, micros }
    }

    /// Optimizer steps of an epoch, the short last window included.
    pub fn steps_per_epoch(&self) -> u64 {
        self.micros.div_ceil(self.accumulate) as u64
    }

    /// The most micro-batches of a step.
    pub(super) fn accumulate(&self) -> usize {
        self.accumulate.min(self.micros)
    }

    /// Batch sizes that occur, the full one first.
    pub fn sizes(&self) -> Vec<usize> {
        let rest = self.len % self.batch;
        let short = (rest > 0 && self.micros * self.batch > self.len).then_some(rest);
        std::iter::once(self.batch).chain(short).collect()
    }

    /// Whether a step (from 1) is the last of its epoch.
    pub fn ends_epoch(&self, step: u64) -> bool {
        step.is_multiple_of(self.steps_per_epoch())
    }

    /// The epoch (from 0) of a step.
    pub fn epoch_of(&self, step: u64) -> u64 {
        (step - 1) / self.steps_per_epoch()
    }

    /// Where a step begins.
    pub fn position(&self, step: u64) -> Position {
        let window = (step - 1) % self.steps_per_epoch();
        let cursor = window * (self.accumulate * self.batch) as u64;
        Position { epoch: self.epoch_of(step), cursor }
    }

    /// Numbers of the samples of each micro-batch of a step.
    pub fn micros(&self, step: u64) -> Vec<Vec<usize>> {
        let Position { epoch, cursor } = self.position(step);
        let order = Permutation::new(self.len, self.seed, EPOCH_KEY + epoch);
        let first = cursor as usize / self.batch;
        (first..self.micros.min(first + self.accumulate))
            .map(|micro| {
                let places = micro * self.batch..self.len.min((micro + 1) * self.batch);
                places.map(|place| if self.shuffle { order.at(place) } else { place }).collect()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(batch_size: usize, accumulate: usize, drop_last: bool) -> Train {
        Train {
            epochs: Some(1),
            steps: None,
            batch_size,
            accumulate,
            clip_norm: None,
            clip_value: None,
            clip_adaptive: None,
            gradient_noise: None,
            eval_every_steps: None,
            drop_last,
            shuffle: true,
            threads: None,
        }
    }

    #[test]
    fn an_epoch_holds_every_sample_once_whatever_the_window() {
        for accumulate in [1, 2, 3, 7] {
            let batches = Batches::new(150, &settings(16, accumulate, false), 9);
            let mut seen = [0; 150];
            let steps = batches.steps_per_epoch();
            for step in 1..=steps {
                batches.micros(step).iter().flatten().for_each(|id| seen[*id] += 1);
            }
            assert!(seen.iter().all(|n| *n == 1));
            assert!(batches.ends_epoch(steps));
            assert_eq!(batches.position(steps + 1), Position { epoch: 1, cursor: 0 });
            assert_eq!(batches.sizes(), [16, 6]);
        }
    }

    #[test]
    fn the_short_batch_can_be_dropped_unless_it_is_the_only_one() {
        let batches = Batches::new(150, &settings(16, 1, true), 9);
        assert_eq!((batches.steps_per_epoch(), batches.sizes()), (9, vec![16]));
        let batches = Batches::new(5, &settings(16, 1, true), 9);
        assert_eq!((batches.steps_per_epoch(), batches.sizes()), (1, vec![5]));
    }
}
