//! The reference of the language, made from the types: a Markdown page and a JSON Schema for
//! editors. Called by `cli` and by the test that keeps `docs/config.md` current.

use std::fmt::Write as _;
use std::ops::Bound;

use serde_json::{Map, Value as Json, json};

use super::decode::Decode;
use super::schema::{Field, Presence, Range, Schema, Section, Variant, Word};
use super::types::Config;

/// The reference page of the whole configuration.
pub fn config_markdown() -> String {
    schema_markdown("Configuration", &Config::schema())
}

/// The JSON Schema of the whole configuration (draft 2020-12).
pub fn config_json_schema() -> Json {
    let form = Config::schema();
    let mut schema = json_schema(&form);
    if let Json::Object(map) = &mut schema {
        if let Some(Json::Object(keys)) = map.get_mut("properties") {
            let sections = keys.iter_mut().filter(|(key, _)| {
                form.child(key).is_some_and(|s| s.is_compound() && *s != Schema::Any)
            });
            for (_, section) in sections {
                let in_place = section.take();
                *section = json!({
                    "anyOf": [in_place, {"type": "string", "pattern": "\\.[yY][aA]?[mM][lL]$"}],
                });
            }
            let docs = "The path of a file that this one is laid over.";
            keys.insert("extends".into(), json!({"type": "string", "description": docs}));
        }
        // What a file leaves out may stand in the one it extends.
        map.remove("required");
        map.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
    }
    schema
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

/// The JSON Schema of a form.
pub fn json_schema(schema: &Schema) -> Json {
    match schema {
        Schema::Any => json!({}),
        Schema::Bool => json!({"type": "boolean"}),
        Schema::Integer(range) => ranged("integer", *range),
        Schema::Number(range) => ranged("number", *range),
        Schema::Text | Schema::Path => json!({"type": "string"}),
        Schema::Choice(words) => {
            json!({"enum": words.iter().map(|w| w.word).collect::<Vec<_>>()})
        }
        Schema::WordOrText(words) => {
            json!({"type": "string", "examples": words.iter().map(|w| w.word).collect::<Vec<_>>()})
        }
        Schema::List { item, len: None } => json!({"type": "array", "items": json_schema(item)}),
        Schema::List { item, len: Some(len) } => json!({
            "type": "array", "items": json_schema(item), "minItems": len, "maxItems": len,
        }),
        Schema::Either(a, b) => json!({"anyOf": [json_schema(a), json_schema(b)]}),
        Schema::Table(item) => {
            json!({"type": "object", "additionalProperties": json_schema(item)})
        }
        Schema::Section(section) => section_json(section),
        Schema::Tagged(variants) => tagged_json(variants),
        Schema::Optional(inner) => json!({"anyOf": [json_schema(inner), {"type": "null"}]}),
    }
}

fn ranged(kind: &str, range: Range) -> Json {
    let mut map = Map::new();
    map.insert("type".into(), kind.into());
    let mut bound = |bound: Bound<f64>, closed: &str, open: &str| match bound {
        Bound::Included(n) => _ = map.insert(closed.into(), json!(n)),
        Bound::Excluded(n) => _ = map.insert(open.into(), json!(n)),
        Bound::Unbounded => {}
    };
    bound(range.min, "minimum", "exclusiveMinimum");
    bound(range.max, "maximum", "exclusiveMaximum");
    Json::Object(map)
}

fn section_json(section: &Section) -> Json {
    let mut properties = Map::new();
    for field in &section.fields {
        let mut schema = json_schema(&field.schema);
        if let Json::Object(map) = &mut schema {
            map.insert("description".into(), field.docs.clone().into());
            if let Presence::Default(value) = &field.presence {
                map.insert("default".into(), value.clone());
            }
        }
        properties.insert(field.name.into(), schema);
    }
    let required: Vec<_> = section
        .fields
        .iter()
        .filter(|f| f.presence == Presence::Required)
        .map(|f| f.name)
        .collect();
    json!({
        "type": "object",
        "description": section.docs,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn tagged_json(variants: &[Variant]) -> Json {
    let choices: Vec<Json> = variants
        .iter()
        .map(|Variant { word, options }| {
            json!({
                "type": "object",
                "properties": {*word: json_schema(options)},
                "required": [word],
                "additionalProperties": false,
            })
        })
        .collect();
    let bare: Vec<_> = variants
        .iter()
        .filter(|v| match &v.options {
            Schema::Section(s) => s.fields.iter().all(|f| f.presence != Presence::Required),
            _ => false,
        })
        .map(|v| v.word)
        .collect();
    let mut any = choices;
    if !bare.is_empty() {
        any.insert(0, json!({"enum": bare}));
    }
    json!({"anyOf": any})
}
