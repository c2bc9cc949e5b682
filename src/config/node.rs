//! The tree a YAML text becomes: values that know where they stand. Made by `parse`, put
//! together by `load` and `merge`, taken apart by `decode`.

use serde_json::{Number, Value as Json};

use super::source::Span;

/// A value and where it was written.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Where it starts; for values of several lines, what stands on the first.
    pub span: Span,
}

/// What was written.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `null`, `~`, or nothing.
    Null,
    /// A number, a truth value, or text.
    Scalar {
        /// As written, less quotes and escapes.
        text: String,
        /// Whether it stood in quotes or in a block (`|`, `>`), and so is text.
        quoted: bool,
    },
    /// A list.
    List(Vec<Node>),
    /// A map in written order. `parse` reports a key given twice and keeps the first.
    Map(Vec<(Key, Node)>),
}

/// A key of a map.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// The name.
    pub text: String,
    /// Where it stands.
    pub span: Span,
}

/// What a scalar is by YAML 1.2's core rules.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ScalarKind {
    /// `true` or `false`.
    Bool(bool),
    /// An integer in decimal digits.
    Integer(i128),
    /// Any other finite decimal number.
    Number(f64),
    /// Everything else.
    Text,
}

impl ScalarKind {
    /// Reads an unquoted scalar.
    pub fn of(text: &str) -> Self {
        match text {
            "true" => return Self::Bool(true),
            "false" => return Self::Bool(false),
            _ => {}
        }
        // Rust also reads `inf` and `nan` as numbers, and those are words here.
        let numeric = text.bytes().any(|b| b.is_ascii_digit())
            && text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
        if !numeric {
            return Self::Text;
        }
        if let Ok(integer) = text.parse::<i128>() {
            return Self::Integer(integer);
        }
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Self::Number(number),
            _ => Self::Text,
        }
    }
}

impl Node {
    /// An empty value at a place, such as the options of a bare word.
    pub fn null(span: Span) -> Self {
        Self { value: Value::Null, span }
    }

    /// The value of a key, if this is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|(_, node)| node)
    }

    /// The key and value of a name, if this is a map that has it.
    pub fn entry(&self, key: &str) -> Option<(&Key, &Node)> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|(k, _)| k.text == key).map(|(k, n)| (k, n)),
            _ => None,
        }
    }

    /// The text of an unquoted or quoted scalar.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// What kind of scalar this is, if it is one.
    pub fn scalar_kind(&self) -> Option<ScalarKind> {
        match &self.value {
            Value::Scalar { quoted: true, .. } => Some(ScalarKind::Text),
            Value::Scalar { text, quoted: false } => Some(ScalarKind::of(text)),
            _ => None,
        }
    }

    /// What stands here, in the words of a message: "the text `abc`".
    pub fn describe(&self) -> String {
        match &self.value {
            Value::Null => "nothing".into(),
            Value::List(items) if items.len() == 1 => "a list of 1 item".into(),
            Value::List(items) => format!("a list of {} items", items.len()),
            Value::Map(_) => "a map".into(),
            Value::Scalar { text, .. } => match self.scalar_kind() {
                Some(ScalarKind::Bool(_)) => format!("`{text}`"),
                Some(ScalarKind::Integer(_) | ScalarKind::Number(_)) => {
                    format!("the number {text}")
                }
                _ => format!("the text `{text}`"),
            },
        }
    }

    /// The value without its places, scalars as what they are.
    pub fn to_json(&self) -> Json {
        match &self.value {
            Value::Null => Json::Null,
            Value::List(items) => Json::Array(items.iter().map(Node::to_json).collect()),
            Value::Map(entries) => {
                Json::Object(entries.iter().map(|(k, n)| (k.text.clone(), n.to_json())).collect())
            }
            Value::Scalar { text, quoted } => {
                let kind = if *quoted { ScalarKind::Text } else { ScalarKind::of(text) };
                let number = match kind {
                    ScalarKind::Bool(b) => return Json::Bool(b),
                    ScalarKind::Integer(i) => Number::from_i128(i),
                    ScalarKind::Number(x) => Number::from_f64(x),
                    ScalarKind::Text => None,
                };
                number.map_or_else(|| Json::String(text.clone()), Json::Number)
            }
        }
    }
}

/// A JSON value as YAML text in block style.
pub fn json_to_yaml(json: &Json) -> String {
    serde_yaml::to_string(json).expect("a JSON value has a YAML form")
}
