//! `plan`: what a step will do and hold.

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::{Value as Json, json};

use super::session::Session;
use super::{CliError, ConfigArgs};
use crate::device::gpu;
use crate::device::profiles::{PROFILES, Profile};
use crate::layers::{Row, batch_shape};
use crate::ops::Target;
use crate::plan::report;
use crate::train::compile::Compiled;
use crate::train::schedule;

/// What to show.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  wootz plan --config configs/digits-cnn.yaml
  wootz plan --config configs/char-gpt.yaml --json
  wootz plan --config configs/char-gpt.yaml --max-batch 2GiB
  wootz plan --config configs/char-gpt.yaml --schedule
  wootz plan --config configs/char-gpt.yaml --profile apple-m1")]
pub struct PlanArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Plan for the limits of a kind of GPU, which need not be there.
    #[arg(long, value_name = "GPU", conflicts_with = "device", value_parser = words())]
    profile: Option<String>,
    /// One JSON document instead of tables.
    #[arg(long)]
    json: bool,
    /// The largest batch whose memory fits in this many bytes (k, M, G, T and KiB, MiB, GiB,
    /// TiB are understood).
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    max_batch: Option<u64>,
    /// Draw the learning rate over the run.
    #[arg(long)]
    schedule: bool,
}

fn words() -> PossibleValuesParser {
    PROFILES.iter().map(|profile| profile.word).collect::<Vec<_>>().into()
}

/// What is planned for.
struct Planned {
    target: Target,
    /// In words.
    device: String,
}

impl Planned {
    fn of(session: &Session, profile: Option<&str>) -> Result<Self, CliError> {
        let profile = PROFILES.into_iter().find(|known| Some(known.word) == profile);
        if let Some(Profile { name, limits, .. }) = profile {
            let target = Target::Gpu(limits);
            return Ok(Planned { target, device: format!("{name} (a profile)") });
        }
        let device = session.device()?;
        Ok(Planned { target: device.target(), device: device.describe() })
    }

    /// Bytes that the executor adds to the plan's pages.
    fn staging(&self, compiled: &Compiled) -> u64 {
        match &self.target {
            Target::Cpu => 0,
            Target::Gpu(_) => gpu::staging_bytes(&compiled.plan),
        }
    }

    /// That a plan keeps within the device's limits.
    fn check(&self, compiled: &Compiled) -> Result<(), CliError> {
        match &self.target {
            Target::Cpu => Ok(()),
            Target::Gpu(limits) => Ok(gpu::check_fit(&compiled.plan, limits, &self.device)?),
        }
    }
}

/// Shows the plan.
pub fn run(args: PlanArgs) -> Result<u8, CliError> {
    let session = Session::open(&args.config)?;
    let planned = Planned::of(&session, args.profile.as_deref())?;
    if let Some(ceiling) = args.max_batch {
        return max_batch(&session, &planned, ceiling, args.json);
    }
    let compiled = session.compile(&planned.target)?;
    let eval_only = session.compile_sizes(&planned.target, Vec::new(), session.eval_sizes())?;
    let staging = [&compiled, &eval_only].map(|compiled| planned.staging(compiled));
    if args.json {
        super::print(&document(&session, &compiled, &eval_only, staging).to_string());
    } else {
        super::print(&format!("device      {}", planned.device));
        layer_table(&compiled);
        program_table(&compiled);
        memory_table("train", &compiled, staging[0]);
        memory_table("eval", &eval_only, staging[1]);
        group_table(&compiled);
        if args.schedule {
            draw_schedule(&session);
        }
    }
    planned.check(&compiled)?;
    Ok(0)
}

fn max_batch(
    session: &Session,
    planned: &Planned,
    ceiling: u64,
    as_json: bool,
) -> Result<u8, CliError> {
    let found = report::largest_batch(ceiling, |batch| {
        let compiled = session.compile_sizes(&planned.target, vec![batch], vec![batch])?;
        Ok::<u64, CliError>(report::total_bytes(&compiled.plan) + planned.staging(&compiled))
    })?;
    match found {
        Some(batch) if as_json => {
            super::print(&json!({"max_batch": batch, "bytes": ceiling}).to_string())
        }
        Some(batch) => {
            super::print(&format!("batch_size {batch} is the largest that fits in {ceiling} bytes"))
        }
        None => {
            return Err(CliError::Usage(format!(
                "not even the smallest batch fits in {ceiling} bytes"
            )));
        }
    }
    Ok(0)
}

