//! From a trial's number and what was measured before to the values it tries. A draw depends on
//! nothing else than these, the sweep's seed and the key, so that a sweep that goes on draws what
//! it would have.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

use super::{cma_es, sobol, tpe};
use crate::config::Decode;
use crate::config::sweep::{Parameter, Sampler, Sweep};

/// Keys and the values they get.
pub type Values = BTreeMap<String, Json>;

/// What a trial came to, as samplers see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The trial's number.
    pub number: usize,
    /// What it tried.
    pub values: Values,
    /// How far short of the run's end it was stopped: 0 for a trial that is done, and more the
    /// sooner; the most for one that went wrong. Trials that came further are better.
    pub short: usize,
    /// Its cost, of which less is better; infinite for one that went wrong.
    pub cost: f64,
}

impl Observed {
    /// Orders by worth, the best first; equals by number.
    pub fn order(a: &Self, b: &Self) -> std::cmp::Ordering {
        a.short.cmp(&b.short).then(a.cost.total_cmp(&b.cost)).then(a.number.cmp(&b.number))
    }
}

/// What a sampler gives.
#[derive(Clone, Debug, PartialEq)]
pub enum Draw {
    /// Values of a trial.
    Values(Values),
    /// There are no more.
    End,
    /// Trials must end before the next draw.
    Wait,
}

/// 53 random bits of a seed, a trial and a name, as a number in [0, 1).
pub(super) fn unit(seed: u64, trial: usize, name: &str) -> f64 {
    (bits(seed, trial, name) >> 11) as f64 * f64::powi(2.0, -53)
}

fn bits(seed: u64, trial: usize, name: &str) -> u64 {
    let hash = Sha256::digest(format!("{seed}/{trial}/{name}"));
    hash.iter().take(8).fold(0, |word, byte| (word << 8) | u64::from(*byte))
}

/// The seed of a trial's run, 32 bits of the sweep's seed and the trial's number.
pub fn trial_seed(sweep: &Sweep, trial: usize) -> u64 {
    bits(sweep.seed, trial, "") >> 32
}

/// What the trial of this number tries. `observed` are the trials that have ended, the best first.
pub fn draw(sweep: &Sweep, trial: usize, observed: &[Observed]) -> Draw {
    if sweep.trials.is_some_and(|most| trial >= most) {
        return Draw::End;
    }
    match sweep.sampler {
        Sampler::Grid => grid(sweep).into_iter().nth(trial).map_or(Draw::End, Draw::Values),
        Sampler::Random => Draw::Values(random(sweep, trial)),
        Sampler::Sobol => Draw::Values(even(sweep, trial)),
        Sampler::Tpe => Draw::Values(tpe::draw(sweep, trial, observed)),
        Sampler::CmaEs => cma_es::draw(sweep, trial, observed),
    }
}

/// Values drawn at random, whatever the sampler.
pub fn random(sweep: &Sweep, trial: usize) -> Values {
    assemble(sweep, |key, parameter| at(parameter, unit(sweep.seed, trial, key)))
}

/// A point of Sobol's sequence, shifted by the seed.
fn even(sweep: &Sweep, trial: usize) -> Values {
    let keys: Vec<&String> = free(sweep).map(|(key, _)| key).collect();
    assemble(sweep, |key, parameter| {
        let dimension = keys.iter().position(|known| *known == key).unwrap_or_default();
        let shift = bits(sweep.seed, 0, key) as u32;
        let point = sobol::coordinate(dimension, trial as u32) ^ shift;
        at(parameter, (f64::from(point) + 0.5) * f64::powi(2.0, -32))
    })
}

/// The keys that are drawn, and their values.
pub(super) fn free(sweep: &Sweep) -> impl Iterator<Item = (&String, &Parameter)> {
    sweep.space.iter().filter(|(_, parameter)| parameter.tied.is_none())
}

/// The value at a place in [0, 1] of a parameter that is not tied.
pub(super) fn at(parameter: &Parameter, place: f64) -> Json {
    if let Some([low, high]) = parameter.uniform {
        return json!(low + place * (high - low));
    }
    if let Some([low, high]) = parameter.log_uniform {
        return json!((low.ln() + place * (high / low).ln()).exp().clamp(low, high));
    }
    let list = list(parameter);
    let index = ((place * list.len() as f64) as usize).min(list.len().saturating_sub(1));
    list.into_iter().nth(index).unwrap_or_default()
}

/// The place of a value; of one in a list, the middle of its share.
pub(super) fn place(parameter: &Parameter, value: &Json) -> Option<f64> {
    let share = |place: f64, low: f64, high: f64| match high > low {
        true => ((place - low) / (high - low)).clamp(0.0, 1.0),
        false => 0.5,
    };
    if let Some([low, high]) = parameter.uniform {
        return Some(share(value.as_f64()?, low, high));
    }
    if let Some([low, high]) = parameter.log_uniform {
        return Some(share(value.as_f64()?.ln(), low.ln(), high.ln()));
    }
    let list = list(parameter);
    let index = list.iter().position(|known| known == value)?;
    Some((index as f64 + 0.5) / list.len() as f64)
}

/// The values of a parameter that has a finite number of them; none of another.
pub(super) fn list(parameter: &Parameter) -> Vec<Json> {
    if let Some([low, high]) = parameter.int {
        return (low..=high).map(|value| json!(value)).collect();
    }
    if let Some(q) = &parameter.quantised {
        // Half a millionth of a step, for what rounding takes from the last one.
        let last = ((q.high - q.low) / q.step + 5e-7) as usize;
        return (0..=last).map(|k| json!(q.low + k as f64 * q.step)).collect();
    }
    parameter.choice.iter().flatten().map(Decode::to_json).collect()
}

/// Values of all keys: free ones by `draw`, then tied ones, without those whose `when` fails.
pub(super) fn assemble(sweep: &Sweep, mut draw: impl FnMut(&str, &Parameter) -> Json) -> Values {
    let mut all: Values = free(sweep).map(|(key, p)| (key.clone(), draw(key, p))).collect();
    for (key, parameter) in &sweep.space {
        let source = parameter.tied.as_ref().and_then(|other| all.get(other)).cloned();
        if let Some(value) = source {
            all.insert(key.clone(), value);
        }
    }
    let holds = |key: &String| {
        let conditions = sweep.space[key].when.iter().flatten();
        conditions.into_iter().all(|(other, value)| all.get(other) == Some(&value.to_json()))
    };
    all.iter().filter(|(key, _)| holds(key)).map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// Every combination once. Combinations that differ only in keys that are left out are one.
fn grid(sweep: &Sweep) -> Vec<Values> {
    let lists: BTreeMap<&str, Vec<Json>> =
        free(sweep).map(|(key, parameter)| (key.as_str(), list(parameter))).collect();
    let total = lists.values().map(Vec::len).product::<usize>();
    let mut points: Vec<Values> = Vec::new();
    for point in 0..total {
        let mut rest = point;
        let mut picked: BTreeMap<&str, &Json> = BTreeMap::new();
        for (key, list) in lists.iter().rev() {
            picked.insert(key, &list[rest % list.len()]);
            rest /= list.len();
        }
        let values = assemble(sweep, |key, _| picked[key].clone());
        if !points.contains(&values) {
            points.push(values);
        }
    }
    points
}
