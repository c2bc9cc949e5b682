//! Permutations that are computed, not stored: the place of every element is a function of the
//! key, so a run can begin anywhere.

use crate::ops::philox;

/// Rounds of the network; four are the least for a pseudo-random permutation (Luby and Rackoff
/// 1988).
const ROUNDS: u32 = 6;

/// A permutation of `0..len`: a Feistel network on the next even number of bits, walked until the
/// value is in range (Black and Rogaway 2002).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Permutation {
    len: u64,
    half: u32,
    seed: u64,
    key: u64,
}

impl Permutation {
    /// The permutation of `len` elements for a seed and a key such as the epoch.
    pub(super) fn new(len: usize, seed: u64, key: u64) -> Self {
        let bits = u64::BITS - (len.max(2) as u64 - 1).leading_zeros();
        Permutation { len: len as u64, half: bits.div_ceil(2), seed, key }
    }

    /// The element at `place`, below `len`.
    pub(super) fn at(&self, place: usize) -> usize {
        let mut value = self.round_trip(place as u64);
        while value >= self.len {
            value = self.round_trip(value);
        }
        value as usize
    }

    fn round_trip(&self, value: u64) -> u64 {
        let mask = (1 << self.half) - 1;
        let (mut left, mut right) = (value >> self.half, value & mask);
        let key = [self.seed as u32, (self.seed >> 32) as u32];
        for round in 0..ROUNDS {
            let counter = [right as u32, round, self.key as u32, (self.key >> 32) as u32];
            let word = philox::block(counter, key)[0];
            (left, right) = (right, left ^ (u64::from(word) & mask));
        }
        (left << self.half) | right
    }
}

#[cfg(test)]
mod tests {
    use super::Permutation;

    #[test]
    fn every_element_occurs_once_and_keys_differ() {
        for len in [1, 2, 3, 7, 64, 100, 1797, 4097] {
            let mut seen = vec![false; len];
            let permutation = Permutation::new(len, 3, 5);
            (0..len).for_each(|place| seen[permutation.at(place)] = true);
            assert!(seen.iter().all(|s| *s), "{len} elements");
        }
        let list = |seed, key| -> Vec<usize> {
            let permutation = Permutation::new(1000, seed, key);
            (0..1000).map(|place| permutation.at(place)).collect()
        };
        assert_ne!(list(1, 0), list(1, 1));
        assert_ne!(list(1, 0), list(2, 0));
        assert_eq!(list(1, 0), list(1, 0));
        let fixed = list(1, 0).iter().enumerate().filter(|(a, b)| a == *b).count();
        assert!(fixed < 10, "{fixed} of 1,000 elements stayed in place");
    }
}
