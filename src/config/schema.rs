//! What a type accepts, as data: read by error messages, by `reference` (the documentation page)
//! and `json_schema`, by `merge` (which maps are choices), and by the search for the section
//! that a misplaced key belongs in.

use std::ops::{Bound, RangeBounds};

use serde_json::Value as Json;

/// The form of a value.
#[derive(Debug, Clone, PartialEq)]
pub enum Schema {
    /// Anything; the stage that owns it looks closer.
    Any,
    /// `true` or `false`.
    Bool,
    /// A whole number.
    Integer(Range),
    /// A finite number.
    Number(Range),
    /// Text.
    Text,
    /// The path of a file or folder.
    Path,
    /// One of a few words.
    Choice(Vec<Word>),
    /// Free text beside a few words with a meaning of their own.
    WordOrText(Vec<Word>),
    /// A list, of exactly `len` items if given.
    List {
        /// What each item is.
        item: Box<Schema>,
        /// The number of items.
        len: Option<usize>,
    },
    /// One of two forms.
    Either(Box<Schema>, Box<Schema>),
    /// A map with names of the user's choice.
    Table(Box<Schema>),
    /// A map with fixed keys.
    Section(Section),
    /// A map with one key that says what its value describes, or that key as a bare word.
    Tagged(Vec<Variant>),
    /// May be left out or `null`.
    Optional(Box<Schema>),
}

/// A word and what it means.
#[derive(Debug, Clone, PartialEq)]
pub struct Word {
    /// As written in a configuration.
    pub word: &'static str,
    /// Its meaning.
    pub docs: String,
}

/// A map with fixed keys.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// What the section is for.
    pub docs: String,
    /// Its keys, in the order they are documented.
    pub fields: Vec<Field>,
}

/// A key of a section.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// The key.
    pub name: &'static str,
    /// What it does.
    pub docs: String,
    /// What it takes.
    pub schema: Schema,
    /// Whether it can be left out.
    pub presence: Presence,
}

/// Whether a key must be given.
#[derive(Debug, Clone, PartialEq)]
pub enum Presence {
    /// Yes.
    Required,
    /// No, and then nothing takes its place.
    Optional,
    /// No, and then this is the value.
    Default(Json),
}

/// One choice of a tagged value.
#[derive(Debug, Clone, PartialEq)]
pub struct Variant {
    /// The key.
    pub word: &'static str,
    /// What is under it.
    pub options: Schema,
}

/// The numbers allowed. Bounds are held as `f64`, exact for integers below 2^53.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// Lower bound.
    pub min: Bound<f64>,
    /// Upper bound.
    pub max: Bound<f64>,
}

/// The range of all numbers greater than `bound`.
pub fn above(bound: f64) -> (Bound<f64>, Bound<f64>) {
    (Bound::Excluded(bound), Bound::Unbounded)
}

impl Range {
    /// Every number.
    pub const ANY: Self = Self { min: Bound::Unbounded, max: Bound::Unbounded };

    /// From Rust's ranges: `1..`, `0.0..1.0`, `0.0..=1.0`, or [`above`].
    pub fn of<N: Copy + Into<f64>>(bounds: impl RangeBounds<N>) -> Self {
        Self {
            min: bounds.start_bound().map(|&n| n.into()),
            max: bounds.end_bound().map(|&n| n.into()),
        }
    }

    /// Whether a number is allowed.
    pub fn contains(&self, number: f64) -> bool {
        (self.min, self.max).contains(&number)
    }

    /// Numbers that are at least 0, unless a lower bound is set.
    pub fn or_unsigned(self) -> Self {
        match self.min {
            Bound::Unbounded => Self { min: Bound::Included(0.0), ..self },
            _ => self,
        }
    }

    /// " >= 1", " > 0 and < 1", or nothing.
    pub fn words(&self) -> String {
        let bound = |bound: Bound<f64>, open: &str, closed: &str| match bound {
            Bound::Included(n) => Some(format!(" {closed} {n}")),
            Bound::Excluded(n) => Some(format!(" {open} {n}")),
            Bound::Unbounded => None,
        };
        let parts = [bound(self.min, ">", ">="), bound(self.max, "<", "<=")];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" and")
    }
}

