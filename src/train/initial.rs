//! First values of parameters: a function of the seed and the parameter's name, nothing else.

use sha2::{Digest, Sha256};

use crate::ops::philox;
use crate::plan::Init;

/// Draws `count` values.
pub fn draw(init: &Init, name: &str, count: usize, seed: u64) -> Vec<f32> {
    let mut numbers = Stream::new(name, seed);
    match init {
        Init::Constant(value) => vec![*value; count],
        Init::Uniform(bound) => {
            (0..count).map(|_| (*bound as f64 * (2.0 * numbers.uniform() - 1.0)) as f32).collect()
        }
        Init::Normal { mean, std } => {
            (0..count).map(|_| (*mean as f64 + *std as f64 * numbers.normal()) as f32).collect()
        }
        Init::TruncNormal { mean, std } => (0..count)
            .map(|_| {
                loop {
                    let z = numbers.normal();
                    if z.abs() <= 2.0 {
                        break (*mean as f64 + *std as f64 * z) as f32;
                    }
                }
            })
            .collect(),
        Init::ZerosWithin(init, zeros) => {
            let mut values = draw(init, name, count, seed);
            values[zeros.clone()].fill(0.0);
            values
        }
    }
}

/// Random numbers of one parameter: Philox keyed by the seed, the name's hash as the high half of
/// the counter.
struct Stream {
    key: [u32; 2],
    name: [u32; 2],
    counter: u64,
    block: [u32; 4],
    used: usize,
}

impl Stream {
    fn new(name: &str, seed: u64) -> Self {
        let hash = Sha256::digest(name.as_bytes());
        let word =
            |at: usize| u32::from_le_bytes([hash[at], hash[at + 1], hash[at + 2], hash[at + 3]]);
        Stream {
            key: [seed as u32, (seed >> 32) as u32],
            name: [word(0), word(4)],
            counter: 0,
            block: [0; 4],
            used: 4,
        }
    }

    fn word(&mut self) -> u32 {
        if self.used == 4 {
            let counter =
                [self.counter as u32, (self.counter >> 32) as u32, self.name[0], self.name[1]];
            self.block = philox::block(counter, self.key);
            self.counter += 1;
            self.used = 0;
        }
        self.used += 1;
        self.block[self.used - 1]
    }

    /// Uniform in [0, 1) with 53 bits.
    fn uniform(&mut self) -> f64 {
        let (high, low) = (u64::from(self.word()), u64::from(self.word()));
        ((high << 32 | low) >> 11) as f64 * f64::powi(2.0, -53)
    }

    /// Standard normal (Box & Muller 1958).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_within_change_no_other_value() {
        let normal = Init::Normal { mean: 0.0, std: 1.0 };
        let whole = draw(&normal, "l.weight", 12, 7);
        let holed = draw(&Init::ZerosWithin(Box::new(normal), 4..8), "l.weight", 12, 7);
        assert_eq!((&holed[..4], &holed[8..]), (&whole[..4], &whole[8..]));
        assert_eq!(holed[4..8], [0.0; 4]);
    }
}
