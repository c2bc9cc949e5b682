//! `generate`: shell completions and the man page, from the command line's own definition.

use clap::{Args, Command, Subcommand};
use clap_complete::Shell;

use super::CliError;

/// What to print.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Completions for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// The man page.
    Man,
}

/// Prints it.
pub fn run(args: GenerateArgs, mut command: Command) -> Result<u8, CliError> {
    let mut text = Vec::new();
    match args.what {
        What::Completions { shell } => {
            clap_complete::generate(shell, &mut command, "wootz", &mut text)
        }
        What::Man => {
            if let Err(error) = clap_mangen::Man::new(command).render(&mut text) {
                return Err(CliError::Usage(format!("cannot write the man page: {error}")));
            }
        }
    }
    super::print(String::from_utf8_lossy(&text).trim_end());
    Ok(0)
}
