//! `doctor`: the devices of this machine, and whether they compute every op rightly.

use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::CliError;
use crate::device::agreement::{TOLERANCE, Trial, difference};
use crate::device::gpu::{self, Options};
use crate::device::{DeviceError, cpu};
use crate::ops::{Family, Target, families};
use crate::plan::Precision;

/// What to look at.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  wootz doctor                     lists the devices and tests the one that `auto` means
  wootz doctor --device metal      tests this one")]
pub struct DoctorArgs {
    /// The device to test.
    #[arg(long, default_value = "auto")]
    device: String,
    /// Only list the devices.
    #[arg(long)]
    list: bool,
    /// One JSON document.
    #[arg(long)]
    json: bool,
}

/// How one family of ops did on a device.
#[derive(Clone, Debug, Serialize)]
struct Outcome {
    op: &'static str,
    cases: usize,
    /// The largest relative difference from double precision on the CPU.
    worst: f64,
    /// The first case that failed, and how.
    failure: Option<String>,
}

/// Looks.
pub fn run(args: DoctorArgs) -> Result<u8, CliError> {
    let adapters = gpu::adapters();
    let processor = cpu::info(0);
    if !args.json {
        super::print(&format!("cpu      {}", processor.name));
        for adapter in &adapters {
            let kind = if adapter.hardware { "" } else { "  (software: used only by name)" };
            super::print(&format!(
                "{:<8} {}  {}{kind}",
                adapter.info.backend, adapter.info.name, adapter.info.driver
            ));
            super::print(&format!(
                "         bindings up to {} MiB, buffers up to {} MiB, {} storage buffers, {} KiB of workgroup memory",
                adapter.binding_bytes >> 20,
                adapter.buffer_bytes >> 20,
                adapter.storage_bindings,
                adapter.workgroup_bytes >> 10
            ));
        }
    }
    if args.list {
        if args.json {
            super::print(&json!({"cpu": processor, "adapters": adapters}).to_string());
        }
        return Ok(0);
    }
    let (name, outcomes) = test(&args.device, !args.json)?;
    let failed: Vec<&Outcome> = outcomes.iter().filter(|o| o.failure.is_some()).collect();
    if args.json {
        let document = json!({"cpu": processor, "adapters": adapters, "tested": name, "tolerance": TOLERANCE, "ops": outcomes, "ok": failed.is_empty()});
        super::print(&document.to_string());
    }
    match failed.first() {
        None => {
            super::eprint(&format!(
                "{name}: all ops agree with double precision within {TOLERANCE:.0e}"
            ));
            Ok(0)
        }
        Some(first) => Err(CliError::Differs(format!(
            "{name}: {} of {} op families are wrong, first `{}`: {}. Do not train on this device; please report it.",
            failed.len(),
            outcomes.len(),
            first.op,
            first.failure.as_deref().unwrap_or_default()
        ))),
    }
}

/// Tests every family on the device that a word means.
fn test(asked: &str, show: bool) -> Result<(String, Vec<Outcome>), CliError> {
    let hardware = if asked == "cpu" { None } else { open(asked)? };
    let name = match &hardware {
        None => "cpu".to_owned(),
        Some(device) => format!("{} ({})", device.info().name, device.info().backend),
    };
    let mut outcomes = Vec::new();
    for family in families() {
        let outcome = test_family(&family, hardware.as_ref());
        if show {
            let state = outcome
                .failure
                .as_ref()
                .map_or("ok".to_owned(), |failure| format!("FAILED {failure}"));
            super::print(&format!(
                "{:<16} f32  {:>3} cases  largest difference {:.1e}  {state}",
                outcome.op, outcome.cases, outcome.worst
            ));
        }
        outcomes.push(outcome);
    }
    Ok((name, outcomes))
}

fn open(asked: &str) -> Result<Option<gpu::GpuDevice>, CliError> {
    match gpu::open(asked) {
        Ok(device) => Ok(Some(device)),
        Err(DeviceError::NotFound { .. }) if asked == "auto" => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn test_family(family: &Family, gpu: Option<&gpu::GpuDevice>) -> Outcome {
    let cases = (family.cases)();
    let mut outcome = Outcome { op: family.name, cases: cases.len(), worst: 0.0, failure: None };
    for case in &cases {
        let found = Trial::new(case).and_then(|trial| {
            let found = match gpu {
                None => trial.on_cpu_executor()?,
                Some(device) => on_gpu(&trial, device)?,
            };
            Ok(difference(&found, &trial.reference()))
        });
        match found {
            Ok(error) => {
                outcome.worst = outcome.worst.max(error);
                if error > TOLERANCE {
                    outcome.failure.get_or_insert(format!("{}: difference {error:.1e}", case.name));
                }
            }
            Err(error) => _ = outcome.failure.get_or_insert(format!("{}: {error}", case.name)),
        }
    }
    outcome
}

fn on_gpu(trial: &Trial, device: &gpu::GpuDevice) -> Result<Vec<Vec<f32>>, String> {
    let run = || -> Result<Vec<Vec<f32>>, DeviceError> {
        let plan = trial
            .plan(&Target::Gpu(device.limits()), Precision::Single)
            .map_err(DeviceError::Unfit)?;
        let mut executor = device.clone().prepare(&plan, Options::default())?;
        trial.on(&mut executor, &plan, true)
    };
    run().map_err(|error| error.to_string())
}
