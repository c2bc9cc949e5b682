//! `watch`: a run while it goes on, in the terminal. Reads the run's folder only, so it can be
//! begun and ended at any time, for any number of runs.

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Chart, Dataset, Gauge, GraphType, Paragraph};
use serde_json::Value as Json;

use super::CliError;
use crate::train::checkpoint::CheckpointError;
use crate::train::records::numbers;
use crate::train::run_dir::{self, RunDir};

/// Which run.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  wootz watch checkpoints/digits-cnn        q ends it; the run goes on")]
pub struct WatchArgs {
    /// The run's folder.
    #[arg(value_name = "RUN")]
    run: PathBuf,
}

/// How often the folder is looked at.
const EVERY: Duration = Duration::from_millis(250);
/// Steps that the speed is measured over.
const RECENT: usize = 50;

/// Draws until `q`.
pub fn run(args: WatchArgs) -> Result<u8, CliError> {
    if !run_dir::holds_run(&args.run) {
        let problem = "there is no run in this folder";
        return Err(CliError::Usage(format!("{}: {problem}", args.run.display())));
    }
    if !std::io::stdout().is_terminal() {
        let problem =
            "`watch` draws on a terminal; metrics.jsonl and `wootz report` are for others";
        return Err(CliError::Usage(problem.into()));
    }
    let mut view = View::open(&args.run)?;
    let mut terminal = ratatui::init();
    let result = follow(&mut terminal, &mut view);
    ratatui::restore();
    result.map_err(CheckpointError::io("watch", &args.run))?;
    Ok(0)
}

fn follow(terminal: &mut ratatui::DefaultTerminal, view: &mut View) -> std::io::Result<()> {
    loop {
        view.read()?;
        terminal.draw(|frame| view.draw(frame))?;
        let start = Instant::now();
        while event::poll(EVERY.saturating_sub(start.elapsed()))? {
            if let Event::Key(key) = event::read()? {
                let control_c = key.modifiers.contains(KeyModifiers::CONTROL);
                match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                    KeyCode::Char('c') if control_c => return Ok(()),
                    _ => {}
                }
            }
        }
    }
}

/// What is known of a run so far.
struct View {
    metrics: PathBuf,
    name: String,
    device: String,
    parameters: usize,
    total_steps: Option<u64>,
    /// Bytes of metrics.jsonl that are read.
    read: u64,
    step: u64,
    /// Training losses and those held out, by step.
    losses: [Vec<(f64, f64)>; 2],
    /// The numbers of the last step, and those of the last validation.
    latest: [Vec<(String, f64)>; 2],
    /// Seconds of the latest steps.
    seconds: Vec<f64>,
}

impl View {
    fn open(run: &Path) -> Result<Self, CliError> {
        let info = RunDir::info(run)?;
        let device = info.starts.last().and_then(|start| start.device["name"].as_str());
        Ok(View {
            metrics: run.join("metrics.jsonl"),
            name: info.name,
            device: device.unwrap_or_default().to_owned(),
            parameters: info.parameters,
            total_steps: RunDir::plan(run).ok().and_then(|plan| plan["steps"].as_u64()),
            read: 0,
            step: 0,
            losses: [Vec::new(), Vec::new()],
            latest: [Vec::new(), Vec::new()],
            seconds: Vec::new(),
        })
    }

    /// Takes in the lines that are new. A file that has become shorter belongs to a run that went
    /// back: it is read anew.
    fn read(&mut self) -> std::io::Result<()> {
        let mut file = match File::open(&self.metrics) {
            Ok(file) => file,
            // Before the first line.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        if file.metadata()?.len() < self.read {
            self.read = 0;
            self.losses.iter_mut().for_each(Vec::clear);
            self.seconds.clear();
        }
        file.seek(SeekFrom::Start(self.read))?;
        let mut lines = BufReader::new(file);
        let mut line = String::new();
        // A line without its end is still being written.
        while lines.read_line(&mut line)? > 0 && line.ends_with('\n') {
            self.read += line.len() as u64;
            if let Ok(json) = serde_json::from_str(&line) {
                self.take(&json);
            }
            line.clear();
        }
        Ok(())
    }

    fn take(&mut self, line: &Json) {
        let Some(step) = line["step"].as_u64() else { return };
        self.step = step;
        let trained = line.get("train/loss").is_some();
        let set = usize::from(!trained);
        let loss = line[if trained { "train/loss" } else { "valid/loss" }].as_f64();
        self.losses[set].extend(loss.map(|loss| (step as f64, loss)));
        self.latest[set] = numbers(line).map(|(name, value)| (name.to_owned(), value)).collect();
        if let Some(seconds) = line["seconds"].as_f64() {
            self.seconds.push(seconds);
            let old = self.seconds.len().saturating_sub(RECENT);
            self.seconds.drain(..old);
        }
    }

    /// Steps in a second, lately.
    fn speed(&self) -> Option<f64> {
        let total: f64 = self.seconds.iter().sum();
        (total > 0.0).then(|| self.seconds.len() as f64 / total)
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let rows = [Constraint::Length(3), Constraint::Min(8), Constraint::Length(8)];
        let [head, chart, below] = Layout::vertical(rows).areas(frame.area());
        let halves = [Constraint::Fill(1), Constraint::Fill(1)];
        let [left, right] = Layout::horizontal(halves).areas(below);
        self.draw_head(frame, head);
        self.draw_losses(frame, chart);
        draw_numbers(frame, left, " last step ", &self.latest[0]);
        draw_numbers(frame, right, " last validation ", &self.latest[1]);
    }

