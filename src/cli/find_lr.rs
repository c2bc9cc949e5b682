//! `find-lr`: tries learning rates on a few steps that leave no trace.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::session::Session;
use super::{CliError, ConfigArgs};
use crate::train::checkpoint::CheckpointError;
use crate::train::find_lr::{Found, Point, Range, Trial};
use crate::train::model_io;

/// Which rates to try.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  wootz find-lr --config configs/digits-cnn.yaml
  wootz find-lr --config configs/digits-cnn.yaml --start 1e-5 --end 1 --steps 200 --csv rates.csv
  wootz find-lr --config configs/digits-cnn.yaml --from checkpoints/digits-cnn")]
pub struct FindLrArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Begin with the weights, moments and step of a run, or of one of its checkpoints; the run
    /// itself stays as it is.
    #[arg(long, value_name = "RUN_OR_CHECKPOINT")]
    from: Option<PathBuf>,
    /// The learning rate of the first step.
    #[arg(long, value_name = "LR", default_value_t = 1e-7, value_parser = parse_rate)]
    start: f64,
    /// The learning rate of the last step.
    #[arg(long, value_name = "LR", default_value_t = 10.0, value_parser = parse_rate)]
    end: f64,
    /// Steps, at most: the test ends where the loss diverges.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    steps: u32,
    /// Write the points to this file as well: lr, loss, smoothed, slope.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// One JSON document instead of a plot.
    #[arg(long)]
    json: bool,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate.is_finite() => Ok(rate),
        _ => Err("a learning rate is a number above 0".into()),
    }
}

/// Runs the test.
pub fn run(args: FindLrArgs) -> Result<u8, CliError> {
    if args.start >= args.end {
        let (start, end) = (args.start, args.end);
        return Err(CliError::Usage(format!("`--start` {start} is not below `--end` {end}")));
    }
    let session = Session::open(&args.config)?;
    let snapshot = match &args.from {
        Some(from) => Some(super::eval::find(from, true)?.2),
        None => None,
    };
    let device = session.device()?;
    // Nothing is evaluated.
    let compiled =
        session.compile_sizes(&device.target(), session.batches().sizes(), Vec::new())?;
    let mut executor = device.prepare(&compiled.plan)?;
    match &snapshot {
        Some(snapshot) => model_io::restore(executor.as_mut(), &compiled, snapshot, true)?,
        None => session.first_values(&compiled, executor.as_mut())?,
    }
    let trial = Trial {
        config: session.config(),
        compiled: &compiled,
        train: session.data.train.clone(),
        batches: session.batches(),
        done: snapshot.map_or(0, |snapshot| snapshot.state.step),
    };
    let range = Range { start: args.start, end: args.end, steps: args.steps as usize };
    let found = trial.run(executor.as_mut(), &range)?;
    if let Some(path) = &args.csv {
        write_csv(path, &found.points)?;
    }
    if args.json {
        let rate = |point: Option<&Point>| point.map(|point| point.lr);
        let document = json!({
            "points": found.points, "diverged": found.diverged, "steepest": rate(found.steepest()),
            "least": rate(found.least()), "lr": session.config().optimizer.lr(),
        });
        super::print(&document.to_string());
    } else {
        show(&found, session.config().optimizer.lr());
    }
    Ok(0)
}

fn write_csv(path: &Path, points: &[Point]) -> Result<(), CliError> {
    let failed = |error: csv::Error| {
        let (action, path) = ("write", path.to_owned());
        CliError::File(CheckpointError::Io { action, path, error: error.into() })
    };
    let mut writer = csv::Writer::from_path(path).map_err(failed)?;
    for point in points {
        writer.serialize(point).map_err(failed)?;
    }
    writer.flush().map_err(|error| failed(error.into()))
}

/// Draws the mean of the losses around each rate over the logarithm of the rate.
fn show(found: &Found, configured: f64) {
    const WIDTH: usize = 64;
    const HEIGHT: usize = 12;
    let points = &found.points;
    let (Some(first), Some(last), Some(least)) = (points.first(), points.last(), found.least())
    else {
        return super::print("the loss is not finite at the first rate already");
    };
    let low = least.smoothed;
    // What lies above all that came before the least is divergence, which is drawn at the top.
    let until = points.iter().filter(|point| point.lr <= least.lr);
    let high = until.map(|point| point.smoothed).fold(low, f64::max);
    let span = (last.lr / first.lr).ln();
    let column = |lr: f64| {
        if span > 0.0 {
            ((lr / first.lr).ln() / span * (WIDTH - 1) as f64).round() as usize
        } else {
            0
        }
    };
    let mut canvas = vec![[' '; WIDTH]; HEIGHT];
    for point in points {
        let height =
            if high > low { ((point.smoothed - low) / (high - low)).min(1.0) } else { 0.0 };
        let row = HEIGHT - 1 - (height * (HEIGHT - 1) as f64).round() as usize;
        canvas[row][column(point.lr)] = '•';
    }
    for (index, row) in canvas.iter().enumerate() {
        let label = match index {
            0 => format!("{high:.4}"),
            _ if index == HEIGHT - 1 => format!("{low:.4}"),
            _ => String::new(),
        };
        super::print(format!("{label:>10} │{}", row.iter().collect::<String>()).trim_end());
    }
    let ends = [first.lr, last.lr].map(|lr| format!("{lr:.1e}"));
    super::print(&format!("{:>10} └{}", "loss", "─".repeat(WIDTH)));
    let gap = WIDTH - ends[0].chars().count();
    super::print(&format!("{:>12}{}{:>gap$}", "", ends[0], ends[1]));
    super::print("");
    if let Some(steepest) = found.steepest() {
        super::print(&format!("steepest fall       {:.1e}", steepest.lr));
    } else {
        super::print("the loss does not fall at any rate");
    }
    super::print(&format!("a tenth of the least {:.1e}", least.lr / 10.0));
    super::print(&format!("optimizer's lr      {configured:.1e}"));
    if found.diverged {
        super::print(&format!("the loss diverges after {:.1e}", last.lr));
    }
}
