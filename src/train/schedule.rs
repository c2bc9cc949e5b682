//! Learning rate as a closed form of the step, so that resuming is arithmetic.

use std::f64::consts::PI;

use crate::config::health::Average;
use crate::config::schedule::{
    Anneal, Chained, Cyclic, CyclicMode, OneCycle, Piecewise, Schedule, Wsd, WsdDecay,
};

/// The learning rate of optimizer step `step` (from 1) of a run of `total` steps, for a base rate
/// `base`. What `reduce_on_plateau` has done is a factor on it that the run remembers.
///
/// During the first `warmup_steps` steps w it is `first · step / w`, where `first` is the rate
/// that follows (`base`, and for `cyclic` its lower rate). After that, with t the steps since
/// (from 0) and T the steps after the warm-up:
///
/// | schedule | rate |
/// | --- | --- |
/// | constant, reduce_on_plateau | base |
/// | step | base · γ^⌊t/size⌋ |
/// | multistep | base · γ^(milestones up to t) |
/// | exponential | base · γᵗ |
/// | polynomial | end + (base − end)·(1 − t/T)^power |
/// | cosine | min + (base − min)·(1 + cos(π·t/T))/2 (Loshchilov & Hutter 2017) |
/// | cosine_restarts | the same within each fall of T₀, T₀·m, T₀·m², … steps |
/// | inverse_sqrt | base · √(w/step) (Vaswani et al. 2017) |
/// | wsd | base, and over the last D steps min + (base − min)·f(x), x the share done, f = 1 − x, (1 + cos πx)/2 or 1 − √x |
/// | linear | base + (end − base)·t/T |
/// | one_cycle, cyclic | as PyTorch's |
/// | piecewise | base · the factor on the line between two points |
/// | chained | that of the schedule in whose range the step lies |
pub fn rate(schedule: &Schedule, base: f64, step: u64, total: u64) -> f64 {
    if let Schedule::Chained(chained) = schedule {
        return in_phase(chained, base, step, total);
    }
    let warmup = warmup(schedule);
    if step <= warmup {
        let first = if let Schedule::Cyclic(s) = schedule { s.base_lr } else { base };
        return first * step as f64 / warmup as f64;
    }
    let length = length(schedule).unwrap_or(total).saturating_sub(warmup).max(1);
    after_warmup(schedule, base, step - 1 - warmup, length)
}

fn warmup(schedule: &Schedule) -> u64 {
    let steps = match schedule {
        Schedule::Constant(s) => s.warmup_steps,
        Schedule::Step(s) => s.warmup_steps,
        Schedule::MultiStep(s) => s.warmup_steps,
        Schedule::Exponential(s) => s.warmup_steps,
        Schedule::Polynomial(s) => s.warmup_steps,
        Schedule::Cosine(s) => s.warmup_steps,
        Schedule::CosineRestarts(s) => s.warmup_steps,
        Schedule::InverseSqrt(s) => s.warmup_steps,
        Schedule::Wsd(s) => s.warmup_steps,
        Schedule::Linear(s) => s.warmup_steps,
        Schedule::Cyclic(s) => s.warmup_steps,
        Schedule::ReduceOnPlateau(s) => s.warmup_steps,
        Schedule::OneCycle(_) | Schedule::Piecewise(_) | Schedule::Chained(_) => 0,
    };
    steps as u64
}

/// The length that a schedule gives itself.
fn length(schedule: &Schedule) -> Option<u64> {
    let steps = match schedule {
        Schedule::Polynomial(s) => s.total_steps,
        Schedule::Cosine(s) => s.total_steps,
        Schedule::OneCycle(s) => s.total_steps,
        Schedule::Wsd(s) => s.total_steps,
        Schedule::Linear(s) => s.total_steps,
        _ => None,
    };
    steps.map(|steps| steps as u64)
}

fn after_warmup(schedule: &Schedule, base: f64, t: u64, length: u64) -> f64 {
    let done = (t as f64 / length as f64).min(1.0);
    match schedule {
        Schedule::Constant(_) | Schedule::ReduceOnPlateau(_) => base,
        Schedule::Step(s) => base * s.gamma.powf((t / s.step_size as u64) as f64),
        Schedule::MultiStep(s) => {
            let passed = s.milestones.iter().filter(|at| **at as u64 <= t).count();
            base * s.gamma.powi(passed as i32)
        }
        Schedule::Exponential(s) => base * s.gamma.powf(t as f64),
        Schedule::Polynomial(s) => s.end_lr + (base - s.end_lr) * (1.0 - done).powf(s.power),
        Schedule::Cosine(s) => half_cosine(base, s.min_lr, done),
        Schedule::CosineRestarts(s) => {
            let (mut start, mut fall) = (0, s.t_0 as u64);
            if s.t_mult == 1 {
                start = t / fall * fall;
            }
            while t >= start + fall {
                start += fall;
                fall = fall.saturating_mul(s.t_mult as u64);
            }
            half_cosine(base, s.min_lr, (t - start) as f64 / fall as f64)
        }
        Schedule::OneCycle(s) => one_cycle(s, base, t, length),
        Schedule::InverseSqrt(s) => {
            let warmup = s.warmup_steps as f64;
            base * (warmup / (t as f64 + 1.0 + warmup)).sqrt()
        }
        Schedule::Wsd(s) => stable_then_decay(s, base, t, length),
        Schedule::Linear(s) => base + (s.end_lr - base) * done,
        Schedule::Cyclic(s) => cyclic(s, base, t),
        Schedule::Piecewise(s) => base * on_line(s, t as f64),
        Schedule::Chained(s) => in_phase(s, base, t + 1, length),
    }
}

