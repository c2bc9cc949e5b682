//! The learning-rate range test (Smith 2017): training steps at a learning rate that grows from
//! step to step, until the loss diverges. Nothing is written; what it changes is on the device
//! alone.

use std::sync::Arc;

use crate::config::types::{Config, Precision};
use crate::data::{Batches, Dataset, Loader};
use crate::device::Executor;
use crate::plan::REPORT_HEAD;

use super::compile::Compiled;
use super::error::TrainError;
use super::step;

/// The loss has diverged when the mean of the last losses is this many times the least such mean.
const DIVERGED: f64 = 4.0;

/// Which rates are tried.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// The learning rate of the first step.
    pub start: f64,
    /// That of the last step.
    pub end: f64,
    /// Steps.
    pub steps: usize,
}

impl Range {
    /// The learning rate of try `index` (from 0): start · (end / start)^(index / (steps − 1)).
    pub fn rate(&self, index: usize) -> f64 {
        self.start * (self.end / self.start).powf(index as f64 / (self.steps - 1) as f64)
    }

    /// Steps on either side that a mean or a slope is taken over: a tenth of all.
    fn reach(&self) -> usize {
        (self.steps / 10).max(1)
    }
}

/// One try.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Point {
    /// The learning rate that the step's update had.
    pub lr: f64,
    /// The loss before that update.
    pub loss: f64,
    /// The mean of the losses around it, a tenth of the steps to either side, as far as there are
    /// any. It comes neither before nor after the loss itself, as a running mean would.
    pub smoothed: f64,
    /// Slope of the straight line through these losses over ln lr, by least squares; `None` where
    /// there are fewer to a side.
    pub slope: Option<f64>,
}

/// What the test found.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Found {
    /// The tries, at rising rates, up to where the loss diverged.
    pub points: Vec<Point>,
    /// Whether the loss diverged before the end of the range.
    pub diverged: bool,
}

/// Pairs of a rate and a loss, as they come.
#[derive(Debug, Default)]
struct Tries {
    tries: Vec<(f64, f64)>,
    least: Option<f64>,
}

impl Tries {
    /// Takes in the loss at `lr`; tells whether it has diverged, which ends the test.
    fn add(&mut self, lr: f64, loss: f64, reach: usize) -> bool {
        self.tries.push((lr, loss));
        let window = 2 * reach + 1;
        let recent = mean(&self.tries[self.tries.len().saturating_sub(window)..]);
        let least = self.least.map_or(recent, |least| least.min(recent));
        self.least = Some(least);
        least > 0.0 && recent > DIVERGED * least
    }

    fn found(&self, reach: usize, diverged: bool) -> Found {
        let point = |at: usize| {
            let (lr, loss) = self.tries[at];
            let end = (at + reach + 1).min(self.tries.len());
            let around = &self.tries[at.saturating_sub(reach)..end];
            let slope = (around.len() == 2 * reach + 1).then(|| slope(around));
            Point { lr, loss, smoothed: mean(around), slope }
        };
        Found { points: (0..self.tries.len()).map(point).collect(), diverged }
    }
}

fn mean(tries: &[(f64, f64)]) -> f64 {
    tries.iter().map(|(_, loss)| loss).sum::<f64>() / tries.len() as f64
}

/// Σ(xᵢ − x̄)(yᵢ − ȳ) / Σ(xᵢ − x̄)² of the losses y over x = ln lr.
fn slope(tries: &[(f64, f64)]) -> f64 {
    let (count, middle) = (tries.len() as f64, mean(tries));
    let centre = tries.iter().map(|(lr, _)| lr.ln()).sum::<f64>() / count;
    let (mut product, mut square) = (0.0, 0.0);
    for (lr, loss) in tries {
        let x = lr.ln() - centre;
        product += x * (loss - middle);
        square += x * x;
    }
    product / square
}

impl Found {
    /// The point with the least mean.
    pub fn least(&self) -> Option<&Point> {
        self.points.iter().min_by(|a, b| a.smoothed.total_cmp(&b.smoothed))
    }

    /// The point where the loss falls fastest; `None` where it never falls.
    pub fn steepest(&self) -> Option<&Point> {
        let slope = |point: &Point| point.slope.unwrap_or(0.0);
        let falling = self.points.iter().filter(|point| slope(point) < 0.0);
        falling.min_by(|a, b| slope(a).total_cmp(&slope(b)))
    }
}

