//! Learning rate as a closed form of the step, so that resuming is arithmetic.

use crate::config::optimizer::Schedule;

/// The learning rate of optimizer step `step` (from 1) of a run of `total` steps, for a base rate
/// `base`.
///
/// During the first `warmup_steps` steps w it is `base · step / w`. After that, with t the steps
/// since (from 0) and T the steps after warm-up: constant `base`; cosine
/// `min + (base − min)·(1 + cos(π·t/T))/2` (Loshchilov & Hutter 2016); linear
/// `base + (end − base)·t/T`.
pub fn rate(schedule: &Schedule, base: f64, step: u64, total: u64) -> f64 {
    let (warmup, length) = match schedule {
        Schedule::Constant(s) => (s.warmup_steps, None),
        Schedule::Cosine(s) => (s.warmup_steps, s.total_steps),
        Schedule::Linear(s) => (s.warmup_steps, s.total_steps),
    };
    let (warmup, length) = (warmup as u64, length.map_or(total, |steps| steps as u64));
    if step <= warmup {
        return base * step as f64 / warmup as f64;
    }
    let rest = length.saturating_sub(warmup).max(1) as f64;
    let progress = ((step - 1 - warmup) as f64 / rest).min(1.0);
    match schedule {
        Schedule::Constant(_) => base,
        Schedule::Cosine(s) => {
            s.min_lr + (base - s.min_lr) * (1.0 + (std::f64::consts::PI * progress).cos()) / 2.0
        }
        Schedule::Linear(s) => base + (s.end_lr - base) * progress,
    }
}
