//! `schema`: what configurations may hold, generated from the types.

use clap::Args;

use super::CliError;
use crate::config::reference;
use crate::layers;

/// Which form.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// The reference of all sections in Markdown instead of the JSON schema.
    #[arg(long)]
    markdown: bool,
    /// The layers in Markdown.
    #[arg(long, conflicts_with = "markdown")]
    layers: bool,
}

/// Prints it.
pub fn run(args: SchemaArgs) -> Result<u8, CliError> {
    let text = if args.markdown {
        reference::config_markdown()
    } else if args.layers {
        layers::reference()
    } else {
        format!("{:#}", reference::config_json_schema())
    };
    super::print(text.trim_end());
    Ok(0)
}