/// Where the test begins, on which data.
#[derive(Debug)]
pub struct Trial<'a> {
    /// The configuration; its schedule is left aside.
    pub config: &'a Config,
    /// Its plan.
    pub compiled: &'a Compiled,
    /// The training set.
    pub train: Arc<Dataset>,
    /// Which samples each step takes.
    pub batches: Batches,
    /// The step before the first one.
    pub done: u64,
}

impl Trial<'_> {
    /// Runs the test on a device that has the weights to begin with.
    ///
    /// # Errors
    /// When a sample cannot be read, or the device fails. A loss or gradient that is not finite is
    /// a divergence.
    pub fn run(&self, executor: &mut dyn Executor, range: &Range) -> Result<Found, TrainError> {
        let (first, last) = (self.done + 1, self.done + range.steps as u64);
        let mut loader = Loader::start(self.train.clone(), self.batches.clone(), first, last);
        let (mut tries, reach) = (Tries::default(), range.reach());
        for (index, step) in (first..=last).enumerate() {
            let rate = range.rate(index);
            let batch = loader.next_step()?;
            let factors = self.compiled.factors(&batch);
            let globals = step::globals(self.config, self.compiled, rate, step);
            executor.submit(&step::runs(self.compiled, &batch, &factors, globals)?, step)?;
            for report in executor.reports(true)? {
                let [_, _, bad, weight] = report.values[..REPORT_HEAD] else { continue };
                let sums: Vec<f64> =
                    report.values[REPORT_HEAD..].iter().map(|v| f64::from(*v)).collect();
                let loss = self.compiled.statistics.objective(&sums);
                // In mixed precision, gradients that overflow only lower the loss scale.
                let overflow = bad > 0.0 && self.config.precision == Precision::F32;
                if !loss.is_finite() || overflow {
                    return Ok(tries.found(reach, true));
                }
                // A batch without any target that counts has no loss.
                if weight > 0.0 && tries.add(rate, loss, reach) {
                    return Ok(tries.found(reach, true));
                }
            }
            loader.recycle(batch);
        }
        Ok(tries.found(reach, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(losses: &[f64]) -> Found {
        let range = Range { start: 1e-4, end: 1.0, steps: losses.len() };
        let mut tries = Tries::default();
        let diverged = (losses.iter().enumerate())
            .any(|(index, loss)| tries.add(range.rate(index), *loss, range.reach()));
        tries.found(range.reach(), diverged)
    }

    #[test]
    fn rates_grow_by_one_factor_from_the_first_to_the_last() {
        let range = Range { start: 1e-5, end: 1e-1, steps: 5 };
        for (index, rate) in [1e-5, 1e-4, 1e-3, 1e-2, 1e-1].into_iter().enumerate() {
            assert!((range.rate(index) / rate - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn a_straight_line_over_the_logarithm_is_its_own_mean_and_slope() {
        let range = Range { start: 1e-4, end: 1.0, steps: 50 };
        let losses: Vec<f64> = (0..50).map(|i| 9.0 - 2.0 * range.rate(i).ln()).collect();
        let found = found(&losses);
        assert_eq!(found.points.iter().filter(|p| p.slope.is_none()).count(), 10);
        for point in found.points.iter().filter(|p| p.slope.is_some()) {
            assert!((point.smoothed - point.loss).abs() < 1e-9);
            assert!((point.slope.expect("a slope") + 2.0).abs() < 1e-9);
        }
    }

    #[test]
    fn the_steepest_fall_is_found_where_it_is_and_before_the_least() {
        // A fall around step 50 of a hundred, and a rise from step 75 on.
        let fall = |i: usize| 1.0 + 1.0 / (1.0 + ((i as f64 - 50.0) / 4.0).exp());
        let losses: Vec<f64> =
            (0..100).map(|i| fall(i) + if i > 75 { (i - 75) as f64 / 5.0 } else { 0.0 }).collect();
        let found = found(&losses);
        let at = |point: Option<&Point>| {
            found.points.iter().position(|p| Some(p) == point).expect("a point")
        };
        assert_eq!(at(found.steepest()), 50);
        assert!((60..=75).contains(&at(found.least())), "{}", at(found.least()));
    }

    #[test]
    fn divergence_ends_the_test_and_rising_losses_have_no_fall() {
        let mut losses = vec![1.0; 20];
        losses.extend([1e3; 20]);
        let diverged = found(&losses);
        assert!(diverged.diverged && diverged.points.len() == 21);
        let rising: Vec<f64> = (0..50).map(|i| 1.0 + 0.01 * f64::from(i)).collect();
        assert_eq!(found(&rising).steepest(), None);
        assert_eq!(found(&[]), Found::default());
    }
}
