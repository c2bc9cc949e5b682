//! Metrics of numbers: mean absolute error, root mean squared error, coefficient of determination.

use super::classes::mean;
use super::{Accumulator, Batch, Value};

/// The mean of a function of the errors, under another one.
#[derive(Debug)]
pub struct Errors {
    of_error: fn(f64) -> f64,
    of_mean: fn(f64) -> f64,
    total: f64,
    all: u64,
}

impl Errors {
    /// `of_mean` of the mean of `of_error`.
    pub fn new(of_error: fn(f64) -> f64, of_mean: fn(f64) -> f64) -> Self {
        Errors { of_error, of_mean, total: 0.0, all: 0 }
    }
}

impl Accumulator for Errors {
    fn update(&mut self, batch: &Batch<'_>) {
        let Batch::Numbers { values, targets, .. } = *batch else { return };
        for (value, target) in values.iter().zip(targets) {
            self.total += (self.of_error)(f64::from(*value) - f64::from(*target));
            self.all += 1;
        }
    }

    fn value(&self) -> Value {
        match self.all {
            0 => Value::Undefined,
            all => Value::Number((self.of_mean)(self.total / all as f64)),
        }
    }
}

/// One output's targets so far, by Welford's update, and the squared errors.
#[derive(Clone, Copy, Debug, Default)]
struct Spread {
    count: f64,
    mean: f64,
    square: f64,
    residual: f64,
}

/// 1 − Σ (y − x)² / Σ (y − mean y)² of each output, and then the mean; outputs whose targets are all
/// equal are left out.
#[derive(Debug, Default)]
pub struct Determination {
    outputs: Vec<Spread>,
}

impl Accumulator for Determination {
    fn update(&mut self, batch: &Batch<'_>) {
        let Batch::Numbers { values, outputs, targets } = *batch else { return };
        self.outputs.resize(outputs, Spread::default());
        for (at, (value, target)) in values.iter().zip(targets).enumerate() {
            let (value, target) = (f64::from(*value), f64::from(*target));
            let spread = &mut self.outputs[at % outputs];
            spread.count += 1.0;
            let before = target - spread.mean;
            spread.mean += before / spread.count;
            spread.square += before * (target - spread.mean);
            spread.residual += (target - value) * (target - value);
        }
    }

    fn value(&self) -> Value {
        let spread = self.outputs.iter().filter(|spread| spread.square > 0.0);
        let values: Vec<f64> = spread.map(|s| 1.0 - s.residual / s.square).collect();
        mean(&values)
    }
}
