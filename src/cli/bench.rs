//! `bench`: times the training step of a configuration.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use super::session::Session;
use super::tune::TuneArgs;
use super::{CliError, ConfigArgs, compare};
use crate::data::{Loader, StepBatch};
use crate::device::{Executor, Globals, Run};
use crate::plan::REPORT_HEAD;
use crate::train::compile::{Compiled, with_factors};
use crate::train::{model_io, schedule, step};

/// How to time.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  wootz bench --config configs/bench/mlp.yaml
  wootz bench --config configs/bench/mlp.yaml --device vulkan --seconds 3
  wootz bench --config configs/bench/mlp.yaml --ops --json >> before.json
  wootz bench --compare before.json after.json")]
pub struct BenchArgs {
    #[command(flatten)]
    config: Option<ConfigArgs>,
    #[command(flatten)]
    tune: TuneArgs,
    /// Compare two files of JSON documents that `bench` printed: what became slower by more than it
    /// varies. The exit code is 1 where anything did.
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], exclusive = true)]
    compare: Option<Vec<PathBuf>>,
    /// Steps before timing starts; at least 100 ms are spent too, so that clocks are up.
    #[arg(long, default_value_t = 10)]
    warmup: usize,
    /// Seconds of timed blocks.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Show the time of each op of a step instead, the slowest first.
    #[arg(long)]
    ops: bool,
    /// Print the times of the ops as a JSON document.
    #[arg(long, requires = "ops")]
    json: bool,
}

/// Length of a block of steps that is closed by one wait.
const BLOCK: Duration = Duration::from_millis(100);
/// Fewest blocks, and times of an op: enough for a comparison.
const FEWEST: usize = 7;

/// Times the step: uploads of the batch, all programs and the readback of the loss are in it;
/// logging and checkpoints are not. The batches are drawn before and used in turn.
pub fn run(args: BenchArgs) -> Result<u8, CliError> {
    if let Some([before, after]) = args.compare.as_deref() {
        return compare::run(before, after);
    }
    let Some(config) = &args.config else {
        return Err(CliError::Usage("give --config, or --compare with two files".into()));
    };
    let session = Session::open(config)?;
    let begin = Instant::now();
    let (device, compiled) = args.tune.planned(&session, session.device()?, None)?;
    let executor = device.prepare(&compiled.plan)?;
    let mut bench = Bench {
        session: &session,
        compiled: &compiled,
        executor,
        batches: batches(&session)?,
        step: 0,
        losses: Vec::new(),
    };
    model_io::initialise(bench.executor.as_mut(), &compiled, session.config().seed)?;
    bench.block(1)?;
    let first_step = begin.elapsed();
    let warm = Instant::now();
    let mut warmed = 1;
    while warmed < args.warmup || warm.elapsed() < BLOCK {
        bench.block(1)?;
        warmed += 1;
    }
    if args.ops {
        let rows = bench.ops()?;
        let info = bench.executor.info();
        if args.json {
            let ops: Vec<Value> = rows.iter().map(OpTime::to_json).collect();
            super::print(
                &json!({"config": config.config, "sets": config.sets, "device": info.name, "ops": ops}).to_string(),
            );
        } else {
            show(&rows);
        }
        return Ok(0);
    }
    let one = bench.block(3)? / 3;
    let per_block =
        (BLOCK.as_secs_f64() / one.as_secs_f64().max(1e-6)).ceil().clamp(1.0, 2000.0) as u32;
    let (start, mut times) = (Instant::now(), Vec::new());
    let before = bench.executor.usage();
    while times.len() < FEWEST || start.elapsed().as_secs_f64() < args.seconds {
        times.push((bench.block(per_block)? / per_block).as_secs_f64() * 1e3);
    }
    let after = bench.executor.usage();
    let block_ms = times.clone();
    times.sort_by(f64::total_cmp);
    let info = bench.executor.info();
    super::print(
        &json!({
            "framework": "wootz", "version": env!("CARGO_PKG_VERSION"), "backend": info.backend, "device": info.name,
            "driver": info.driver, "config": config.config, "sets": config.sets, "parameters": compiled.params.parameter_count(),
            "batch": session.config().train.batch_size, "ms_per_step": times[times.len() / 2], "ms_min": times[0],
            "ms_max": times[times.len() - 1], "k": per_block, "blocks": times.len(), "block_ms": block_ms, "first_step_s": first_step.as_secs_f64(),
            "loss_first": bench.losses.first(), "loss_last": bench.losses.last(), "steps": bench.step,
            "allocations_while_timed": after.allocations - before.allocations,
            "compilations_while_timed": after.compilations - before.compilations,
            "device_bytes": after.pages.iter().map(|(_, bytes)| bytes).sum::<u64>() + after.staging + after.small,
        })
        .to_string(),
    );
    Ok(0)
}

