//! The JSON Schema of the `model` section, made from the table of layers.

use serde_json::{Map, Value as Json, json};

use super::TABLE;
use super::language::{CONTAINERS, Merge, Shortcut};
use crate::config::decode::Decode;
use crate::config::json_schema::{Definitions, choice, is_complete, reference};

/// The schema of the section, and the definitions that it refers to. Blocks bring words of the
/// user's own, so that a list of layers in a model with blocks takes any word.
pub fn model() -> (Json, Definitions) {
    let mut definitions = Definitions::default();
    for entry in TABLE {
        let options = definitions.options(&(entry.schema)());
        definitions.add(entry.word, with_common(options));
    }
    let strict = list(layer("layers", &mut definitions));
    definitions.add("layers", strict);
    let any = json!({"type": "string"});
    let mut layer = layer("layers_and_blocks", &mut definitions);
    if let Some(alternatives) = layer["anyOf"].as_array_mut() {
        alternatives[1]["additionalProperties"] = json!({"type": ["object", "null"]});
        alternatives.push(any);
    }
    definitions.add("layers_and_blocks", list(layer));
    let names = json!({"type": "array", "items": {"type": "string"}, "minItems": 1});
    let template = json!({
        "type": "object",
        "properties": {
            "params": {
                "type": ["object", "null"],
                "description": "Its parameters: `int`, `string`, or a value that one may leave out.",
                "additionalProperties": {"type": ["string", "integer"]},
            },
            "layers": reference("layers_and_blocks"),
        },
        "required": ["layers"],
        "additionalProperties": false,
    });
    let model = json!({
        "type": "object",
        "description": "The network.",
        "properties": {
            "layers": {"description": "The layers in order."},
            "blocks": {
                "description": "Templates of layers, by the user's own names.",
                "type": "object",
                "additionalProperties": template,
            },
            "outputs": described(&names, "The layers that are the model's outputs; the last one without it."),
            "freeze": described(&names, "Patterns of parameters' names that are not trained."),
            "extends": {"type": "string", "description": "The path of a file that this one is laid over."},
        },
        "additionalProperties": false,
        "if": {"anyOf": [{"required": ["blocks"]}, {"required": ["extends"]}]},
        "then": {"properties": {"layers": reference("layers_and_blocks")}},
        "else": {"properties": {"layers": reference("layers")}, "required": ["layers"]},
    });
    (model, definitions)
}

fn described(schema: &Json, docs: &str) -> Json {
    let mut schema = schema.clone();
    schema["description"] = json!(docs);
    schema
}

fn list(layer: Json) -> Json {
    json!({"type": "array", "minItems": 1, "items": layer})
}

/// One item of a list of layers; what holds layers itself holds those of the definition `lists`.
fn layer(lists: &str, definitions: &mut Definitions) -> Json {
    let layers = reference(lists);
    let mut options = Map::new();
    let mut bare: Vec<&str> = Vec::new();
    for entry in TABLE {
        options.insert(entry.word.into(), reference(entry.word));
        if is_complete(&(entry.schema)()) {
            bare.push(entry.word);
        }
    }
    let dim = json!({"type": "integer", "description": "The axis."});
    for word in CONTAINERS {
        let (keys, required) = match word {
            "residual" => {
                let shortcut = definitions.form(&Shortcut::schema());
                (json!({"shortcut": shortcut, "layers": layers}), json!(["layers"]))
            }
            "parallel" => {
                let branches = json!({"type": "array", "minItems": 2, "items": layers});
                let merge = definitions.form(&Merge::schema());
                let keys = json!({"merge": merge, "dim": dim, "branches": branches});
                (keys, json!(["merge", "branches"]))
            }
            "repeat" => {
                let times = json!({"anyOf": [
                    {"type": "integer", "minimum": 1}, reference("variable"),
                ]});
                (json!({"times": times, "layers": layers}), json!(["times", "layers"]))
            }
            "concat" => (json!({"dim": dim}), json!([])),
            _ => (json!({}), json!([])),
        };
        options.insert(
            word.into(),
            with_common(json!({
                "type": "object",
                "properties": keys,
                "required": required,
                "additionalProperties": false,
            })),
        );
    }
    // A bare word takes the layer before alone; these bring several together.
    json!({"anyOf": [{"enum": bare}, choice(options, Vec::new())]})
}

/// Adds the keys that every layer takes.
fn with_common(mut schema: Json) -> Json {
    let docs = [
        (
            "name",
            json!("string"),
            "Its name among its neighbours; gives the path of its parameters.",
        ),
        ("share", json!("string"), "The layer whose parameters it uses."),
        ("trainable", json!("boolean"), "Whether it, and all that is in it, is trained."),
    ];
    let from = json!({
        "description": "The layers it takes its input from, instead of the one before.",
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}],
    });
    if let Some(Json::Object(keys)) = schema.get_mut("properties") {
        for (key, form, docs) in docs {
            keys.entry(key).or_insert_with(|| json!({"type": form, "description": docs}));
        }
        keys.entry("from").or_insert(from);
    }
    schema
}
