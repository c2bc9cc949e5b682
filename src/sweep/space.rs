//! From a trial's number to the values it tries. A draw depends on the sweep's seed, the trial's
//! number and the key, on nothing else, so that a sweep that goes on draws what it would have.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

use super::sobol;
use crate::config::Decode;
use crate::config::sweep::{Parameter, Sampler, Sweep};

/// Keys and the values they get.
pub type Values = BTreeMap<String, Json>;

/// 53 random bits of a seed, a trial and a name, as a number in [0, 1).
fn unit(seed: u64, trial: usize, name: &str) -> f64 {
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

/// What the trial of this number tries; nothing where a grid has fewer points.
pub fn values(sweep: &Sweep, trial: usize) -> Option<Values> {
    match sweep.sampler {
        Sampler::Grid => grid(sweep).into_iter().nth(trial),
        Sampler::Random => Some(random(sweep, trial)),
        Sampler::Sobol => {
            let free = sweep.space.iter().filter(|(_, parameter)| parameter.tied.is_none());
            let keys: Vec<&String> = free.map(|(key, _)| key).collect();
            Some(assemble(sweep, |key, parameter| {
                let dimension = keys.iter().position(|known| *known == key).unwrap_or_default();
                let shift = bits(sweep.seed, 0, key) as u32;
                let point = sobol::coordinate(dimension, trial as u32) ^ shift;
                at(parameter, (f64::from(point) + 0.5) * f64::powi(2.0, -32))
            }))
        }
    }
}

/// Values drawn at random, whatever the sampler.
pub fn random(sweep: &Sweep, trial: usize) -> Values {
    assemble(sweep, |key, parameter| at(parameter, unit(sweep.seed, trial, key)))
}

/// Trials in all.
pub fn trials(sweep: &Sweep) -> usize {
    let most = sweep.trials.unwrap_or(usize::MAX);
    match sweep.sampler {
        Sampler::Grid => grid(sweep).len().min(most),
        Sampler::Random | Sampler::Sobol => most,
    }
}

/// The value at a place in [0, 1) of a parameter that is not tied.
fn at(parameter: &Parameter, place: f64) -> Json {
    if let Some([low, high]) = parameter.uniform {
        return json!(low + place * (high - low));
    }
    if let Some([low, high]) = parameter.log_uniform {
        return json!((low.ln() + place * (high / low).ln()).exp().clamp(low, high));
    }
    let list = list(parameter);
    let index = (place * list.len() as f64) as usize;
    list.into_iter().nth(index).unwrap_or_default()
}

/// The values of a parameter that has a finite number of them.
fn list(parameter: &Parameter) -> Vec<Json> {
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
fn assemble(sweep: &Sweep, mut draw: impl FnMut(&str, &Parameter) -> Json) -> Values {
    let free = sweep.space.iter().filter(|(_, parameter)| parameter.tied.is_none());
    let mut all: Values = free.map(|(key, p)| (key.clone(), draw(key, p))).collect();
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
    let free = sweep.space.iter().filter(|(_, parameter)| parameter.tied.is_none());
    let lists: BTreeMap<&str, Vec<Json>> = free.map(|(k, p)| (k.as_str(), list(p))).collect();
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
