//! Which samples each step takes: arithmetic in the step, so that a run can begin at any step.

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::Dataset;
use super::order::Permutation;
use super::sampling::Sampler;
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
    sampler: Option<Arc<Sampler>>,
    /// This process and how many there are: each takes its part of every micro-batch.
    rank: (usize, usize),
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
    /// The division of a training set.
    pub fn of(set: &Dataset, train: &Train, seed: u64) -> Self {
        let sampler = set.sampler().cloned();
        let len = sampler.as_ref().map_or(set.len(), |sampler| sampler.epoch_len());
        Batches { sampler, ..Self::new(len, train, seed) }
    }

    /// The part of process `rank` of `ranks`: micro-batches are those of a single process, cut into
    /// consecutive parts whose sizes differ by one at most.
    pub fn for_rank(self, rank: usize, ranks: usize) -> Self {
        Batches { rank: (rank, ranks.max(1)), ..self }
    }

    /// The division of `len` samples. `drop_last` never drops the only batch.
    fn new(len: usize, train: &Train, seed: u64) -> Self {
        let batch = train.batch_size.min(len);
        let micros = if train.drop_last { len / batch } else { len.div_ceil(batch) };
        let (accumulate, shuffle) = (train.accumulate, train.shuffle);
        Batches { len, batch, accumulate, shuffle, seed, micros, sampler: None, rank: (0, 1) }
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
        let mut sizes: Vec<usize> =
            std::iter::once(self.batch).chain(short).map(|n| self.part(0..n).len()).collect();
        sizes.retain(|size| *size > 0);
        sizes.dedup();
        sizes
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
        let order = self.order(epoch);
        let first = cursor as usize / self.batch;
        (first..self.micros.min(first + self.accumulate))
            .map(|micro| {
                let places = micro * self.batch..self.len.min((micro + 1) * self.batch);
                self.part(places).map(|place| order.at(place)).collect()
            })
            .collect()
    }

    /// This process's part of the places of a micro-batch.
    fn part(&self, places: Range<usize>) -> Range<usize> {
        let (rank, ranks) = self.rank;
        let cut = |rank: usize| places.start + places.len() * rank / ranks;
        cut(rank)..cut(rank + 1)
    }

    fn order(&self, epoch: u64) -> Order<'_> {
        match &self.sampler {
            Some(sampler) => Order::Drawn(sampler, epoch),
            None if self.shuffle => {
                Order::Permuted(Permutation::new(self.len, self.seed, EPOCH_KEY + epoch))
            }
            None => Order::Given,
        }
    }

    /// What tells the order of an epoch from others: the first 16 hexadecimal digits of the SHA-256
    /// of the numbers of its samples, as 64 bits each, little-endian.
    pub fn order_hash(&self, epoch: u64) -> String {
        const PIECE: usize = 1 << 18;
        let order = self.order(epoch);
        let mut hash = Sha256::new();
        for first in (0..self.len).step_by(PIECE) {
            let places = first..self.len.min(first + PIECE);
            let ids: Vec<u64> = places.into_par_iter().map(|at| order.at(at) as u64).collect();
            hash.update(bytemuck::cast_slice(&ids));
        }
        hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Which sample stands at each place of an epoch.
enum Order<'a> {
    Drawn(&'a Sampler, u64),
    Permuted(Permutation),
    Given,
}

impl Order<'_> {
    fn at(&self, place: usize) -> usize {
        match self {
            Order::Drawn(sampler, epoch) => sampler.at(*epoch, place),
            Order::Permuted(permutation) => permutation.at(place),
            Order::Given => place,
        }
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
    fn the_parts_of_all_processes_are_the_batches_of_one() {
        let whole = Batches::new(150, &settings(16, 2, false), 9);
        let parts: Vec<Batches> = (0..3).map(|rank| whole.clone().for_rank(rank, 3)).collect();
        for step in 1..=2 * whole.steps_per_epoch() {
            let of_ranks: Vec<_> = parts.iter().map(|part| part.micros(step)).collect();
            for (at, micro) in whole.micros(step).into_iter().enumerate() {
                let joined: Vec<usize> = of_ranks.iter().flat_map(|m| m[at].clone()).collect();
                assert_eq!(joined, micro);
                assert!(
                    of_ranks.iter().all(|m| parts.iter().any(|p| p.sizes().contains(&m[at].len())))
                );
            }
        }
        assert_eq!(parts[0].sizes(), [5, 2]);
        assert_eq!(whole.clone().for_rank(0, 8).sizes(), [2], "none of a batch of 6 is left for 0");
    }

    #[test]
    fn the_hash_of_an_order_tells_epochs_apart() {
        let batches = Batches::new(150, &settings(16, 1, false), 9);
        assert_eq!(batches.order_hash(3), batches.clone().order_hash(3));
        assert_ne!(batches.order_hash(3), batches.order_hash(4));
        let given = Train { shuffle: false, ..settings(16, 1, false) };
        let ids: Vec<u64> = (0..150).collect();
        let digest = Sha256::digest(bytemuck::cast_slice::<u64, u8>(&ids));
        let digits: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(Batches::new(150, &given, 9).order_hash(7), digits);
    }

    #[test]
    fn the_short_batch_can_be_dropped_unless_it_is_the_only_one() {
        let batches = Batches::new(150, &settings(16, 1, true), 9);
        assert_eq!((batches.steps_per_epoch(), batches.sizes()), (9, vec![16]));
        let batches = Batches::new(5, &settings(16, 1, true), 9);
        assert_eq!((batches.steps_per_epoch(), batches.sizes()), (1, vec![5]));
    }
}