/// A few full batches, in memory.
fn batches(session: &Session) -> Result<Vec<StepBatch>, CliError> {
    let batches = session.batches();
    let steps = batches.steps_per_epoch().clamp(1, 8);
    let mut loader = Loader::start(session.data.train.clone(), batches, 1, steps);
    (0..steps).map(|_| Ok(loader.next_step()?)).collect()
}

struct Bench<'a> {
    session: &'a Session,
    compiled: &'a Compiled,
    executor: Box<dyn Executor>,
    batches: Vec<StepBatch>,
    step: u64,
    losses: Vec<f32>,
}

/// The loss in a step's report.
fn loss(compiled: &Compiled, values: &[f32]) -> f32 {
    let sums: Vec<f64> = values[REPORT_HEAD..].iter().map(|v| f64::from(*v)).collect();
    compiled.statistics.objective(&sums) as f32
}

impl Bench<'_> {
    /// Runs steps, waits for them, and gives the time.
    fn block(&mut self, steps: u32) -> Result<Duration, CliError> {
        let begin = Instant::now();
        for _ in 0..steps {
            self.submit()?;
            let arrived = self.executor.reports(false)?;
            self.losses.extend(arrived.iter().map(|r| loss(self.compiled, &r.values)));
        }
        let arrived = self.executor.reports(true)?;
        self.losses.extend(arrived.iter().map(|r| loss(self.compiled, &r.values)));
        Ok(begin.elapsed())
    }

    /// Times of each op of a micro-batch and of the update, the slowest first.
    fn ops(&mut self) -> Result<Vec<OpTime>, CliError> {
        const REPEATS: u32 = 20;
        let plan = &self.compiled.plan;
        let mut rows: Vec<OpTime> = Vec::new();
        for program in plan.roles.train.iter().take(1).chain(&plan.roles.update) {
            let steps = &plan.programs[*program].steps;
            let factors = self.compiled.factors(&self.batches[0]);
            let inputs = match plan.programs[*program].inputs.is_empty() {
                true => Vec::new(),
                false => with_factors(self.batches[0].micros[0].inputs(), &factors),
            };
            let globals = Globals { step: 1, ..Globals::default() };
            let run = Run { program: *program, inputs, globals };
            let first = rows.len();
            rows.extend(steps.iter().map(|step| {
                let (ins, outs): (Vec<_>, Vec<_>) =
                    (step.in_types.iter().collect(), step.out_types.iter().collect());
                let shapes: Vec<String> = ins.iter().map(|ty| ty.shape.to_string()).collect();
                OpTime {
                    op: step.op.name(),
                    pass: if step.backward { "backward" } else { "" },
                    scope: step.scope.to_string(),
                    shapes: shapes.join(" "),
                    flops: step.op.flops(&ins, &outs),
                    us: Vec::new(),
                }
            }));
            for _ in 0..FEWEST {
                let times = self.executor.time_steps(&run, REPEATS)?;
                for (row, time) in rows[first..].iter_mut().zip(times) {
                    row.us.push(time.as_secs_f64() * 1e6);
                }
            }
        }
        rows.sort_by(|a, b| b.median().total_cmp(&a.median()));
        Ok(rows)
    }

    fn submit(&mut self) -> Result<(), CliError> {
        self.step += 1;
        let config = self.session.config();
        let base = config.optimizer.lr();
        let rate = schedule::rate(
            &config.schedule,
            base,
            self.step,
            self.session.total_steps().max(self.step),
        );
        let globals = step::globals(config, self.compiled, rate, self.step);
        let batch = &self.batches[self.step as usize % self.batches.len()];
        let factors = self.compiled.factors(batch);
        let runs = step::runs(self.compiled, batch, &factors, globals)?;
        Ok(self.executor.submit(&runs, self.step)?)
    }
}

/// The times of an op of the step.
struct OpTime {
    op: &'static str,
    pass: &'static str,
    scope: String,
    /// Those of its operands.
    shapes: String,
    flops: u64,
    /// Microseconds, each the mean of a stretch of repetitions.
    us: Vec<f64>,
}

impl OpTime {
    fn median(&self) -> f64 {
        let mut sorted = self.us.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
    }

    fn to_json(&self) -> Value {
        json!({
            "op": self.op, "pass": self.pass, "scope": self.scope, "shapes": self.shapes,
            "flops": self.flops, "us_median": self.median(), "us": self.us,
        })
    }
}

/// Prints the ops as lines.
fn show(rows: &[OpTime]) {
    for row in rows {
        let us = row.median();
        let gflops = row.flops as f64 / us.max(1e-3) / 1e3;
        let OpTime { op, pass, scope, shapes, .. } = row;
        super::print(&format!(
            "{us:>10.1} µs  {gflops:>9.1} GFLOP/s  {op:<20} {pass:<9} {scope:<16} {shapes}"
        ));
    }
    let total: f64 = rows.iter().map(OpTime::median).sum();
    super::print(&format!("{total:>10.1} µs  in all, {} ops", rows.len()));
}
