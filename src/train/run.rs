//! The training loop.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::config::health::{Action, NotFinite};
use crate::config::schedule::Schedule;
use crate::config::types::{Config, Precision};
use crate::data::{Batches, Dataset, Loader, StepBatch};
use crate::device::{DeviceError, Executor, Globals, Report};
use crate::plan::{Page, REPORT_HEAD, Slot};

use super::checkpoint::{self, CheckpointError, FORMAT, Snapshot, State};
use super::compile::Compiled;
use super::error::TrainError;
use super::evaluate::{self, Evaluation};
use super::health;
use super::model_io;
use super::progress::Progress;
use super::rules::{self, Clock, Strike};
use super::run_dir::RunDir;
use super::schedule;
use super::signals::{Signals, Stop};
use super::step;
use super::watch::{self, Metrics};
use super::weights;

/// Below this loss scale, gradients that are not finite are no matter of scale.
const LEAST_LOSS_SCALE: f32 = 1.0 / 1024.0;

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
    /// A step at whose saving the process stops for good after so many bytes, for tests.
    pub stalled_save: Option<(u64, usize)>,
    /// How long steps take.
    pub slow: Clock,
    /// The health rules that struck at the last step.
    pub striking: Vec<&'static str>,
}

fn bad_words(bad: f32, loss: f32) -> String {
    if health::is_bad(loss) { "the loss is".to_owned() } else { format!("{bad} gradients are") }
}

/// Ids of a step's samples, the first sixteen of them.
fn sample_list(batch: &StepBatch) -> String {
    let ids: Vec<String> = batch.ids().take(16).map(|id| id.to_string()).collect();
    let more = if batch.ids().count() > 16 { ", …" } else { "" };
    format!("{}{more}", ids.join(", "))
}

/// How a stretch of steps ended.
enum Ended {
    /// With the run.
    Run,
    /// A health rule sends the run back to its last checkpoint.
    Back(Sent),
}

/// Why the run is sent back.
struct Sent {
    step: u64,
    what: String,
}

/// A stretch of steps from one start of the loader on.
struct Stretch {
    loader: Loader,
    /// Steps whose reports have not come.
    pending: Vec<StepBatch>,
    clock: Instant,
}