fn programs(compiled: &Compiled) -> Vec<(String, usize)> {
    let roles = &compiled.plan.roles;
    let sized = |kind: &str, sizes: &[usize], ids: &[usize]| -> Vec<(String, usize)> {
        sizes.iter().zip(ids).map(|(size, id)| (format!("{kind}, batch {size}"), *id)).collect()
    };
    let mut all = sized("train", &compiled.train_sizes, &roles.train);
    all.extend(roles.accumulate.map(|id| ("accumulate".into(), id)));
    all.extend(roles.update.map(|id| ("update".into(), id)));
    all.extend(sized("eval", &compiled.eval_sizes, &roles.eval));
    all
}

/// A row for each layer.
pub(super) fn layers(compiled: &Compiled) -> Vec<Json> {
    let row = |row: &Row| json!({"name": row.name, "layer": row.word, "output": row.output.dims(), "parameters": row.parameters, "trainable": row.trainable, "flops": row.flops});
    compiled.rows.iter().map(row).collect()
}

fn document(
    session: &Session,
    compiled: &Compiled,
    eval_only: &Compiled,
    staging: [u64; 2],
) -> Json {
    let target = &compiled.plan.target;
    let groups: Vec<Json> = (compiled.groups.iter().enumerate())
        .map(|(index, group)| {
            let members = compiled.params.members(index);
            let names: Vec<&str> =
                members.iter().map(|i| compiled.params.params[*i].spec.name.as_str()).collect();
            json!({"rule": group.rule.name(), "lr_factor": group.settings.lr_factor, "weight_decay": group.settings.weight_decay, "parameters": names})
        })
        .collect();
    let programs: Vec<Json> = (programs(compiled).into_iter())
        .map(|(name, id)| {
            let cost = report::program_cost(&compiled.plan.programs[id], target);
            json!({"program": name, "ops": cost.ops, "dispatches": cost.dispatches, "flops": cost.flops})
        })
        .collect();
    json!({
        "parameters": compiled.params.parameter_count(),
        "batch_size": session.config().train.batch_size,
        "accumulate": session.config().train.accumulate,
        "steps": session.total_steps(),
        "layers": layers(compiled),
        "groups": groups,
        "programs": programs,
        "memory": {
            "train": report::memory(&compiled.plan), "eval": report::memory(&eval_only.plan),
            "train_staging": staging[0], "eval_staging": staging[1],
            "train_total": report::total_bytes(&compiled.plan) + staging[0],
            "eval_total": report::total_bytes(&eval_only.plan) + staging[1],
        },
    })
}

fn layer_table(compiled: &Compiled) {
    let mut rows = vec![["layer", "kind", "output", "parameters", "FLOPs"].map(str::to_owned)];
    for row in &compiled.rows {
        let frozen = if row.trainable { "" } else { " (frozen)" };
        rows.push([
            row.name.clone(),
            row.word.clone(),
            batch_shape(&row.output),
            format!("{}{frozen}", grouped(row.parameters as u64)),
            grouped(row.flops),
        ]);
    }
    table(&rows);
    super::print(&format!("{} parameters\n", grouped(compiled.params.parameter_count() as u64)));
}

fn program_table(compiled: &Compiled) {
    let mut rows = vec![["program", "ops", "dispatches", "FLOPs"].map(str::to_owned)];
    for (name, id) in programs(compiled) {
        let cost = report::program_cost(&compiled.plan.programs[id], &compiled.plan.target);
        rows.push([name, cost.ops.to_string(), cost.dispatches.to_string(), grouped(cost.flops)]);
    }
    table(&rows);
    super::print("");
}

