//! Metrics of an order: area under the ROC curve, and average precision. They keep a score for
//! each sample and class.

use super::classes::mean;
use super::{Accumulator, Batch, Value};

/// The value of one class, from its scores and whether each is an example of it; `None` where that
/// has no meaning.
type OfClass = fn(&[(f32, bool)]) -> Option<f64>;

/// A metric of the order of scores, the mean over classes.
#[derive(Debug)]
pub struct Ranked {
    /// For each class, what each sample scores and whether it is one.
    scores: Vec<Vec<(f32, bool)>>,
    of_class: OfClass,
}

impl Ranked {
    /// By the value of one class.
    pub fn new(of_class: OfClass) -> Self {
        Ranked { scores: Vec::new(), of_class }
    }
}

/// The logarithm of class c's probability, −log(1 + Σ e^(xⱼ − x_c) over the others): in the order of
/// the probabilities, but without ties where these are all but 0 or 1.
fn log_probability(row: &[f32], class: usize) -> f32 {
    let own = f64::from(row[class]);
    let others = row.iter().enumerate().filter(|(at, _)| *at != class);
    let rest: f64 = others.map(|(_, x)| (f64::from(*x) - own).exp()).sum();
    -rest.ln_1p() as f32
}

impl Accumulator for Ranked {
    fn update(&mut self, batch: &Batch<'_>) {
        match *batch {
            // Of two classes, the order of the second one is that of the first turned round.
            Batch::Classes { logits, classes, targets } => {
                let first = usize::from(classes == 2);
                self.scores.resize(classes - first, Vec::new());
                for (row, target) in logits.chunks_exact(classes).zip(targets) {
                    for (class, scores) in (first..classes).zip(&mut self.scores) {
                        scores.push((log_probability(row, class), class == *target));
                    }
                }
            }
            Batch::Answers { logits, labels, targets } => {
                self.scores.resize(labels, Vec::new());
                for (at, (logit, target)) in logits.iter().zip(targets).enumerate() {
                    self.scores[at % labels].push((*logit, *target));
                }
            }
            Batch::Numbers { .. } => {}
        }
    }

    fn value(&self) -> Value {
        let values: Vec<f64> = self.scores.iter().filter_map(|s| (self.of_class)(s)).collect();
        mean(&values)
    }
}

/// Runs of equal scores, from the largest down: how many samples each has, and how many examples.
fn runs(scores: &[(f32, bool)]) -> Vec<(u64, u64)> {
    let mut sorted = scores.to_vec();
    sorted.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
    let count = |run: &[(f32, bool)]| (run.len() as u64, run.iter().filter(|s| s.1).count() as u64);
    sorted.chunk_by(|a, b| a.0 == b.0).map(count).collect()
}

/// The share of pairs of an example and another sample in which the example has the larger score;
/// equal ones count half.
pub fn roc_auc(scores: &[(f32, bool)]) -> Option<f64> {
    let examples = scores.iter().filter(|score| score.1).count() as u64;
    let others = scores.len() as u64 - examples;
    let (mut above, mut won) = (0_u64, 0.0);
    for (samples, positive) in runs(scores) {
        let negative = samples - positive;
        won += negative as f64 * (above as f64 + positive as f64 / 2.0);
        above += positive;
    }
    (examples > 0 && others > 0).then(|| won / (examples as f64 * others as f64))
}

/// Σ precision · gain in recall, over the thresholds between unequal scores.
pub fn average_precision(scores: &[(f32, bool)]) -> Option<f64> {
    let examples = scores.iter().filter(|score| score.1).count();
    let (mut named, mut both, mut total) = (0_u64, 0_u64, 0.0);
    for (samples, positive) in runs(scores) {
        named += samples;
        both += positive;
        total += positive as f64 * both as f64 / named as f64;
    }
    (examples > 0).then(|| total / examples as f64)
}
