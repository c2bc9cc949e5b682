//! `schema`: what configurations may hold, generated from the types.

use clap::Args;
use serde_json::Value as Json;

use super::CliError;
use crate::config::{json_schema, reference};
use crate::layers;

/// Which form.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// The reference of all sections in Markdown instead of the JSON Schema.
    #[arg(long)]
    markdown: bool,
    /// The layers in Markdown.
    #[arg(long, conflicts_with = "markdown")]
    layers: bool,
    /// The JSON Schema of a file that holds one section, such as `model` or `optimizer`, or of a
    /// `sweep`.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["markdown", "layers"])]
    section: Option<String>,
}

/// Prints it.
pub fn run(args: SchemaArgs) -> Result<u8, CliError> {
    let text = if args.markdown {
        reference::config_markdown()
    } else if args.layers {
        layers::reference()
    } else {
        text(&schema(args.section.as_deref())?)
    };
    super::print(text.trim_end());
    Ok(0)
}

/// A schema with a line for each definition: short, and a change in one is a change of one line.
pub fn text(schema: &Json) -> String {
    let entries = |map: &Json, indent: &str| -> Vec<String> {
        let entries = map.as_object().into_iter().flatten();
        entries
            .map(|(key, value)| format!("{indent}{}: {value}", Json::from(key.as_str())))
            .collect()
    };
    let definitions = entries(&schema["$defs"], "    ").join(",\n");
    let mut rest = schema.clone();
    if let Some(map) = rest.as_object_mut() {
        map.remove("$defs");
    }
    let mut lines = entries(&rest, "  ");
    lines.push(format!("  \"$defs\": {{\n{definitions}\n  }}"));
    format!("{{\n{}\n}}", lines.join(",\n"))
}

/// The JSON Schema of a configuration, or of one section's own file.
pub fn schema(section: Option<&str>) -> Result<Json, CliError> {
    let (model, definitions) = layers::json_schema::model();
    match section {
        None => Ok(json_schema::config(model, definitions)),
        Some("model") => Ok(json_schema::model(model, definitions)),
        Some("sweep") => Ok(json_schema::sweep()),
        Some(name) => json_schema::section(name).ok_or_else(|| {
            CliError::Usage(format!("`{name}` is no section that can be a file of its own"))
        }),
    }
}