fn memory_table(name: &str, compiled: &Compiled, staging: u64) {
    let mut rows = vec![[format!("memory, {name}"), "bytes".to_owned()]];
    rows.extend(
        report::memory(&compiled.plan).into_iter().map(|page| [page.kind, grouped(page.bytes)]),
    );
    rows.push(["staging".into(), grouped(staging)]);
    rows.push(["total".into(), grouped(report::total_bytes(&compiled.plan) + staging)]);
    table(&rows);
    super::print("");
}

/// How the parameters are updated: a row for each group, and one for the frozen ones.
fn group_table(compiled: &Compiled) {
    let mut rows =
        vec![["rule", "lr", "weight decay", "parameters", "numbers", "members"].map(str::to_owned)];
    let layout = &compiled.params;
    let mut add = |head: [String; 3], members: Vec<usize>| {
        let specs = || members.iter().map(|index| &layout.params[*index].spec);
        let names: Vec<&str> = specs().take(3).map(|spec| spec.name.as_str()).collect();
        let more = if members.len() > 3 { ", …" } else { "" };
        let numbers: usize = specs().map(|spec| spec.shape.elements()).sum();
        let [rule, lr, decay] = head;
        let (count, numbers) = (members.len().to_string(), grouped(numbers as u64));
        rows.push([rule, lr, decay, count, numbers, format!("{}{more}", names.join(", "))]);
    };
    for (index, group) in compiled.groups.iter().enumerate() {
        let settings = &group.settings;
        let lr = format!("× {}", settings.lr_factor);
        let head = [group.rule.name().to_owned(), lr, settings.weight_decay.to_string()];
        add(head, layout.members(index));
    }
    let frozen: Vec<usize> =
        (0..layout.params.len()).filter(|index| !layout.is_trained(*index)).collect();
    if !frozen.is_empty() {
        add(["frozen".to_owned(), "-".to_owned(), "-".to_owned()], frozen);
    }
    table(&rows);
}

/// The learning rate as a plot of characters.
fn draw_schedule(session: &Session) {
    const WIDTH: u64 = 64;
    const HEIGHT: usize = 10;
    let total = session.total_steps();
    let config = session.config();
    let base = config.optimizer.lr();
    let at = |column: u64| {
        schedule::rate(&config.schedule, base, 1 + column * (total - 1) / (WIDTH - 1), total)
    };
    let rates: Vec<f64> = (0..WIDTH).map(at).collect();
    let top = rates.iter().copied().fold(0.0, f64::max);
    for line in (1..=HEIGHT).rev() {
        let level = top * (line as f64 - 0.5) / HEIGHT as f64;
        let row: String = rates.iter().map(|r| if *r >= level { '█' } else { ' ' }).collect();
        let label = if line == HEIGHT { format!("{top:.1e}") } else { String::new() };
        super::print(&format!("{label:>8} │{}", row.trim_end()));
    }
    super::print(&format!("{:>8} └{} {total} steps", "0", "─".repeat(WIDTH as usize)));
}

/// Prints rows with aligned columns; all but the first two columns of text are right-aligned.
fn table<const N: usize>(rows: &[[String; N]]) {
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    for row in rows {
        let cells: Vec<String> = (0..N)
            .map(|i| {
                let numeric = i > 0
                    && rows[1..].iter().all(|r| r[i].starts_with(|c: char| c.is_ascii_digit()));
                if numeric {
                    format!("{:>1$}", row[i], widths[i])
                } else {
                    format!("{:<1$}", row[i], widths[i])
                }
            })
            .collect();
        super::print(cells.join("  ").trim_end());
    }
}

/// A number with its digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim() {
        "" | "B" => 1.0,
        "k" | "kB" => 1e3,
        "M" | "MB" => 1e6,
        "G" | "GB" => 1e9,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        "T" | "TB" => 1e12,
        "TiB" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        other => return Err(format!("`{other}` is no unit of bytes")),
    };
    let number: f64 = number.parse().map_err(|_| format!("`{text}` is no number of bytes"))?;
    Ok((number * factor) as u64)
}
