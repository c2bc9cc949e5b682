//! Metrics that decide something: which checkpoint is best, and when to stop early. Both are
//! functions of what they remember and the newest value, so that a resumed run decides alike.

use crate::config::schedule::{ReduceOnPlateau, ThresholdMode};
use crate::config::train::{EarlyStop, KeepBest, Mode};

use super::checkpoint::{Best, Reduced, Waiting};

/// Values measured at one evaluation, such as `("valid/loss", 0.3)`.
pub type Metrics = Vec<(String, f64)>;

/// The value of a metric, if it was measured and is a number.
pub fn value(metrics: &Metrics, name: &str) -> Option<f64> {
    metrics.iter().find(|(n, _)| n == name).map(|(_, v)| *v).filter(|v| v.is_finite())
}

/// Updates the best value; tells whether there is a new one. Equal values are not better: the
/// earlier checkpoint stays.
pub fn update_best(best: &mut Option<Best>, rule: &KeepBest, metrics: &Metrics, step: u64) -> bool {
    let Some(new) = value(metrics, &rule.metric) else { return false };
    // A value of another metric, from before the rule was changed, does not count.
    let known = best.as_ref().filter(|old| old.metric == rule.metric);
    let better = known.is_none_or(|old| improves(rule.mode(), new, old.value, 0.0));
    if better {
        *best = Some(Best { metric: rule.metric.clone(), value: new, step });
    }
    better
}

/// Updates what early stopping remembers; tells whether to stop.
pub fn update_waiting(waiting: &mut Option<Waiting>, rule: &EarlyStop, metrics: &Metrics) -> bool {
    let Some(new) = value(metrics, &rule.metric) else { return false };
    match waiting {
        Some(old) if !improves(rule.mode(), new, old.best, rule.min_delta) => old.since += 1,
        _ => *waiting = Some(Waiting { best: new, since: 0 }),
    }
    is_over(waiting, rule)
}

/// Whether early stopping has ended the run.
pub fn is_over(waiting: &Option<Waiting>, rule: &EarlyStop) -> bool {
    waiting.as_ref().is_some_and(|w| w.since >= rule.patience as u64)
}

/// Updates what `reduce_on_plateau` remembers, as PyTorch's `ReduceLROnPlateau` does; `base` is the
/// optimizer's learning rate.
pub fn update_plateau(
    state: &mut Option<Reduced>,
    rule: &ReduceOnPlateau,
    base: f64,
    metrics: &Metrics,
) {
    let Some(new) = value(metrics, &rule.metric) else { return };
    let Some(state) = state else {
        *state = Some(Reduced { best: new, since: 0, cooldown: 0, factor: 1.0 });
        return;
    };
    let by = match rule.threshold_mode {
        ThresholdMode::Abs => rule.threshold,
        ThresholdMode::Rel => rule.threshold * state.best,
    };
    if improves(rule.mode(), new, state.best, by) {
        (state.best, state.since) = (new, 0);
    } else {
        state.since += 1;
    }
    if state.cooldown > 0 {
        (state.cooldown, state.since) = (state.cooldown - 1, 0);
    }
    if state.since > rule.patience as u64 {
        let old = base * state.factor;
        let lower = (old * rule.factor).max(rule.min_lr);
        if old - lower > rule.eps {
            state.factor = lower / base;
        }
        (state.cooldown, state.since) = (rule.cooldown as u64, 0);
    }
}

fn improves(mode: Mode, new: f64, old: f64, by: f64) -> bool {
    match mode {
        Mode::Min => new < old - by,
        Mode::Max => new > old + by,
    }
}
