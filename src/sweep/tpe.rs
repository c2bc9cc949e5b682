//! Tree-structured Parzen estimator (Bergstra, Bardenet, Bengio and Kégl 2011): of candidates drawn
//! from the density l of good trials' values, the one where l is largest against the density g of
//! the others. Shares, widths and numbers as in Optuna (Akiba et al. 2019).

use super::space::{Observed, Values, assemble, at, list, place, random, unit};
use crate::config::sweep::{Parameter, Sweep};

/// Trials drawn at random first.
const STARTUP: usize = 10;
/// Candidates of each key.
const CANDIDATES: usize = 24;
/// One in this many trials is good, and at most `MOST_GOOD`.
const ONE_GOOD_IN: usize = 10;
const MOST_GOOD: usize = 25;
/// What a density is at least, so that a ratio of two exists.
const LEAST_DENSITY: f64 = 1e-12;

/// The values of a trial; `observed` are the trials that have ended, the best first.
pub fn draw(sweep: &Sweep, trial: usize, observed: &[Observed]) -> Values {
    if observed.len() < STARTUP {
        return random(sweep, trial);
    }
    let good = observed.len().div_ceil(ONE_GOOD_IN).min(MOST_GOOD);
    let (good, others) = observed.split_at(good);
    assemble(sweep, |key, parameter| {
        let places = |trials: &[Observed]| -> Vec<f64> {
            // Trials without the key say nothing of it.
            let values = trials.iter().filter_map(|trial| trial.values.get(key));
            values.filter_map(|value| place(parameter, value)).collect()
        };
        let (l, g) = (Density::of(parameter, places(good)), Density::of(parameter, places(others)));
        let candidates = (0..CANDIDATES).map(|candidate| {
            let draws = ["component", "place"]
                .map(|what| unit(sweep.seed, trial, &format!("{key}/{candidate}/{what}")));
            l.draw(draws)
        });
        let worth = |x: &f64| l.at(*x).max(LEAST_DENSITY).ln() - g.at(*x).max(LEAST_DENSITY).ln();
        let best = candidates.max_by(|a, b| worth(a).total_cmp(&worth(b)));
        at(parameter, best.unwrap_or(0.5))
    })
}

/// A density over [0, 1].
enum Density {
    /// Normal distributions cut off at 0 and 1, as centres and widths; of values in an ordered
    /// list of this many, 0 for none.
    Parzen(Vec<[f64; 2]>, usize),
    /// The shares of the values of a list without order.
    Shares(Vec<f64>),
}

impl Density {
    fn of(parameter: &Parameter, mut places: Vec<f64>) -> Self {
        let values = list(parameter).len();
        if parameter.choice.is_some() {
            let mut counts = vec![1.0 / values as f64; values];
            places.iter().for_each(|place| counts[index(*place, values)] += 1.0);
            let total: f64 = counts.iter().sum();
            return Density::Shares(counts.into_iter().map(|count| count / total).collect());
        }
        // The prior is one more component in the middle, as wide as the range.
        let narrowest = 1.0 / (places.len() as f64 + 2.0).min(100.0);
        places.push(0.5);
        let prior = places.len() - 1;
        let mut order: Vec<usize> = (0..places.len()).collect();
        order.sort_by(|a, b| places[*a].total_cmp(&places[*b]));
        let components = order.iter().enumerate().map(|(rank, at)| {
            let left = rank.checked_sub(1).map_or(0.0, |left| places[order[left]]);
            let right = order.get(rank + 1).map_or(1.0, |right| places[*right]);
            let gap = (places[*at] - left).max(right - places[*at]);
            let width = if *at == prior { 1.0 } else { gap.clamp(narrowest, 1.0) };
            [places[*at], width]
        });
        Density::Parzen(components.collect(), values)
    }

    /// A draw by two numbers in [0, 1).
    fn draw(&self, [which, place]: [f64; 2]) -> f64 {
        match self {
            Density::Parzen(components, values) => {
                let [centre, width] = components[index(which, components.len())];
                let [low, high] = [0.0, 1.0].map(|x| normal((x - centre) / width));
                let wanted = low + place * (high - low);
                let (mut below, mut above) = (0.0, 1.0);
                for _ in 0..50 {
                    let middle = 0.5 * (below + above);
                    match normal((middle - centre) / width) < wanted {
                        true => below = middle,
                        false => above = middle,
                    }
                }
                match values {
                    0 => below,
                    values => (index(below, *values) as f64 + 0.5) / *values as f64,
                }
            }
            Density::Shares(shares) => {
                let mut left = which;
                let found = shares.iter().position(|share| {
                    left -= share;
                    left < 0.0
                });
                (found.unwrap_or(shares.len() - 1) as f64 + 0.5) / shares.len() as f64
            }
        }
    }

    fn at(&self, x: f64) -> f64 {
        match self {
            Density::Shares(shares) => shares[index(x, shares.len())],
            Density::Parzen(components, values) => {
                let of = |[centre, width]: &[f64; 2]| {
                    let below = |x: f64| normal((x - centre) / width);
                    let whole = below(1.0) - below(0.0);
                    if *values == 0 {
                        let z = (x - centre) / width;
                        let norm = width * (2.0 * std::f64::consts::PI).sqrt();
                        return (-0.5 * z * z).exp() / norm / whole;
                    }
                    let half = 0.5 / *values as f64;
                    (below(x + half) - below(x - half)) / whole
                };
                components.iter().map(of).sum::<f64>() / components.len() as f64
            }
        }
    }
}

/// Which of `count` equal shares of [0, 1] a place lies in.
fn index(place: f64, count: usize) -> usize {
    ((place * count as f64) as usize).min(count - 1)
}

/// The normal distribution function, to 10⁻⁷ (Abramowitz and Stegun 1964, 7.1.26).
fn normal(z: f64) -> f64 {
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let series = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    let tail = series.iter().fold(0.0, |sum, a| (sum + a) * t) * (-x * x).exp();
    if z < 0.0 { 0.5 * tail } else { 1.0 - 0.5 * tail }
}
