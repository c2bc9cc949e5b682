//! The training loop.

use std::path::PathBuf;
use std::time::Instant;

use serde_json::json;

use crate::config::types::{Config, Precision};
use crate::data::{Batches, DataError, Dataset, Loader, StepBatch};
use crate::device::{DeviceError, Executor, Globals, Report, Run};
use crate::plan::REPORT_HEAD;

use super::checkpoint::{self, CheckpointError, FORMAT, Snapshot, State};
use super::compile::{Compiled, with_factors};
use super::evaluate::{self, Evaluation};
use super::health::{self, FirstBad};
use super::model_io;
use super::optimizer;
use super::progress::Progress;
use super::run_dir::RunDir;
use super::schedule;
use super::signals::{Signals, Stop};
use super::watch::{self, Metrics};

/// Below this loss scale, gradients that are not finite are no matter of scale.
const LEAST_LOSS_SCALE: f32 = 1.0 / 1024.0;

/// Why a run ended before its time.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The data cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A checkpoint cannot be written or read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// An evaluation is not finite.
    #[error("{metric} is not finite")]
    NotFiniteMetric {
        /// Such as `valid/loss`.
        metric: String,
    },
    /// A loss or gradient is not finite.
    #[error("step {step}: {what} not finite{}; samples {samples}; checkpoints up to step {good} are untouched",
        .first.as_ref().map_or(String::new(), |f| format!(": first in {} (`{}`, {} of {} elements)", f.layer, f.op, f.bad, f.of)))]
    NotFinite {
        /// The optimizer step.
        step: u64,
        /// `the loss is` or `1,234 gradients are`.
        what: String,
        /// Where it began, if running the step again showed it.
        first: Option<FirstBad>,
        /// Ids of the step's samples.
        samples: String,
        /// The last step before it.
        good: u64,
    },
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Steps done in all.
    pub step: u64,
    /// The last evaluation.
    pub metrics: Metrics,
    /// The best value of the watched metric.
    pub best: Option<checkpoint::Best>,
    /// The signal that ended it.
    pub stopped: Option<Stop>,
    /// Whether early stopping ended it.
    pub early: bool,
    /// The newest checkpoint.
    pub checkpoint: Option<PathBuf>,
}

/// Everything that a run works with.
pub struct Trainer<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// The plan and its names.
    pub compiled: &'a Compiled,
    /// The device.
    pub executor: Box<dyn Executor>,
    /// The training set.
    pub train: std::sync::Arc<Dataset>,
    /// The validation set.
    pub valid: Option<std::sync::Arc<Dataset>>,
    /// Which samples each step takes.
    pub batches: Batches,
    /// The run's folder; `None` to leave nothing behind.
    pub folder: Option<RunDir>,
    /// What the person sees.
    pub progress: Progress,
    /// What the person asks.
    pub signals: Signals,
    /// What the run remembers; the default for a new one.
    pub state: State,
    /// Ends the run after this step.
    pub last_step: u64,
    /// Steps that the schedule spans.
    pub total_steps: u64,
    /// SHA-256 of the training data.
    pub digest: String,
    /// A step whose batch gets a NaN, for tests.
    pub poisoned_step: Option<u64>,
}

