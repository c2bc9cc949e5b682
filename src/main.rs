//! The `wootz` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    wootz::cli::main()
}
