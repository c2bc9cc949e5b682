//! `report`: a run as one page of HTML that needs no network: curves, plan, tables, configuration.

mod series;

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value as Json, json};

use super::CliError;
use super::differences;
use crate::config::train::Mode;
use crate::train::checkpoint::CheckpointError;
use crate::train::records::csv::each_line;
use crate::train::run_dir::{self, RunDir, RunInfo};
use series::{Series, charts};

/// Of which run.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  wootz report checkpoints/digits-cnn
  wootz report checkpoints/digits-cnn --compare checkpoints/digits-cnn-2 --output both.html")]
pub struct ReportArgs {
    /// The run's folder.
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Draw this run beside it, and list what differs in their configurations.
    #[arg(long, value_name = "RUN2")]
    compare: Option<PathBuf>,
    /// The page. Without it: report.html in the run's folder.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

const PAGE: &str = include_str!("page.html");

/// Writes the page.
pub fn run(args: ReportArgs) -> Result<u8, CliError> {
    let record = Record::read(&args.run)?;
    let other = args.compare.as_deref().map(Record::read).transpose()?;
    let document = document(&record, other.as_ref());
    // So that no text in it ends the script it stands in.
    let data = document.to_string().replace("</", "<\\/");
    let page =
        PAGE.replacen("@title@", &escaped(&record.info.name), 1).replacen("@data@", &data, 1);
    let output = args.output.unwrap_or_else(|| args.run.join("report.html"));
    std::fs::write(&output, page).map_err(CheckpointError::io("write", &output))?;
    super::print(&format!("wrote {}", output.display()));
    Ok(0)
}

/// What a run's folder says.
struct Record {
    path: PathBuf,
    info: RunInfo,
    config: String,
    plan: Json,
    series: Vec<Series>,
    /// The latest matrix of each name, with its step.
    matrices: Vec<(String, u64, Json)>,
    seconds: f64,
}

impl Record {
    fn read(path: &Path) -> Result<Self, CliError> {
        if !run_dir::holds_run(path) {
            let problem = "there is no run in this folder";
            return Err(CliError::Usage(format!("{}: {problem}", path.display())));
        }
        let mut record = Record {
            path: path.to_owned(),
            info: RunDir::info(path)?,
            config: RunDir::config(path)?,
            plan: RunDir::plan(path).unwrap_or_default(),
            series: Vec::new(),
            matrices: Vec::new(),
            seconds: 0.0,
        };
        let metrics = path.join("metrics.jsonl");
        each_line(&metrics, |line| {
            record.take(line);
            Ok(())
        })
        .map_err(CheckpointError::io("read", &metrics))?;
        Ok(record)
    }

    fn take(&mut self, line: &Json) {
        let Some(step) = line["step"].as_u64() else { return };
        for (name, value) in line.as_object().into_iter().flatten() {
            if let Some(number) = value.as_f64() {
                self.add(name, step, number);
            } else if name.ends_with("confusion_matrix") && value[0][0].is_u64() {
                self.matrices.retain(|(other, ..)| other != name);
                self.matrices.push((name.clone(), step, value.clone()));
            }
        }
        if let (Some(weight), Some(seconds)) = (line["weight"].as_f64(), line["seconds"].as_f64())
            && seconds > 0.0
        {
            self.add("throughput", step, weight / seconds);
            self.seconds += seconds;
        }
    }

    fn add(&mut self, name: &str, step: u64, value: f64) {
        if ["step", "epoch", "weight", "seconds"].contains(&name) {
            return;
        }
        match self.series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push((step, value)),
            None => self.series.push(Series { name: name.to_owned(), points: vec![(step, value)] }),
        }
    }

    /// Each number of the validations: the last one and the best.
    fn results(&self) -> Vec<Json> {
        let held_out = |series: &&Series| {
            ["valid/", "average/"].iter().any(|set| series.name.starts_with(set))
        };
        let row = |series: &Series| {
            let smaller = Mode::natural(&series.name) == Mode::Min;
            let better = |a: f64, b: f64| if smaller { a < b } else { a > b };
            let mut points = series.points.iter();
            let first = points.next()?;
            let best = points.fold(first, |best, at| if better(at.1, best.1) { at } else { best });
            let last = series.points.last()?;
            Some(json!({
                "name": series.name, "last": last.1, "last_step": last.0, "best": best.1, "best_step": best.0,
            }))
        };
        self.series.iter().filter(held_out).filter_map(row).collect()
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let steps = self.series.iter().filter_map(|series| series.points.last());
        let steps = steps.map(|(step, _)| *step).max().unwrap_or(0);
        let start = self.info.starts.last();
        let device = start.map_or(String::new(), |start| {
            let text = |key: &str| start.device[key].as_str().unwrap_or_default().to_owned();
            format!("{} ({}), {}", text("name"), text("backend"), start.precision)
        });
        let plural = if self.info.starts.len() == 1 { "" } else { "s" };
        vec![
            ("folder", self.path.display().to_string()),
            ("steps", format!("{steps}, in {} start{plural}", self.info.starts.len())),
            ("time of all steps", duration(self.seconds)),
            ("parameters", self.info.parameters.to_string()),
            ("device", device),
            ("seed", self.info.seed.to_string()),
            ("wootz", self.info.wootz.clone()),
        ]
    }

    fn document(&self) -> Json {
        let series: serde_json::Map<String, Json> =
            self.series.iter().map(|series| (series.name.clone(), series.drawn())).collect();
        json!({
            "name": self.info.name,
            "facts": self.facts(),
            "results": self.results(),
            "series": series,
        })
    }
}

fn document(record: &Record, other: Option<&Record>) -> Json {
    let names = record.series.iter().chain(other.into_iter().flat_map(|other| &other.series));
    let matrices: Vec<Json> = (record.matrices.iter())
        .map(|(name, step, rows)| json!({"name": name, "step": step, "rows": rows}))
        .collect();
    let runs: Vec<Json> = std::iter::once(record).chain(other).map(Record::document).collect();
    let differences: Option<Vec<Json>> = other.map(|other| {
        let found = differences::all(&record.config, &other.config);
        found.into_iter().map(|d| json!([d.path, d.old, d.new])).collect()
    });
    json!({
        "runs": runs,
        "charts": charts(names.map(|series| series.name.as_str())),
        "matrices": matrices,
        "plan": record.plan,
        "config": record.config,
        "differences": differences,
    })
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.1} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