impl Trainer<'_> {
    /// Trains from the step after `state.step` to the last.
    ///
    /// # Errors
    /// See [`TrainError`]; checkpoints written before stay whole.
    pub fn run(mut self) -> Result<Outcome, TrainError> {
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
        while let Ended::Back(sent) = self.stretch(&mut outcome)? {
            self.go_back(&sent)?;
        }
        self.progress.finish();
        outcome.step = self.state.step;
        outcome.best = self.state.best.clone();
        if let Some(folder) = &mut self.folder {
            folder.flush()?;
        }
        Ok(outcome)
    }

    /// Trains on until the run ends or is sent back.
    fn stretch(&mut self, outcome: &mut Outcome) -> Result<Ended, TrainError> {
        let first = self.state.step + 1;
        let (set, batches) = (self.train.clone(), self.batches.clone());
        let loader = Loader::start(set, batches, first, self.last_step);
        let mut stretch = Stretch { loader, pending: Vec::new(), clock: Instant::now() };
        let mut saved = Instant::now();
        for step in first..=self.last_step {
            let mut batch = stretch.loader.next_step()?;
            if self.poisoned_step == Some(step) {
                self.poisoned_step = None;
                batch.poison();
            }
            self.submit(&batch, step)?;
            stretch.pending.push(batch);
            if let Some(sent) = self.reports(&mut stretch, false)? {
                return Ok(Ended::Back(sent));
            }
            self.state.step = step;
            let stop = self.signals.stop();
            let last = step == self.last_step;
            let counts = step == self.total_steps || self.is_evaluation(step);
            let evaluate = last || counts;
            let save = last
                || stop.is_some()
                || self.is_save(step)
                || self.is_due(saved)
                || self.signals.take_save();
            if (evaluate || save)
                && let Some(sent) = self.reports(&mut stretch, true)?
            {
                return Ok(Ended::Back(sent));
            }
            let mut best = false;
            if evaluate {
                (outcome.metrics, best, outcome.early) = self.evaluate(step, counts)?;
                stretch.clock = Instant::now();
            }
            if (save || best || outcome.early) && self.folder.is_some() {
                outcome.checkpoint = Some(self.save()?);
                (saved, stretch.clock) = (Instant::now(), Instant::now());
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
        Ok(Ended::Run)
    }

    /// Takes in the reports that have come, with `wait` all; tells if the run is sent back.
    fn reports(&mut self, stretch: &mut Stretch, wait: bool) -> Result<Option<Sent>, TrainError> {
        for report in self.executor.reports(wait)? {
            if let Some(sent) = self.reported(&report, stretch)? {
                // What is still on its way belongs to steps that will not have been.
                self.executor.reports(true)?;
                return Ok(Some(sent));
            }
        }
        Ok(None)
    }

    /// Goes back to the newest whole checkpoint, or to the start where there is none, with a lower
    /// learning rate.
    fn go_back(&mut self, sent: &Sent) -> Result<(), TrainError> {
        let times = self.state.health.rollbacks;
        let Sent { step, what } = sent;
        if times >= self.config.health.max_rollbacks as u64 {
            self.progress.finish();
            return Err(TrainError::TooOften { step: *step, what: what.clone(), times });
        }
        let executor = self.executor.as_mut();
        let newest = self.folder.as_ref().map(|folder| checkpoint::newest_good(folder.path()));
        self.state = match newest {
            Some(Ok((path, snapshot, _))) => {
                model_io::restore(executor, self.compiled, &snapshot, true).map_err(|error| {
                    CheckpointError::Mismatch { path, reason: error.to_string() }
                })?;
                snapshot.state
            }
            _ => {
                model_io::clear_moments(executor, self.compiled)?;
                weights::first_values(executor, self.compiled, self.config)?;
                State::default()
            }
        };
        self.state.health.rollbacks = times + 1;
        let back = self.state.step;
        if let Some(folder) = &mut self.folder {
            folder.rewind(back)?;
        }
        let factor = self.lr_factor();
        self.progress.line(&format!(
            "step {step}: {what}; back to step {back}, learning rate times {factor}"
        ));
        tracing::warn!(step, what, back, factor, "rolled back");
        Ok(())
    }

    /// Factor on the schedule's learning rate: what plateaus and rollbacks have done.
    fn lr_factor(&self) -> f64 {
        let plateau = self.state.plateau.as_ref().map_or(1.0, |plateau| plateau.factor);
        plateau * self.config.health.lr_factor.powi(self.state.health.rollbacks as i32)
    }

    fn rate(&self, step: u64) -> f64 {
        let base = self.config.optimizer.lr();
        schedule::rate(&self.config.schedule, base, step, self.total_steps) * self.lr_factor()
    }

    fn submit(&mut self, batch: &StepBatch, step: u64) -> Result<(), TrainError> {
        let factors = self.compiled.factors(batch);
        let runs = step::runs(self.compiled, batch, &factors, self.globals(step))?;
        Ok(self.executor.submit(&runs, step)?)
    }

    fn globals(&self, step: u64) -> Globals {
        step::globals(self.config, self.compiled, self.rate(step), step)
    }

    /// A step's numbers: checks them, records them, and gives the batch's buffers back.
    fn reported(
        &mut self,
        report: &Report,
        stretch: &mut Stretch,
    ) -> Result<Option<Sent>, TrainError> {
        let at = stretch.pending.iter().position(|batch| batch.step == report.tag);
        let Some(batch) = at.map(|at| stretch.pending.remove(at)) else { return Ok(None) };
        let [_, norm, bad, weight] = report.values[..REPORT_HEAD] else { return Ok(None) };
        let sums: Vec<f64> = report.values[REPORT_HEAD..].iter().map(|v| f64::from(*v)).collect();
        // A window without any target that counts has no loss and updates nothing.
        let loss = self.compiled.statistics.objective(&sums) as f32;
        let step = report.tag;
        let seconds = stretch.clock.elapsed().as_secs_f64();
        stretch.clock = Instant::now();
        let mut line = json!({
            "step": step, "epoch": batch.epoch, "train/loss": loss, "grad_norm": norm,
            "lr": self.rate(step), "weight": weight, "seconds": seconds,
        });
        if let Some(order) = &batch.order {
            line["order"] = json!(order);
        }
        let scaler = report.values.get(REPORT_HEAD + self.compiled.reported()..);
        let scaler = scaler.filter(|_| self.is_mixed());
        if let Some(scaler) = scaler {
            line["loss_scale"] = json!(scaler[0]);
            line["skipped_steps"] = json!(scaler[1]);
        }
        // A gradient that overflows under the loss scale is no fault of the run: the step is
        // skipped and the scale halved, down to where a scale cannot be the reason.
        let overflow = bad > 0.0 && scaler.is_some_and(|s| s[0] >= LEAST_LOSS_SCALE);
        if overflow && !health::is_bad(loss) {
            self.progress.step(step, f64::from(loss), self.rate(step));
        } else if bad > 0.0 || health::is_bad(loss) {
            let action = self.config.health.not_finite;
            match action {
                NotFinite::Stop => return Err(self.not_finite(&batch, bad, loss)?),
                NotFinite::Rollback => {
                    return Ok(Some(Sent {
                        step,
                        what: format!("{} not finite", bad_words(bad, loss)),
                    }));
                }
                NotFinite::Skip if self.states_are_bad()? => {
                    return Err(self.not_finite(&batch, bad, loss)?);
                }
                NotFinite::Skip => {
                    self.state.health.skipped += 1;
                    line["skipped"] = json!(true);
                    let what = bad_words(bad, loss);
                    self.progress.line(&format!("step {step}: {what} not finite; left out"));
                }
            }
        } else {
            let (loss, norm) = (f64::from(loss), f64::from(norm));
            let mut strikes = rules::judge(&self.config.health, &mut self.state.health, loss, norm);
            strikes.extend(self.slow.judge(&self.config.health, seconds));
            if let Some(sent) = self.struck(&batch, strikes)? {
                return Ok(Some(sent));
            }
            self.progress.step(step, loss, self.rate(step));
        }
        if let Some(folder) = &mut self.folder {
            for (name, value) in evaluate::parts(&self.compiled.statistics, &sums, "train") {
                line[name] = json!(value as f32);
            }
            folder.record(&line)?;
        }
        stretch.loader.recycle(batch);
        Ok(None)
    }

    /// Does what the rules that strike ask for. A warning comes once while its rule strikes.
    fn struck(
        &mut self,
        batch: &StepBatch,
        strikes: Vec<Strike>,
    ) -> Result<Option<Sent>, TrainError> {
        let step = batch.step;
        for Strike { rule, action, what } in &strikes {
            match action {
                Action::Stop => {
                    self.progress.finish();
                    let (what, samples) = (what.clone(), sample_list(batch));
                    return Err(TrainError::Unhealthy { step, rule, what, samples });
                }
                Action::Rollback => return Ok(Some(Sent { step, what: what.clone() })),
                Action::Warn if self.striking.contains(rule) => {}
                Action::Warn => {
                    self.progress.line(&format!("warning: step {step}: {what} (`health.{rule}`)"));
                }
            }
        }
        self.striking = strikes.iter().map(|strike| strike.rule).collect();
        Ok(None)
    }

    /// Whether a running statistic is not finite: a step that is left out does not undo those.
    fn states_are_bad(&mut self) -> Result<bool, DeviceError> {
        let bytes = self.compiled.plan.page_bytes(Page::State);
        if bytes == 0 {
            return Ok(false);
        }
        let content = self.executor.read(Slot { page: Page::State, offset: 0, bytes })?;
        let values: Vec<f32> = bytemuck::pod_collect_to_vec(&content);
        Ok(values.into_iter().any(health::is_bad))
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
        let factors = self.compiled.factors(batch);
        let globals = self.globals(batch.step);
        let runs = step::runs(self.compiled, batch, &factors, globals)?;
        let first = health::first_bad(self.executor.as_mut(), self.compiled, &runs)?;
        self.progress.finish();
        Ok(TrainError::NotFinite {
            step: batch.step,
            what: bad_words(bad, loss),
            first,
            samples: sample_list(batch),
            good: batch.step - 1,
        })
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

    /// Whether a checkpoint is due by the time since the last one.
    fn is_due(&self, saved: Instant) -> bool {
        let minutes = self.config.checkpoint.every_minutes;
        minutes.is_some_and(|minutes| saved.elapsed() >= Duration::from_secs_f64(60.0 * minutes))
    }

    /// Evaluates the validation set; tells whether it is the best so far and whether to stop.
    /// Where it does not count, the run would not have evaluated but for a limit of steps.
    fn evaluate(&mut self, step: u64, counts: bool) -> Result<(Metrics, bool, bool), TrainError> {
        if let Some(folder) = self.folder.as_mut().filter(|folder| folder.wants_weights()) {
            folder.weights(step, &model_io::read_model(self.executor.as_mut(), self.compiled)?)?;
        }
        let Some(valid) = self.valid.clone() else { return Ok((Vec::new(), false, false)) };
        let terms = self.config.loss.terms(&self.config.metrics);
        let (compiled, roles) = (self.compiled, &self.compiled.plan.roles);
        let (mut metrics, mut tables) = (Vec::new(), Vec::new());
        for (programs, name) in [(&roles.eval, "valid"), (&roles.eval_average, "average")] {
            if !programs.is_empty() {
                let executor = self.executor.as_mut();
                let found = evaluate::evaluate(executor, compiled, programs, &terms, &valid, name)?;
                let Evaluation { metrics: numbers, tables: others } = found;
                metrics.extend(numbers);
                tables.extend(others);
            }
        }
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
        if let Schedule::ReduceOnPlateau(rule) = &self.config.schedule {
            let base = self.config.optimizer.lr();
            watch::update_plateau(&mut self.state.plateau, rule, base, &metrics);
        }
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
        let average = model_io::read_average(executor, self.compiled)?;
        let Some(folder) = &mut self.folder else { return Ok(PathBuf::new()) };
        folder.flush()?;
        let snapshot = Snapshot { model, optimizer, average, state };
        let stall_at = self.stalled_save.filter(|(at, _)| *at <= step).map(|(_, bytes)| bytes);
        let path = checkpoint::save(folder.path(), &snapshot, stall_at)?;
        tracing::info!(step, path = %path.display(), "checkpoint saved");
        let best = self.state.best.as_ref().map(|best| best.step);
        checkpoint::prune(folder.path(), self.config.checkpoint.keep_last, best)?;
        Ok(path)
    }
}
