//! Expected calibration error: Σ |accuracy − confidence| · share over bins of confidence of equal
//! width (Guo et al. 2017).

use super::{Accumulator, Batch, Value, largest};

/// The gaps of the bins.
#[derive(Debug)]
pub struct Calibration {
    /// For each bin Σ (right − confidence).
    gaps: Vec<f64>,
    all: u64,
}

impl Calibration {
    /// With this many bins.
    pub fn new(bins: usize) -> Self {
        Calibration { gaps: vec![0.0; bins], all: 0 }
    }

    fn add(&mut self, confidence: f64, right: bool) {
        let bins = self.gaps.len();
        let bin = (confidence * bins as f64).ceil() as usize;
        self.gaps[bin.clamp(1, bins) - 1] += f64::from(u8::from(right)) - confidence;
        self.all += 1;
    }
}

impl Accumulator for Calibration {
    fn update(&mut self, batch: &Batch<'_>) {
        match *batch {
            Batch::Classes { logits, classes, targets } => {
                for (row, target) in logits.chunks_exact(classes).zip(targets) {
                    let named = largest(row);
                    let below = row.iter().map(|x| f64::from(*x) - f64::from(row[named]));
                    let total: f64 = below.map(f64::exp).sum();
                    self.add(1.0 / total, named == *target);
                }
            }
            Batch::Answers { logits, targets, .. } => {
                for (logit, target) in logits.iter().zip(targets) {
                    self.add(1.0 / (1.0 + (-f64::from(*logit)).exp()), *target);
                }
            }
            Batch::Numbers { .. } => {}
        }
    }

    fn value(&self) -> Value {
        match self.all {
            0 => Value::Undefined,
            all => Value::Number(self.gaps.iter().map(|gap| gap.abs()).sum::<f64>() / all as f64),
        }
    }
}
