//! What goes to stderr: log lines by tracing, and what a person is told, which becomes a log line
//! too where logs are JSON, so that every line of stderr is a document then.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use tracing_subscriber::EnvFilter;

static JSON: AtomicBool = AtomicBool::new(false);

/// Starts the log: -v says what is done, -vv how. `WOOTZ_LOG` sets the filter itself.
pub fn start(verbose: u8, json: bool) {
    JSON.store(json, Ordering::Relaxed);
    // What a person is told comes as `info`.
    let quiet = if json { "info" } else { "warn" };
    let level = [quiet, "info", "debug", "trace"][usize::from(verbose.min(3))];
    let filter = EnvFilter::try_from_env("WOOTZ_LOG")
        .unwrap_or_else(|_| EnvFilter::new(format!("wootz={level},warn")));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if json {
        builder.json().init();
    } else {
        let ansi = std::io::stderr().is_terminal();
        builder.with_ansi(ansi).without_time().with_target(false).init();
    }
}

/// Whether logs are JSON.
pub fn is_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// Tells the person something: a line on stderr.
pub fn say(text: &str) {
    if is_json() {
        tracing::info!("{text}");
    } else {
        // Where stderr is closed there is nobody to tell.
        let _ = writeln!(std::io::stderr(), "{text}");
    }
}
