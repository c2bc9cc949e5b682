//! What a person sees of a run, on stderr: a bar where that is a terminal, else a line now and
//! then.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Seconds between lines where there is no bar.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Shows the run's progress.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    quiet: bool,
    total: u64,
    last_line: Instant,
}

impl Progress {
    /// For a run of `total` steps of which `done` are done. `quiet` shows nothing.
    pub fn new(total: u64, done: u64, quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal() && !quiet && !crate::log::is_json();
        let target = if terminal {
            ProgressDrawTarget::stderr_with_hz(8)
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(total), target);
        // The template is a constant of this program; the plain bar would do as well.
        let style =
            ProgressStyle::with_template("{bar:20.cyan/blue} {pos}/{len} {wide_msg} {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_position(done);
        bar.reset_eta();
        Progress { bar, quiet, total, last_line: Instant::now() }
    }

    /// A step's numbers have arrived.
    pub fn step(&mut self, step: u64, loss: f64, rate: f64) {
        self.bar.set_position(step);
        if self.bar.is_hidden() {
            if !self.quiet && self.last_line.elapsed() >= LINE_EVERY {
                self.last_line = Instant::now();
                self.line(&format!("step {step}/{} loss {loss:.4} lr {rate:.2e}", self.total));
            }
        } else if self.last_line.elapsed() >= Duration::from_millis(100) {
            self.last_line = Instant::now();
            self.bar.set_message(format!("loss {loss:.4} lr {rate:.1e}"));
        }
    }

    /// An evaluation's numbers.
    pub fn evaluated(&mut self, step: u64, metrics: &[(String, f64)]) {
        let words: Vec<String> =
            metrics.iter().map(|(name, value)| format!("{name} {value:.4}")).collect();
        self.line(&format!("step {step}/{}: {}", self.total, words.join(", ")));
    }

    /// A line that stays, above the bar where there is one.
    pub fn line(&self, text: &str) {
        if self.quiet {
            return;
        }
        if self.bar.is_hidden() {
            crate::log::say(text);
        } else {
            self.bar.println(text);
        }
    }

    /// The run is over.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