impl Trainer<'_> {
    /// Trains from the step after `state.step` to the last.
    ///
    /// # Errors
    /// See [`TrainError`]; checkpoints written before stay whole.
    pub fn run(mut self) -> Result<Outcome, TrainError> {
        let first = self.state.step + 1;
        let mut loader =
            Loader::start(self.train.clone(), self.batches.clone(), first, self.last_step);
        let mut pending: Vec<StepBatch> = Vec::new();
        let mut outcome = Outcome {
            step: self.state.step,
            metrics: Vec::new(),
            best: self.state.best.clone(),
            stopped: None,
            early: false,
            checkpoint: None,
        };
        if self.config.checkpoint.keep_best.is_none() {
            self.state.best = None;
        }
        if let Some(rule) = &self.config.early_stop
            && watch::is_over(&self.state.early_stop, rule)
        {
            outcome.early = true;
            return Ok(outcome);
        }
        let mut clock = Instant::now();
        for step in first..=self.last_step {
            let mut batch = loader.next_step()?;
            if self.poisoned_step == Some(step) {
                batch.poison();
            }
            self.submit(&batch, step)?;
            pending.push(batch);
            for report in self.executor.reports(false)? {
                self.reported(&report, &mut pending, &mut clock, &mut loader)?;
            }
            self.state.step = step;
            let stop = self.signals.stop();
            let last = step == self.last_step;
            let counts = step == self.total_steps || self.is_evaluation(step);
            let evaluate = last || counts;
            let save = last || stop.is_some() || self.is_save(step);
            if evaluate || save {
                for report in self.executor.reports(true)? {
                    self.reported(&report, &mut pending, &mut clock, &mut loader)?;
                }
            }
            let mut best = false;
            if evaluate {
                (outcome.metrics, best, outcome.early) = self.evaluate(step, counts)?;
                clock = Instant::now();
            }
            if (save || best || outcome.early) && self.folder.is_some() {
                outcome.checkpoint = Some(self.save()?);
            }
            if !evaluate {
                // What was measured before says nothing of this step.
                outcome.metrics.clear();
            }
            if stop.is_some() || outcome.early {
                outcome.stopped = stop;
                break;
            }
        }
        self.progress.finish();
        outcome.step = self.state.step;
        outcome.best = self.state.best.clone();
        if let Some(folder) = &mut self.folder {
            folder.flush()?;
        }
        Ok(outcome)
    }

    fn globals(&self, step: u64, micro: usize) -> Globals {
        let base = optimizer::base_rate(&self.config.optimizer);
        let rate = schedule::rate(&self.config.schedule, base, step, self.total_steps);
        Globals {
            step: step as u32,
            micro: micro as u32,
            seed: [self.config.seed as u32, (self.config.seed >> 32) as u32],
            hyper: self.compiled.rule.hyper(rate, step),
            ..Globals::default()
        }
    }

    fn submit(&mut self, batch: &StepBatch, step: u64) -> Result<(), TrainError> {
        let factors = self.compiled.factors(batch);
        let runs = self.runs(batch, &factors, step)?;
        Ok(self.executor.submit(&runs, step)?)
    }

    /// The programs of one step: each micro-batch, its accumulation, then the update.
    fn runs<'b>(
        &self,
        batch: &'b StepBatch,
        factors: &'b Option<Vec<f32>>,
        step: u64,
    ) -> Result<Vec<Run<'b>>, DeviceError> {
        let roles = &self.compiled.plan.roles;
        let mut runs = Vec::new();
        for (micro, part) in batch.micros.iter().enumerate() {
            let at = self.compiled.train_sizes.iter().position(|size| *size == part.size);
            let Some(at) = at else {
                return Err(DeviceError::Unfit(format!(
                    "no step was planned for batches of {}",
                    part.size
                )));
            };
            let globals = self.globals(step, micro);
            let inputs = with_factors(part.inputs(), factors);
            runs.push(Run { program: roles.train[at], inputs, globals });
            runs.extend(roles.accumulate.map(|program| Run {
                program,
                inputs: Vec::new(),
                globals,
            }));
        }
        let globals = self.globals(step, 0);
        runs.extend(roles.update.map(|program| Run { program, inputs: Vec::new(), globals }));
        Ok(runs)
    }

    /// A step's numbers: checks them, records them, and gives the batch's buffers back.
    fn reported(
        &mut self,
        report: &Report,
        pending: &mut Vec<StepBatch>,
        clock: &mut Instant,
        loader: &mut Loader,
    ) -> Result<(), TrainError> {
        let at = pending.iter().position(|batch| batch.step == report.tag);
        let Some(batch) = at.map(|at| pending.remove(at)) else { return Ok(()) };
        let [_, norm, bad, weight] = report.values[..REPORT_HEAD] else { return Ok(()) };
        let sums: Vec<f64> = report.values[REPORT_HEAD..].iter().map(|v| f64::from(*v)).collect();
        // A window without any target that counts has no loss and updates nothing.
        let loss = self.compiled.statistics.objective(&sums) as f32;
        let step = report.tag;
        let scaler = report.values.get(REPORT_HEAD + self.compiled.statistics.count..);
        let scaler = scaler.filter(|_| self.is_mixed());
        // A gradient that overflows under the loss scale is no fault of the run: the step is
        // skipped and the scale halved, down to where a scale cannot be the reason.
        let skipped = bad > 0.0 && scaler.is_some_and(|s| s[0] >= LEAST_LOSS_SCALE);
        if (bad > 0.0 && !skipped) || health::is_bad(loss) {
            return Err(self.not_finite(&batch, bad, loss)?);
        }
        let rate = schedule::rate(
            &self.config.schedule,
            optimizer::base_rate(&self.config.optimizer),
            step,
            self.total_steps,
        );
        self.progress.step(step, f64::from(loss), rate);
        let seconds = clock.elapsed().as_secs_f64();
        *clock = Instant::now();
        if let Some(folder) = &mut self.folder {
            let mut line = json!({
                "step": step, "epoch": batch.epoch, "train/loss": loss, "grad_norm": norm, "lr": rate,
                "weight": weight, "seconds": seconds,
            });
            if let Some(scaler) = scaler {
                line["loss_scale"] = json!(scaler[0]);
                line["skipped_steps"] = json!(scaler[1]);
            }
            for (name, value) in evaluate::parts(&self.compiled.statistics, &sums, "train") {
                line[name] = json!(value as f32);
            }
            folder.record(&line)?;
        }
        loader.recycle(batch);
        Ok(())
    }

    fn is_mixed(&self) -> bool {
        self.config.precision == Precision::Mixed
    }

    fn not_finite(
        &mut self,
        batch: &StepBatch,
        bad: f32,
        loss: f32,
    ) -> Result<TrainError, TrainError> {
        let what = if health::is_bad(loss) {
            "the loss is".to_owned()
        } else {
            format!("{bad} gradients are")
        };
        let factors = self.compiled.factors(batch);
        let runs = self.runs(batch, &factors, batch.step)?;
        let first = health::first_bad(self.executor.as_mut(), self.compiled, &runs)?;
        let ids: Vec<String> = batch.ids().take(16).map(|id| id.to_string()).collect();
        let more = if batch.ids().count() > 16 { ", …" } else { "" };
        let samples = format!("{}{more}", ids.join(", "));
        self.progress.finish();
        Ok(TrainError::NotFinite { step: batch.step, what, first, samples, good: batch.step - 1 })
    }

    fn is_evaluation(&self, step: u64) -> bool {
        match self.config.train.eval_every_steps {
            Some(every) => step.is_multiple_of(every as u64),
            None => self.batches.ends_epoch(step),
        }
    }

    fn is_save(&self, step: u64) -> bool {
        let rules = &self.config.checkpoint;
        let epochs = rules.every_epochs as u64;
        let by_epoch = self.batches.ends_epoch(step)
            && (self.batches.epoch_of(step) + 1).is_multiple_of(epochs);
        match rules.every_steps {
            Some(every) => step.is_multiple_of(every as u64),
            None => by_epoch,
        }
    }

    /// Evaluates the validation set; tells whether it is the best so far and whether to stop.
    /// Where it does not count, the run would not have evaluated but for a limit of steps.
    fn evaluate(&mut self, step: u64, counts: bool) -> Result<(Metrics, bool, bool), TrainError> {
        let Some(valid) = self.valid.clone() else { return Ok((Vec::new(), false, false)) };
        let terms = self.config.loss.terms(&self.config.metrics);
        let Evaluation { metrics, tables } =
            evaluate::evaluate(self.executor.as_mut(), self.compiled, &terms, &valid, "valid")?;
        self.progress.evaluated(step, &metrics);
        if let Some(folder) = &mut self.folder {
            let mut line = json!({"step": step});
            metrics.iter().for_each(|(name, value)| line[name] = json!(value));
            tables.into_iter().for_each(|(name, table)| line[name] = table);
            folder.record(&line)?;
            folder.flush()?;
        }
        if !counts {
            return Ok((metrics, false, false));
        }
        let rules = &self.config.checkpoint;
        let best = rules
            .keep_best
            .as_ref()
            .is_some_and(|rule| watch::update_best(&mut self.state.best, rule, &metrics, step));
        let early = (self.config.early_stop.as_ref())
            .is_some_and(|rule| watch::update_waiting(&mut self.state.early_stop, rule, &metrics));
        Ok((metrics, best, early))
    }

    fn save(&mut self) -> Result<PathBuf, TrainError> {
        let step = self.state.step;
        let next = self.batches.position(step + 1);
        let state = State {
            format: FORMAT,
            step,
            epoch: next.epoch,
            cursor: next.cursor,
            seed: self.config.seed,
            samples: self.train.len() as u64,
            data: self.digest.clone(),
            ..self.state.clone()
        };
        let executor = self.executor.as_mut();
        let model = model_io::read_model(executor, self.compiled)?;
        let optimizer = model_io::read_moments(executor, self.compiled)?;
        let Some(folder) = &mut self.folder else { return Ok(PathBuf::new()) };
        folder.flush()?;
        let path = checkpoint::save(folder.path(), &Snapshot { model, optimizer, state })?;
        tracing::info!(step, path = %path.display(), "checkpoint saved");
        let best = self.state.best.as_ref().map(|best| best.step);
        checkpoint::prune(folder.path(), self.config.checkpoint.keep_last, best)?;
        Ok(path)
    }
}
