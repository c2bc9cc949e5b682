//! `check`: everything but running.

use clap::Args;

use super::session::Session;
use super::{CliError, ConfigArgs};
use crate::ops::Target;
use crate::train::weights;

/// What to check.
#[derive(Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    config: ConfigArgs,
}

/// Loads the configuration and its data, builds and plans the model, and holds the file of `weights`
/// against it.
pub fn run(args: CheckArgs) -> Result<u8, CliError> {
    let session = Session::open(&args.config)?;
    let compiled = session.compile(&Target::Cpu)?;
    if let Some(given) = &session.config().weights {
        weights::check(&compiled, given)?;
    }
    super::print(&format!(
        "{}: good; {} layers, {} parameters, {} training samples, {} steps",
        args.config.config.display(),
        compiled.rows.len(),
        compiled.params.parameter_count(),
        session.data.train.len(),
        session.total_steps(),
    ));
    Ok(0)
}
