//! `rollback`: takes a run back to one of its checkpoints.

use std::path::PathBuf;

use clap::Args;

use super::CliError;
use crate::train::checkpoint::CheckpointError;
use crate::train::run_dir::{RunDir, holds_run};

/// Where to go back to.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  wootz rollback --run-dir checkpoints/digits-cnn --to 546
  wootz train --config configs/digits-cnn.yaml --resume checkpoints/digits-cnn")]
pub struct RollbackArgs {
    /// The run's folder.
    #[arg(long, value_name = "DIR")]
    run_dir: PathBuf,
    /// The step of the checkpoint that becomes the newest: later ones are removed.
    #[arg(long, value_name = "STEP")]
    to: u64,
}

/// Removes what came later.
pub fn run(args: RollbackArgs) -> Result<u8, CliError> {
    if !holds_run(&args.run_dir) {
        return Err(CliError::Usage(format!("{}: there is no run", args.run_dir.display())));
    }
    let removed = RunDir::roll_back(&args.run_dir, args.to).map_err(|error| match error {
        CheckpointError::Mismatch { path, reason } => {
            CliError::Usage(format!("{}: {reason}", path.display()))
        }
        other => CliError::File(other),
    })?;
    for path in &removed {
        super::eprint(&format!("removed {}", path.display()));
    }
    super::print(&format!("{} ends after step {}", args.run_dir.display(), args.to));
    Ok(0)
}
