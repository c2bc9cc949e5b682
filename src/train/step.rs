//! The programs of one optimizer step, with the scalars that they are given.

use crate::config::types::Config;
use crate::data::StepBatch;
use crate::device::{DeviceError, Globals, Run};
use crate::ops::update::{AVERAGE, NOISE};

use super::compile::{Compiled, with_factors};
use super::schedule;

/// The scalars of step `step` (from 1) at learning rate `rate`.
pub fn globals(config: &Config, compiled: &Compiled, rate: f64, step: u64) -> Globals {
    let mut hyper = compiled.rule.hyper(rate, step);
    if let Some(noise) = &config.train.gradient_noise {
        hyper[NOISE] = (noise.eta / (1.0 + step as f64).powf(noise.gamma)).sqrt() as f32;
    }
    if let Some(average) = &config.average {
        hyper[AVERAGE] = schedule::average_weight(average, step) as f32;
    }
    Globals {
        step: step as u32,
        seed: [config.seed as u32, (config.seed >> 32) as u32],
        hyper,
        ..Globals::default()
    }
}

/// The programs of one step: each micro-batch, its accumulation, then the update. `factors` are
/// those of [`Compiled::factors`].
///
/// # Errors
/// When the plan has no program for a batch of this size.
pub fn runs<'b>(
    compiled: &Compiled,
    batch: &'b StepBatch,
    factors: &'b Option<Vec<f32>>,
    globals: Globals,
) -> Result<Vec<Run<'b>>, DeviceError> {
    let roles = &compiled.plan.roles;
    let mut runs = Vec::new();
    for (micro, part) in batch.micros.iter().enumerate() {
        let at = compiled.train_sizes.iter().position(|size| *size == part.size);
        let Some(at) = at else {
            return Err(DeviceError::Unfit(format!(
                "no step was planned for batches of {}",
                part.size
            )));
        };
        let globals = Globals { micro: micro as u32, ..globals };
        let inputs = with_factors(part.inputs(), factors);
        runs.push(Run { program: roles.train[at], inputs, globals });
        runs.extend(roles.accumulate.map(|program| Run { program, inputs: Vec::new(), globals }));
    }
    runs.extend(roles.update.map(|program| Run { program, inputs: Vec::new(), globals }));
    Ok(runs)
}
