//! The reference of the language in Markdown, made from the types. Called by `cli` and by the test
//! that keeps `docs/config.md` current.

use std::fmt::Write as _;

use serde_json::Value as Json;

use super::decode::Decode;
use super::schema::{Field, Presence, Schema, Variant, Word};
use super::types::Config;

/// The reference page of the whole configuration.
pub fn config_markdown() -> String {
    schema_markdown("Configuration", &Config::schema())
}

/// A page that documents a schema under a title: a table of keys for each section in it.
pub fn schema_markdown(title: &str, schema: &Schema) -> String {
    let mut out = format!("# {title}\n");
    section_markdown("", schema, 1, &mut out);
    out
}

fn section_markdown(path: &str, schema: &Schema, depth: usize, out: &mut String) {
    match schema {
        Schema::Optional(inner) | Schema::List { item: inner, .. } => {
            section_markdown(path, inner, depth, out);
        }
        Schema::Section(section) => {
            let _ = write!(out, "\n{}\n", section.docs);
            keys_table(&section.fields, out);
            for field in &section.fields {
                below(path, field.name, &field.schema, &field.docs, depth, out);
            }
        }
        Schema::Tagged(variants) => {
            let _ = writeln!(out, "\nOne of {}.", schema.words());
            for Variant { word, options } in variants {
                below(path, word, options, "", depth, out);
            }
        }
        Schema::Choice(words) | Schema::WordOrText(words) => words_list(words, out),
        Schema::Either(one, several) => {
            section_markdown(path, one, depth, out);
            section_markdown(path, several, depth, out);
        }
        // What each entry holds; the choices in it stand above.
        Schema::Table(item) => {
            if let Schema::Section(section) = item.as_ref() {
                let level = "#".repeat((depth + 1).min(6));
                let _ = write!(out, "\n{level} `{path}.<name>`\n\n{}\n", section.docs);
                keys_table(&section.fields, out);
            }
        }
        _ => {}
    }
}

/// A heading and what is under it, for values that need more than a row of a table.
fn below(path: &str, key: &str, schema: &Schema, docs: &str, depth: usize, out: &mut String) {
    let path = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    let level = "#".repeat((depth + 1).min(6));
    match core(schema) {
        Schema::Section(_) => {
            let _ = writeln!(out, "\n{level} `{path}`");
            section_markdown(&path, schema, depth + 1, out);
        }
        form if is_choice(form) => {
            let _ = writeln!(out, "\n{level} `{path}`");
            if !docs.is_empty() {
                let _ = writeln!(out, "\n{docs}");
            }
            section_markdown(&path, schema, depth + 1, out);
        }
        form if docs.is_empty() => {
            let _ = writeln!(out, "\n{level} `{path}`\n\nTakes {}.", form.words());
        }
        _ => {}
    }
}

/// Whether a form has words or choices to list under a heading of its own.
fn is_choice(form: &Schema) -> bool {
    match form {
        Schema::Tagged(_) | Schema::Choice(_) | Schema::WordOrText(_) => true,
        Schema::Either(one, _) => is_choice(one),
        _ => false,
    }
}

/// The form inside options and lists.
fn core(schema: &Schema) -> &Schema {
    match schema {
        Schema::Optional(inner) | Schema::List { item: inner, .. } => core(inner),
        form => form,
    }
}

fn keys_table(fields: &[Field], out: &mut String) {
    if fields.is_empty() {
        let _ = writeln!(out, "\nIt takes no keys.");
        return;
    }
    out.push_str("\n| key | takes | default | |\n| --- | --- | --- | --- |\n");
    for field in fields {
        let default = match &field.presence {
            Presence::Required => "required".to_owned(),
            Presence::Optional => "none".to_owned(),
            Presence::Default(value) => format!("`{}`", flow(value)),
        };
        let docs = field.docs.replace('\n', " ").replace('|', "\\|");
        let words = field.schema.words();
        let _ = writeln!(out, "| `{}` | {words} | {default} | {docs} |", field.name);
    }
}

fn words_list(words: &[Word], out: &mut String) {
    out.push('\n');
    for Word { word, docs } in words {
        let _ = writeln!(out, "- `{word}`: {}", docs.replace('\n', " "));
    }
}

/// A default as it would be written: a choice without options as a bare word.
fn flow(value: &Json) -> String {
    match value {
        Json::String(text) if !text.trim().is_empty() && text != "," => text.clone(),
        Json::Array(items) => {
            format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", "))
        }
        Json::Object(map) => {
            let entries = map.iter().filter(|(_, v)| !v.is_null());
            let entries = entries.map(|(k, v)| format!("{k}: {}", flow(v)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}
