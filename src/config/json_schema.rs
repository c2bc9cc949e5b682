//! The JSON Schema of the language (draft 2020-12), made from the types, for editors that complete
//! and check. Called by `layers` for the model, and by `cli`.

use std::ops::Bound;

use serde_json::{Map, Value as Json, json};
use sha2::Digest;

use super::decode::Decode;
use super::schema::{Presence, Range, Schema, Section, Variant, Word};
use super::sweep::Sweep;
use super::types::Config;

/// Whether a file must hold all that is required. What one that is laid over another leaves out may
/// stand there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whole {
    Yes,
    No,
}

/// What a document defines once and refers to: every section and choice, by a hash of its text, and
/// what others add by names of their own.
#[derive(Debug)]
pub struct Definitions(Map<String, Json>);

impl Default for Definitions {
    fn default() -> Self {
        // `$name`, a parameter of a block, or `${NAME}`, a variable of the environment.
        let variable = json!({"type": "string", "pattern": "\\$"});
        Self(Map::from_iter([("variable".to_owned(), variable)]))
    }
}

impl Definitions {
    /// Adds a definition; gives the reference to it.
    pub fn add(&mut self, name: &str, schema: Json) -> Json {
        self.0.insert(name.to_owned(), schema);
        reference(name)
    }

    fn share(&mut self, schema: Json) -> Json {
        let hash = sha2::Sha256::digest(schema.to_string());
        let name: String = hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        self.add(&name, schema)
    }

    /// The JSON Schema of a form.
    pub fn form(&mut self, form: &Schema) -> Json {
        self.form_of(form, Whole::Yes)
    }
}

/// The reference to a definition.
pub fn reference(name: &str) -> Json {
    json!({"$ref": format!("#/$defs/{name}")})
}

/// The schema of a whole configuration's file. `model` describes its `model` section.
pub fn config(model: Json, mut definitions: Definitions) -> Json {
    definitions.add("model", model);
    document("A Wootz configuration", &Config::schema(), definitions)
}

/// The schema of a file that holds one section, such as `optimizer`; none where there is no such
/// section, or it is the model's, which `layers` describes.
pub fn section(name: &str) -> Option<Json> {
    let form = Config::schema();
    let form = form.child(name).filter(|form| form.is_compound() && **form != Schema::Any)?;
    let title = format!("The section `{name}` of a Wootz configuration");
    Some(document(&title, form, Definitions::default()))
}

/// The schema of a sweep's file.
pub fn sweep() -> Json {
    let mut definitions = Definitions::default();
    let schema = definitions.form(&Sweep::schema());
    headed("A sweep of Wootz", schema, definitions)
}

/// The schema of a file of the model. `model` describes it.
pub fn model(model: Json, definitions: Definitions) -> Json {
    headed("The model of a Wootz configuration", model, definitions)
}

fn headed(title: &str, schema: Json, definitions: Definitions) -> Json {
    let mut document = Map::new();
    document.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
    document.insert("title".into(), title.into());
    document.extend(schema.as_object().cloned().unwrap_or_default());
    document.insert("$defs".into(), Json::Object(definitions.0));
    Json::Object(document)
}

/// A file of a form: whole where it extends no other.
fn document(title: &str, form: &Schema, mut definitions: Definitions) -> Json {
    let Schema::Section(section) = core(form) else {
        let schema = definitions.form(form);
        return headed(title, schema, definitions);
    };
    let whole = definitions.file(section, Whole::Yes);
    let over = definitions.file(section, Whole::No);
    let over = definitions.add("over", over);
    let whole = definitions.add("whole", whole);
    let schema = json!({"if": {"required": ["extends"]}, "then": over, "else": whole});
    headed(title, schema, definitions)
}

fn core(form: &Schema) -> &Schema {
    match form {
        Schema::Optional(inner) => core(inner),
        form => form,
    }
}

fn or_variable(schema: Json) -> Json {
    json!({"anyOf": [schema, reference("variable")]})
}

impl Definitions {
    /// The map at the top of a file: its sections may be files of their own.
    fn file(&mut self, section: &Section, whole: Whole) -> Json {
        let mut schema = self.section(section, whole);
        let Some(Json::Object(keys)) = schema.get_mut("properties") else { return schema };
        for field in section.fields.iter().filter(|field| field.schema.is_compound()) {
            let Some(place) = keys.get_mut(field.name) else { continue };
            let here = match &field.schema {
                Schema::Any => reference("model"),
                _ => place.take(),
            };
            let elsewhere = json!({"type": "string", "pattern": "\\.[yY][aA]?[mM][lL]$"});
            *place = json!({"description": field.docs, "anyOf": [here, elsewhere]});
        }
        let docs = "The path of a file that this one is laid over.";
        keys.insert("extends".into(), json!({"type": "string", "description": docs}));
        schema
    }

    fn form_of(&mut self, form: &Schema, whole: Whole) -> Json {
        match form {
            Schema::Any => json!({}),
            Schema::Bool => or_variable(json!({"type": "boolean"})),
            Schema::Integer(range) => or_variable(ranged("integer", *range)),
            Schema::Number(range) => or_variable(ranged("number", *range)),
            Schema::Text | Schema::Path => json!({"type": "string"}),
            Schema::Choice(words) => {
                let word = |w: &Word| json!({"const": w.word, "description": w.docs});
                let mut words: Vec<Json> = words.iter().map(word).collect();
                words.push(reference("variable"));
                json!({"anyOf": words})
            }
            Schema::WordOrText(words) => {
                let words: Vec<_> = words.iter().map(|w| w.word).collect();
                json!({"type": "string", "examples": words})
            }
            Schema::List { item, len } => {
                let mut list = json!({"type": "array", "items": self.form_of(item, whole)});
                if let Some(len) = len {
                    (list["minItems"], list["maxItems"]) = (json!(len), json!(len));
                }
                list
            }
            Schema::Either(a, b) => {
                json!({"anyOf": [self.form_of(a, whole), self.form_of(b, whole)]})
            }
            Schema::Table(item) => {
                json!({"type": "object", "additionalProperties": self.form_of(item, whole)})
            }
            Schema::Section(section) => {
                let section = self.section(section, whole);
                self.share(section)
            }
            Schema::Tagged(variants) => {
                let variants = self.variants(variants, whole);
                self.share(variants)
            }
            Schema::Optional(inner) => {
                json!({"anyOf": [self.form_of(inner, whole), {"type": "null"}]})
            }
        }
    }

    /// A map with fixed keys, in place.
    fn section(&mut self, section: &Section, whole: Whole) -> Json {
        let mut properties = Map::new();
        for field in &section.fields {
            let mut schema = self.form_of(&field.schema, whole);
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

    fn variants(&mut self, variants: &[Variant], whole: Whole) -> Json {
        let options = variants
            .iter()
            .map(|Variant { word, options }| ((*word).to_owned(), self.form_of(options, whole)));
        let options = options.collect();
        let bare = variants.iter().filter(|variant| is_complete(&variant.options));
        choice(options, bare.map(|variant| variant.word).collect())
    }

    /// The section of a layer, in place.
    pub fn options(&mut self, form: &Schema) -> Json {
        match form {
            Schema::Section(section) => self.section(section, Whole::Yes),
            form => self.form(form),
        }
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
