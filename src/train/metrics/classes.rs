//! Metrics of decisions: accuracy, precision, recall, F1, intersection over union, the confusion
//! matrix, and the target's rank.

use serde_json::json;

use super::{Accumulator, Batch, Value, largest};
use crate::config::metric::Average;

/// How often each class is, is named, and both. Yes-or-no answers are a class each.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    both: Vec<u64>,
    named: Vec<u64>,
    real: Vec<u64>,
    /// Decisions, and those that are right.
    all: u64,
    right: u64,
}

impl Counts {
    fn add(&mut self, batch: &Batch<'_>) {
        match *batch {
            Batch::Classes { logits, classes, targets } => {
                self.resize(classes);
                for (row, target) in logits.chunks_exact(classes).zip(targets) {
                    let named = largest(row);
                    self.named[named] += 1;
                    self.real[*target] += 1;
                    self.all += 1;
                    if named == *target {
                        self.both[named] += 1;
                        self.right += 1;
                    }
                }
            }
            Batch::Answers { logits, labels, targets } => {
                self.resize(labels);
                for (at, (logit, target)) in logits.iter().zip(targets).enumerate() {
                    let (label, named) = (at % labels, *logit > 0.0);
                    self.named[label] += u64::from(named);
                    self.real[label] += u64::from(*target);
                    self.both[label] += u64::from(named && *target);
                    self.all += 1;
                    self.right += u64::from(named == *target);
                }
            }
            Batch::Numbers { .. } => {}
        }
    }

    fn resize(&mut self, classes: usize) {
        for counts in [&mut self.both, &mut self.named, &mut self.real] {
            counts.resize(classes, 0);
        }
    }

    /// One value for each class by (both, named, real), averaged; `None` where classes of which
    /// there is nothing to say are left out and no other is there.
    fn averaged(&self, average: Average, ratio: fn(f64, f64, f64) -> f64) -> Value {
        let total = |counts: &[u64]| counts.iter().sum::<u64>() as f64;
        let of = |class: usize| {
            ratio(self.both[class] as f64, self.named[class] as f64, self.real[class] as f64)
        };
        let classes = 0..self.both.len();
        match average {
            Average::Micro => {
                let (both, named, real) =
                    (total(&self.both), total(&self.named), total(&self.real));
                Value::Number(ratio(both, named, real))
            }
            Average::PerClass => Value::Table(classes.map(of).collect()),
            Average::Macro => {
                let there = |class: &usize| self.named[*class] + self.real[*class] > 0;
                let values: Vec<f64> = classes.filter(there).map(of).collect();
                mean(&values)
            }
        }
    }

    /// The share of decisions that are right.
    pub fn accuracy(&self, _: Average) -> Value {
        match self.all {
            0 => Value::Undefined,
            all => Value::Number(self.right as f64 / all as f64),
        }
    }

    /// The share of those named that are.
    pub fn precision(&self, average: Average) -> Value {
        self.averaged(average, |both, named, _| share(both, named))
    }

    /// The share of those that are that are named.
    pub fn recall(&self, average: Average) -> Value {
        self.averaged(average, |both, _, real| share(both, real))
    }

    /// The harmonic mean of precision and recall, 2·both/(named + real).
    pub fn f1(&self, average: Average) -> Value {
        self.averaged(average, |both, named, real| share(2.0 * both, named + real))
    }

    /// both/(named + real − both).
    pub fn mean_iou(&self, average: Average) -> Value {
        self.averaged(average, |both, named, real| share(both, named + real - both))
    }
}

/// a/b; 0 where b is.
fn share(a: f64, b: f64) -> f64 {
    if b == 0.0 { 0.0 } else { a / b }
}

/// The mean of some values; undefined of none.
pub(super) fn mean(values: &[f64]) -> Value {
    match values.len() {
        0 => Value::Undefined,
        n => Value::Number(values.iter().sum::<f64>() / n as f64),
    }
}

/// A metric that is made of counts.
#[derive(Debug)]
pub struct Counted {
    counts: Counts,
    value: fn(&Counts, Average) -> Value,
    average: Average,
}

impl Counted {
    /// One value over all classes.
    pub fn new(value: fn(&Counts, Average) -> Value) -> Self {
        Self::averaged(value, Average::Macro)
    }

    /// With a choice of how classes are averaged.
    pub fn averaged(value: fn(&Counts, Average) -> Value, average: Average) -> Self {
        Counted { counts: Counts::default(), value, average }
    }
}

impl Accumulator for Counted {
    fn update(&mut self, batch: &Batch<'_>) {
        self.counts.add(batch);
    }

    fn value(&self) -> Value {
        (self.value)(&self.counts, self.average)
    }
}

/// How often each class (row) is taken for each (column): one matrix, or, of several yes-or-no
/// answers, one for each, no before yes.
#[derive(Debug, Default)]
pub struct Confusion {
    matrices: Vec<Vec<Vec<u64>>>,
}

impl Confusion {
    fn resize(&mut self, matrices: usize, classes: usize) {
        if self.matrices.is_empty() {
            self.matrices = vec![vec![vec![0; classes]; classes]; matrices];
        }
    }
}

impl Accumulator for Confusion {
    fn update(&mut self, batch: &Batch<'_>) {
        match *batch {
            Batch::Classes { logits, classes, targets } => {
                self.resize(1, classes);
                for (row, target) in logits.chunks_exact(classes).zip(targets) {
                    self.matrices[0][*target][largest(row)] += 1;
                }
            }
            Batch::Answers { logits, labels, targets } => {
                self.resize(labels, 2);
                for (at, (logit, target)) in logits.iter().zip(targets).enumerate() {
                    let named = usize::from(*logit > 0.0);
                    self.matrices[at % labels][usize::from(*target)][named] += 1;
                }
            }
            Batch::Numbers { .. } => {}
        }
    }

    fn value(&self) -> Value {
        match self.matrices.as_slice() {
            [] => Value::Undefined,
            [one] => Value::Table(json!(one)),
            several => Value::Table(json!(several)),
        }
    }
}

/// The share of targets among the k largest outputs; of equal ones the first counts as larger.
#[derive(Debug)]
pub struct TopK {
    k: usize,
    all: u64,
    hits: u64,
}

impl TopK {
    /// Among the `k` largest.
    pub fn new(k: usize) -> Self {
        TopK { k, all: 0, hits: 0 }
    }
}

impl Accumulator for TopK {
    fn update(&mut self, batch: &Batch<'_>) {
        let Batch::Classes { logits, classes, targets } = *batch else { return };
        for (row, target) in logits.chunks_exact(classes).zip(targets) {
            let own = row[*target];
            let before =
                |(at, value): &(usize, &f32)| **value > own || (**value == own && at < target);
            let rank = row.iter().enumerate().filter(before).count();
            self.all += 1;
            self.hits += u64::from(rank < self.k);
        }
    }

    fn value(&self) -> Value {
        match self.all {
            0 => Value::Undefined,
            all => Value::Number(self.hits as f64 / all as f64),
        }
    }
}