fn half_cosine(from: f64, to: f64, done: f64) -> f64 {
    to + (from - to) * (1.0 + (PI * done).cos()) / 2.0
}

fn one_cycle(s: &OneCycle, top: f64, t: u64, length: u64) -> f64 {
    let (first, total) = (top / s.div_factor, length as f64);
    let last = first / s.final_div_factor;
    let up = s.pct_start * total - 1.0;
    let phases = if s.three_phase {
        vec![(up, first, top), (2.0 * up, top, first), (total - 1.0, first, last)]
    } else {
        vec![(up, first, top), (total - 1.0, top, last)]
    };
    let (t, mut start) = ((t as f64).min(total - 1.0), 0.0);
    for (end, from, to) in phases {
        if t <= end {
            let done = (t - start) / (end - start);
            return match s.anneal_strategy {
                Anneal::Cos => half_cosine(from, to, done),
                Anneal::Linear => from + (to - from) * done,
            };
        }
        start = end;
    }
    last
}

fn stable_then_decay(s: &Wsd, base: f64, t: u64, length: u64) -> f64 {
    let decay = (s.decay_steps as u64).min(length);
    let stable = length - decay;
    if t < stable {
        return base;
    }
    let done = ((t - stable) as f64 / decay as f64).min(1.0);
    match s.decay {
        WsdDecay::Linear => base + (s.min_lr - base) * done,
        WsdDecay::Cosine => half_cosine(base, s.min_lr, done),
        WsdDecay::Sqrt => s.min_lr + (base - s.min_lr) * (1.0 - done.sqrt()),
    }
}

fn cyclic(s: &Cyclic, top: f64, t: u64) -> f64 {
    let up = s.step_size_up as f64;
    let whole = up + s.step_size_down.unwrap_or(s.step_size_up) as f64;
    let (cycle, ratio) = ((t as f64 / whole).floor(), up / whole);
    let x = t as f64 / whole - cycle;
    let height = if x <= ratio { x / ratio } else { (x - 1.0) / (ratio - 1.0) };
    let scale = match s.mode {
        CyclicMode::Triangular => 1.0,
        CyclicMode::Triangular2 => 0.5_f64.powf(cycle),
        CyclicMode::ExpRange => s.gamma.powf(t as f64),
    };
    s.base_lr + (top - s.base_lr) * height * scale
}

fn on_line(s: &Piecewise, t: f64) -> f64 {
    let after = s.points.iter().position(|[at, _]| *at > t);
    match after {
        Some(0) => s.points[0][1],
        Some(next) => {
            let ([from, a], [to, b]) = (s.points[next - 1], s.points[next]);
            a + (b - a) * (t - from) / (to - from)
        }
        None => s.points.last().map_or(1.0, |[_, factor]| *factor),
    }
}

fn in_phase(s: &Chained, base: f64, step: u64, total: u64) -> f64 {
    let phase = s.milestones.iter().filter(|at| (**at as u64) < step).count();
    let start = if phase == 0 { 0 } else { s.milestones[phase - 1] as u64 };
    let end = s.milestones.get(phase).map_or(total, |at| *at as u64);
    let schedule = Schedule::from(&s.schedules[phase]);
    rate(&schedule, base, step - start, end.saturating_sub(start).max(1))
}

/// How far the average moves to the weights of step `step`: at first all the way.
pub fn average_weight(average: &Average, step: u64) -> f64 {
    match average {
        Average::Ema(_) if step == 1 => 1.0,
        Average::Ema(ema) => 1.0 - ema.decay,
        Average::Swa(swa) => {
            let (start, every) = (swa.start_step as u64, swa.every_steps as u64);
            if step <= start {
                return 1.0;
            }
            let since = step - start;
            if since.is_multiple_of(every) { 1.0 / (since / every + 1) as f64 } else { 0.0 }
        }
    }
}