    fn draw_head(&self, frame: &mut Frame<'_>, area: Rect) {
        let title = format!(" {}: {} parameters on {} ", self.name, self.parameters, self.device);
        let block = Block::bordered().title(title.bold()).title_bottom(" q ends ");
        let total = self.total_steps.filter(|total| *total > 0);
        let mut label = match total {
            Some(total) => format!("step {} of {total}", self.step),
            None => format!("step {}", self.step),
        };
        if let Some(speed) = self.speed() {
            label += &format!("   {speed:.1} steps/s");
            if let Some(left) = total.and_then(|total| total.checked_sub(self.step)) {
                label += &format!("   {} left", clock(left as f64 / speed));
            }
        }
        let share = total.map_or(0.0, |total| (self.step as f64 / total as f64).min(1.0));
        let gauge = Gauge::default().block(block).gauge_style(Color::Cyan).ratio(share);
        frame.render_widget(gauge.label(label), area);
    }

    fn draw_losses(&self, frame: &mut Frame<'_>, area: Rect) {
        let finite = |points: &[(f64, f64)]| -> Vec<(f64, f64)> {
            points.iter().copied().filter(|(_, loss)| loss.is_finite()).collect()
        };
        let [trained, held_out] = [finite(&self.losses[0]), finite(&self.losses[1])];
        let all = || trained.iter().chain(&held_out);
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        all().for_each(|(_, loss)| (low, high) = (low.min(*loss), high.max(*loss)));
        let block = Block::bordered().title(" loss ");
        if all().next().is_none() {
            return frame.render_widget(Paragraph::new("no step is done yet").block(block), area);
        }
        let air = ((high - low) * 0.05).max(1e-6);
        let (low, high) = (low - air, high + air);
        let last = self.step.max(2) as f64;
        let set = |name: &'static str, points, colour: Color| {
            let line = Dataset::default().name(name).marker(Marker::Braille).data(points);
            line.graph_type(GraphType::Line).style(Style::new().fg(colour))
        };
        let sets =
            vec![set("train", &trained, Color::Cyan), set("valid", &held_out, Color::Yellow)];
        let across = Axis::default().bounds([1.0, last]).labels(["1".into(), format!("{last}")]);
        let marks = [low, (low + high) / 2.0, high].map(|mark| format!("{mark:.3}"));
        let up = Axis::default().bounds([low, high]).labels(marks);
        frame.render_widget(Chart::new(sets).block(block).x_axis(across).y_axis(up), area);
    }
}

fn draw_numbers(frame: &mut Frame<'_>, area: Rect, title: &str, values: &[(String, f64)]) {
    let line = |(name, value): &(String, f64)| {
        let number = if *value != 0.0 && value.abs() < 1e-3 {
            format!("{value:.3e}")
        } else {
            format!("{value:.4}")
        };
        Line::from(vec![Span::raw(format!("{name:<24}")), Span::raw(number).bold()])
    };
    let lines: Vec<Line<'_>> = values.iter().map(line).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(title)), area);
}

fn clock(seconds: f64) -> String {
    let seconds = seconds as u64;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    if hours > 0 {
        format!("{hours} h {minutes} min")
    } else {
        format!("{minutes}:{:02}", seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    use super::*;

    fn view(folder: &Path) -> View {
        View {
            metrics: folder.join("metrics.jsonl"),
            name: "digits".into(),
            device: "a CPU".into(),
            parameters: 42,
            total_steps: Some(200),
            read: 0,
            step: 0,
            losses: [Vec::new(), Vec::new()],
            latest: [Vec::new(), Vec::new()],
            seconds: Vec::new(),
        }
    }

    fn screen(view: &View) -> String {
        let mut terminal = Terminal::new(TestBackend::new(90, 30)).expect("a terminal");
        terminal.draw(|frame| view.draw(frame)).expect("drawn");
        let buffer = terminal.backend().buffer();
        let rows = buffer.content.chunks(90);
        rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>() + "\n").collect()
    }

    #[test]
    fn a_run_is_followed_line_by_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut view = view(folder.path());
        view.read().expect("no file yet");
        assert!(screen(&view).contains("no step is done yet"));

        let mut text = String::new();
        for step in 1..=100 {
            let loss = 2.0 / f64::from(step);
            let line = json!({"step": step, "train/loss": loss, "lr": 1e-4, "seconds": 0.5});
            text += &format!("{line}\n");
        }
        text += &format!("{}\n", json!({"step": 100, "valid/loss": 0.5, "valid/accuracy": 0.75}));
        std::fs::write(&view.metrics, text.clone() + "{\"step\": 101, \"tra").expect("written");
        view.read().expect("read");
        let shown = screen(&view);
        assert!(shown.contains("digits: 42 parameters on a CPU"), "{shown}");
        assert!(shown.contains("step 100 of 200   2.0 steps/s   0:50 left"), "{shown}");
        assert!(shown.contains("valid/accuracy          0.7500"), "{shown}");
        assert!(shown.contains("lr                      1.000e-4"), "{shown}");

        std::fs::write(&view.metrics, &text[..text.len() / 2]).expect("written");
        view.read().expect("read");
        assert!(view.step < 100, "a run that went back is read anew");
        assert_eq!(view.losses[0].len() as u64, view.step);
    }
}