impl Schema {
    /// In the words of a message: "an integer >= 1".
    pub fn words(&self) -> String {
        match self {
            Self::Any => "a value".into(),
            Self::Bool => "true or false".into(),
            Self::Integer(range) => format!("an integer{}", range.words()),
            Self::Number(range) => format!("a number{}", range.words()),
            Self::Text => "text".into(),
            Self::Path => "a path".into(),
            Self::Choice(words) => alternatives(words.iter().map(|w| w.word)),
            Self::WordOrText(words) => {
                format!("{} or other text", alternatives(words.iter().map(|w| w.word)))
            }
            Self::List { item, len: None } => format!("a list ({} each)", item.words()),
            Self::List { item, len: Some(len) } => {
                format!("a list of {len} items ({} each)", item.words())
            }
            Self::Either(a, b) => format!("{} or {}", a.words(), b.words()),
            Self::Table(item) => format!("a map of names to {}", item.words()),
            Self::Section(_) => "a map".into(),
            Self::Tagged(variants) => alternatives(variants.iter().map(|v| v.word)),
            Self::Optional(inner) => inner.words(),
        }
    }

    /// The keys of a section; none for other forms.
    pub fn keys(&self) -> Vec<&'static str> {
        match self {
            Self::Section(section) => section.fields.iter().map(|f| f.name).collect(),
            Self::Optional(inner) => inner.keys(),
            _ => Vec::new(),
        }
    }

    /// What is under a key of a map of this form.
    pub fn child(&self, key: &str) -> Option<&Schema> {
        match self {
            Self::Optional(inner) => inner.child(key),
            Self::Either(a, b) => a.child(key).or_else(|| b.child(key)),
            Self::Table(item) => Some(item),
            Self::Section(s) => s.fields.iter().find(|f| f.name == key).map(|f| &f.schema),
            Self::Tagged(variants) => variants.iter().find(|v| v.word == key).map(|v| &v.options),
            _ => None,
        }
    }

    /// Whether this holds more than a word or a number, so that a file can be given for it.
    pub fn is_compound(&self) -> bool {
        match self {
            Self::Optional(inner) => inner.is_compound(),
            Self::Either(a, b) => a.is_compound() && b.is_compound(),
            form => matches!(
                form,
                Self::Any | Self::List { .. } | Self::Table(_) | Self::Section(_) | Self::Tagged(_)
            ),
        }
    }

    /// Whether a map of this form holds exactly one key, the choice.
    pub fn is_choice(&self) -> bool {
        match self {
            Self::Optional(inner) => inner.is_choice(),
            Self::Either(a, _) => a.is_choice(),
            form => matches!(form, Self::Tagged(_)),
        }
    }
}

/// "`a`, `b` or `c`".
pub fn alternatives<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let mut words: Vec<String> = words.into_iter().map(|w| format!("`{w}`")).collect();
    match words.pop() {
        None => "nothing".into(),
        Some(last) if words.is_empty() => last,
        Some(last) => format!("{} or {last}", words.join(", ")),
    }
}

/// Joins the lines of a doc comment.
pub fn doc_text(lines: &[&str]) -> String {
    lines.iter().map(|l| l.trim()).collect::<Vec<_>>().join("\n").trim().to_owned()
}

/// A key and the section it is valid in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The section, such as `optimizer.sgd`; empty for the top.
    pub section: String,
    /// The key.
    pub key: &'static str,
}

/// Every key that a schema knows.
pub fn places(schema: &Schema) -> Vec<Place> {
    let mut found = Vec::new();
    collect_places(schema, "", &mut found);
    found
}

fn collect_places(schema: &Schema, section: &str, found: &mut Vec<Place>) {
    let mut add = |key: &'static str, schema: &Schema| {
        let place = Place { section: section.to_owned(), key };
        let path = if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") };
        if !found.contains(&place) {
            found.push(place);
        }
        collect_places(schema, &path, found);
    };
    match schema {
        Schema::Section(s) => s.fields.iter().for_each(|f| add(f.name, &f.schema)),
        Schema::Tagged(variants) => variants.iter().for_each(|v| add(v.word, &v.options)),
        Schema::Optional(inner) | Schema::List { item: inner, .. } | Schema::Either(inner, _) => {
            collect_places(inner, section, found);
        }
        _ => {}
    }
}
