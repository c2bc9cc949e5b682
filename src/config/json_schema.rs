//! The JSON Schema of the language (draft 2020-12), made from the types, for editors that complete
//! and check. Called by `layers` for the model, and by `cli`.

use std::ops::Bound;

use serde_json::{Map, Value as Json, json};

use super::decode::Decode;
use super::schema::{Presence, Range, Schema, Section, Variant};
use super::types::Config;

/// What a file that is laid over another may do: leave keys out, because they may stand there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whole {
    Yes,
    No,
}

/// The schema of a whole configuration's file. `model` describes its `model` section.
pub fn config(model: Json, mut definitions: Map<String, Json>) -> Json {
    definitions.insert("model".into(), model);
    document("A Wootz configuration", &Config::schema(), definitions)
}

/// The schema of a file that holds one section, such as `optimizer`; none where there is no such
/// section, or it is the model's, which `layers` describes.
pub fn section(name: &str) -> Option<Json> {
    let form = Config::schema();
    let form = form.child(name).filter(|form| form.is_compound() && **form != Schema::Any)?;
    Some(document(&format!("The section `{name}` of a Wootz configuration"), form, Map::new()))
}

/// The schema of a file of the model. `model` describes it.
pub fn model(model: Json, mut definitions: Map<String, Json>) -> Json {
    definitions.insert("variable".into(), variable());
    let mut document = headed("The model of a Wootz configuration", definitions);
    document.extend(model.as_object().cloned().unwrap_or_default());
    Json::Object(document)
}

fn headed(title: &str, definitions: Map<String, Json>) -> Map<String, Json> {
    let mut document = Map::new();
    document.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
    document.insert("title".into(), title.into());
    document.insert("$defs".into(), Json::Object(definitions));
    document
}

/// A file of a form: whole where it extends no other.
fn document(title: &str, form: &Schema, mut definitions: Map<String, Json>) -> Json {
    let Schema::Section(section) = core(form) else {
        definitions.insert("variable".into(), variable());
        let mut document = headed(title, definitions);
        let form = json_schema(form);
        document.extend(form.as_object().cloned().unwrap_or_default());
        return Json::Object(document);
    };
    definitions.insert("whole".into(), file(section, Whole::Yes));
    definitions.insert("over".into(), file(section, Whole::No));
    definitions.insert("variable".into(), variable());
    let mut document = headed(title, definitions);
    document.insert("if".into(), json!({"required": ["extends"]}));
    document.insert("then".into(), json!({"$ref": "#/$defs/over"}));
    document.insert("else".into(), json!({"$ref": "#/$defs/whole"}));
    Json::Object(document)
}

fn core(form: &Schema) -> &Schema {
    match form {
        Schema::Optional(inner) => core(inner),
        form => form,
    }
}

/// The map at the top of a file: its sections may be files of their own.
fn file(section: &Section, whole: Whole) -> Json {
    let mut schema = section_json(section, whole);
    let Some(Json::Object(keys)) = schema.get_mut("properties") else { return schema };
    for field in section.fields.iter().filter(|field| field.schema.is_compound()) {
        let Some(place) = keys.get_mut(field.name) else { continue };
        let here = match &field.schema {
            Schema::Any => json!({"$ref": "#/$defs/model"}),
            _ => place.take(),
        };
        let elsewhere = json!({"type": "string", "pattern": "\\.[yY][aA]?[mM][lL]$"});
        *place = json!({"description": field.docs, "anyOf": [here, elsewhere]});
    }
    let docs = "The path of a file that this one is laid over.";
    keys.insert("extends".into(), json!({"type": "string", "description": docs}));
    schema
}

/// `$name`, a parameter of a block, or `${NAME}`, a variable of the environment.
fn variable() -> Json {
    json!({"type": "string", "pattern": "\\$"})
}

fn or_variable(schema: Json) -> Json {
    json!({"anyOf": [schema, {"$ref": "#/$defs/variable"}]})
}

/// The JSON Schema of a form. `variable` must stand in the document's definitions.
pub fn json_schema(form: &Schema) -> Json {
    form_json(form, Whole::Yes)
}

fn form_json(form: &Schema, whole: Whole) -> Json {
    let below = |form: &Schema| form_json(form, whole);
    match form {
        Schema::Any => json!({}),
        Schema::Bool => or_variable(json!({"type": "boolean"})),
        Schema::Integer(range) => or_variable(ranged("integer", *range)),
        Schema::Number(range) => or_variable(ranged("number", *range)),
        Schema::Text | Schema::Path => json!({"type": "string"}),
        Schema::Choice(words) => {
            let word = |w: &super::schema::Word| json!({"const": w.word, "description": w.docs});
            let mut words: Vec<Json> = words.iter().map(word).collect();
            words.push(json!({"$ref": "#/$defs/variable"}));
            json!({"anyOf": words})
        }
        Schema::WordOrText(words) => {
            json!({"type": "string", "examples": words.iter().map(|w| w.word).collect::<Vec<_>>()})
        }
        Schema::List { item, len: None } => json!({"type": "array", "items": below(item)}),
        Schema::List { item, len: Some(len) } => json!({
            "type": "array", "items": below(item), "minItems": len, "maxItems": len,
        }),
        Schema::Either(a, b) => json!({"anyOf": [below(a), below(b)]}),
        Schema::Table(item) => json!({"type": "object", "additionalProperties": below(item)}),
        Schema::Section(section) => section_json(section, whole),
        Schema::Tagged(variants) => tagged_json(variants, whole),
        Schema::Optional(inner) => json!({"anyOf": [below(inner), {"type": "null"}]}),
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

fn section_json(section: &Section, whole: Whole) -> Json {
    let mut properties = Map::new();
    for field in &section.fields {
        let mut schema = form_json(&field.schema, whole);
        if let Json::Object(map) = &mut schema {
            map.insert("description".into(), field.docs.clone().into());
            if let Presence::Default(value) = &field.presence {
                map.insert("default".into(), value.clone());
            }
        }
        properties.insert(field.name.into(), schema);
    }
    let required = section.fields.iter().filter(|field| field.presence == Presence::Required);
    let required: Vec<_> = required.map(|field| field.name).collect();
    // Nothing at all counts as a map without keys.
    let form = if required.is_empty() { json!(["object", "null"]) } else { json!("object") };
    let mut schema = json!({
        "type": form,
        "description": section.docs,
        "properties": properties,
        "additionalProperties": false,
    });
    if whole == Whole::Yes && !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn tagged_json(variants: &[Variant], whole: Whole) -> Json {
    let options = variants.iter().map(|Variant { word, options }| {
        ((*word).to_owned(), form_json(options, whole))
    });
    let bare = variants.iter().filter(|variant| is_complete(&variant.options));
    choice(options.collect(), bare.map(|variant| variant.word).collect())
}

/// Whether a word alone says everything: its section needs no key.
pub fn is_complete(options: &Schema) -> bool {
    match options {
        Schema::Section(section) => {
            section.fields.iter().all(|field| field.presence != Presence::Required)
        }
        _ => false,
    }
}

/// A map with exactly one of the keys of `options`, or one of the `bare` words.
pub fn choice(options: Map<String, Json>, bare: Vec<&str>) -> Json {
    let one = json!({
        "type": "object",
        "properties": options,
        "additionalProperties": false,
        "minProperties": 1,
        "maxProperties": 1,
    });
    if bare.is_empty() { one } else { json!({"anyOf": [{"enum": bare}, one]}) }
}
