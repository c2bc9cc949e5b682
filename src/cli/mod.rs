//! The command line: one file per subcommand. Results go to stdout, everything else to stderr.
//!
//! Exit codes: 0 done; 1 a file that cannot be written or a damaged checkpoint; 2 a wrong
//! configuration or command line; 3 data; 4 a device; 5 training stopped by a health rule; 130
//! and 143 after SIGINT and SIGTERM, with a checkpoint saved.

mod bench;
mod check;
mod compare;
mod differences;
mod doctor;
mod error;
mod eval;
mod find_lr;
mod generate;
mod plan;
mod predict;
mod report;
mod rollback;
mod schema;
mod session;
mod sweep;
mod train;
mod tune;
mod verify;
mod watch;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

pub use error::CliError;

use crate::log;

/// Trains neural networks that are written down in YAML.
#[derive(Debug, Parser)]
#[command(name = "wootz", version, about, max_term_width = 100, after_help = EXAMPLES)]
struct Cli {
    /// Say more on stderr: -v for what is done, -vv for how.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// How log lines look.
    #[arg(long, global = true, value_enum, default_value = "text")]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  wootz train --config configs/digits-cnn.yaml
  wootz train --config configs/digits-cnn.yaml --set optimizer.adamw.lr=0.01 --device cpu
  wootz train --config configs/digits-cnn.yaml --resume
  wootz plan --config configs/char-gpt.yaml
  wootz eval --run checkpoints/digits-cnn";

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON document a line.
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Train a model, or continue a run.
    Train(train::TrainArgs),
    /// Train a configuration many times with different values, and compare.
    Sweep(sweep::SweepArgs),
    /// Measure a trained model on a set.
    Eval(eval::EvalArgs),
    /// Answer for each sample of a set, or continue a text.
    Predict(predict::PredictArgs),
    /// Draw a run as one page of HTML.
    Report(report::ReportArgs),
    /// Follow a run in the terminal.
    Watch(watch::WatchArgs),
    /// Take a run back to one of its checkpoints.
    Rollback(rollback::RollbackArgs),
    /// Try learning rates on a few steps that leave no trace.
    FindLr(find_lr::FindLrArgs),
    /// Show what a step will do and hold, without running it.
    Plan(plan::PlanArgs),
    /// Find everything that is wrong with a configuration.
    Check(check::CheckArgs),
    /// Compare every op of a model's step between this device and the CPU.
    Verify(verify::VerifyArgs),
    /// Show the devices of this machine and test them.
    Doctor(doctor::DoctorArgs),
    /// Time the training step of a configuration.
    Bench(bench::BenchArgs),
    /// Print the JSON schema of configurations, or the reference in Markdown.
    Schema(schema::SchemaArgs),
    /// Print completions for a shell, or the man page.
    Generate(generate::GenerateArgs),
}

/// Which configuration.
#[derive(Debug, Clone, Args)]
pub struct ConfigArgs {
    /// The configuration.
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
    /// Set a key, such as `train.batch_size=32` or `model.layers[0].linear.out_features=8`.
    #[arg(long = "set", value_name = "KEY.PATH=VALUE")]
    pub sets: Vec<String>,
    /// Run on this device instead of the configuration's: auto, cpu, metal, vulkan, dx12, or a
    /// part of a GPU's name.
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    // Mesa's device-select layer complains on stderr where there is no desktop session.
    // SAFETY: nothing else runs yet in this process.
    #[allow(unsafe_code, reason = "the layer can only be told through the environment")]
    unsafe {
        std::env::set_var("NODEVICE_SELECT", "1");
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = error.exit_code();
            // Where the stream is closed there is nobody to tell.
            let _ = error.print();
            return ExitCode::from(code as u8);
        }
    };
    log::start(cli.verbose, matches!(cli.log_format, LogFormat::Json));
    let result = match cli.command {
        Command::Train(args) => train::run(args),
        Command::Sweep(args) => sweep::run(args),
        Command::Eval(args) => eval::run(args),
        Command::Predict(args) => predict::run(args),
        Command::Report(args) => report::run(args),
        Command::Watch(args) => watch::run(args),
        Command::Rollback(args) => rollback::run(args),
        Command::FindLr(args) => find_lr::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Check(args) => check::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Schema(args) => schema::run(args),
        Command::Generate(args) => generate::run(args, Cli::command()),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprint(&error.to_string());
            ExitCode::from(error.exit_code())
        }
    }
}

/// Writes a line to stdout. A reader that went away (`| head`) is no error; anything else ends the
/// command with exit code 1, because its result is lost.
pub(crate) fn print(text: &str) {
    let mut stdout = std::io::stdout();
    if let Err(error) = writeln!(stdout, "{text}").and_then(|()| stdout.flush())
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        eprint(&format!("error: cannot write to stdout: {error}"));
        std::process::exit(1);
    }
}

/// Tells the person something, on stderr.
pub(crate) use crate::log::say as eprint;
