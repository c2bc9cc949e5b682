//! How plain values are read: truth values, numbers, text, paths, and the containers of them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value as Json, json};

use super::decode::{Bounded, Cx, Decode};
use super::node::{Node, ScalarKind, Value};
use super::schema::{Range, Schema};
use super::source::Span;

impl Decode for bool {
    fn decode(node: &Node, cx: &mut Cx) -> Option<Self> {
        if let Some(ScalarKind::Bool(value)) = node.scalar_kind() {
            return Some(value);
        }
        let meant = node.text().map(str::to_lowercase).and_then(|text| match text.as_str() {
            "yes" | "on" | "true" => Some("true"),
            "no" | "off" | "false" => Some("false"),
            _ => None,
        });
        let error = cx.expected(&Self::schema().words(), node);
        if let Some(meant) = meant {
            error.help(format!("write {meant}"));
        }
        None
    }

    fn schema() -> Schema {
        Schema::Bool
    }

    fn to_json(&self) -> Json {
        Json::Bool(*self)
    }
}

/// Reports a value that is no number of the wanted kind, and says so if quotes are the reason.
fn not_a_number(node: &Node, schema: &Schema, cx: &mut Cx) {
    let quoted_number = match &node.value {
        Value::Scalar { text, quoted: true } => ScalarKind::of(text) != ScalarKind::Text,
        _ => false,
    };
    let error = cx.expected(&schema.words(), node);
    if quoted_number {
        error.help("write the number without quotes");
    }
}

/// Reads an integer in `range` that also fits the type.
fn integer<T: TryFrom<i128>>(
    node: &Node,
    range: Range,
    most: i128,
    schema: &Schema,
    cx: &mut Cx,
) -> Option<T> {
    match node.scalar_kind() {
        Some(ScalarKind::Integer(value)) if range.contains(value as f64) => {
            let fits = T::try_from(value).ok().filter(|_| value <= most);
            if fits.is_none() {
                cx.error(node.span, format!("the number {value} is too large"))
                    .help(format!("numbers here go up to {most}"));
            }
            fits
        }
        _ => {
            not_a_number(node, schema, cx);
            None
        }
    }
}

macro_rules! integers {
    ($($ty:ty: $limit:expr, $most:expr);*) => {$(
        impl Decode for $ty {
            fn decode(node: &Node, cx: &mut Cx) -> Option<Self> {
                Self::decode_within(node, Range::ANY, cx)
            }

            fn schema() -> Schema {
                Self::schema_within(Range::ANY)
            }

            fn to_json(&self) -> Json {
                json!(self)
            }
        }

        impl Bounded for $ty {
            fn decode_within(node: &Node, range: Range, cx: &mut Cx) -> Option<Self> {
                let range = $limit(range);
                integer(node, range, $most as i128, &Self::schema_within(range), cx)
            }

            fn schema_within(range: Range) -> Schema {
                Schema::Integer($limit(range))
            }
        }
    )*};
}

// Sizes stay far from where their sums and products overflow.
integers!(
    usize: Range::or_unsigned, i32::MAX;
    u64: Range::or_unsigned, u64::MAX;
    u32: Range::or_unsigned, u32::MAX;
    i64: std::convert::identity, i64::MAX
);

impl Decode for f64 {
    fn decode(node: &Node, cx: &mut Cx) -> Option<Self> {
        Self::decode_within(node, Range::ANY, cx)
    }

    fn schema() -> Schema {
        Self::schema_within(Range::ANY)
    }

    fn to_json(&self) -> Json {
        json!(self)
    }
}

impl Bounded for f64 {
    fn decode_within(node: &Node, range: Range, cx: &mut Cx) -> Option<Self> {
        let value = match node.scalar_kind() {
            Some(ScalarKind::Integer(value)) => Some(value as f64),
            Some(ScalarKind::Number(value)) => Some(value),
            _ => None,
        };
        let value = value.filter(|v| range.contains(*v));
        if value.is_none() {
            not_a_number(node, &Self::schema_within(range), cx);
        }
        value
    }

    fn schema_within(range: Range) -> Schema {
        Schema::Number(range)
    }
}

/// Reads text; a number or truth value there is more often a slip than a name.
fn text(node: &Node, schema: &Schema, cx: &mut Cx) -> Option<String> {
    match node.scalar_kind() {
        Some(ScalarKind::Text) => node.text().map(str::to_owned),
        Some(_) => {
            let quoted = format!("\"{}\"", node.text().unwrap_or_default());
            cx.expected(&schema.words(), node).help(format!("if it is meant as text: {quoted}"));
            None
        }
        None => {
            cx.expected(&schema.words(), node);
            None
        }
    }
}

impl Decode for String {
    fn decode(node: &Node, cx: &mut Cx) -> Option<Self> {
        text(node, &Self::schema(), cx)
    }

    fn schema() -> Schema {
        Schema::Text
    }

    fn to_json(&self) -> Json {
        json!(self)
    }
}

impl Decode for char {
    fn decode(node: &Node, cx: &mut Cx) -> Option<Self> {
        let mut chars = node.text().unwrap_or_default().chars();
        match (chars.next(), chars.next()) {
            (Some(only), None) => Some(only),
            _ => {
                cx.expected("a single character", node);
                None
            }
        }
    }

    fn schema() -> Schema {
        Schema::Text
    }

    fn to_json(&self) -> Json {
        json!(self.to_string())
    }
}

impl Decode for PathBuf {
    fn decode(node: &Node, cx: &mut Cx) -> Option<Self> {
        let path = text(node, &Self::schema(), cx)?;
        if path.is_empty() {
            cx.error(node.span, "the path is empty");
            return None;
        }
        Some(path.into())
    }

    fn schema() -> Schema {
        Schema::Path
    }

    fn to_json(&self) -> Json {
        json!(self.to_string_lossy())
    }
}

impl Decode for Node {
    fn decode(node: &Node, _: &mut Cx) -> Option<Self> {
        Some(node.clone())
    }

    fn schema() -> Schema {
        Schema::Any
    }

    fn to_json(&self) -> Json {
        Node::to_json(self)
    }
}

impl<T: Decode> Decode for Option<T> {
    fn decode(node: &Node, cx: &mut Cx) -> Option<Self> {
        optional(node, |node| T::decode(node, cx))
    }

    fn schema() -> Schema {
        Schema::Optional(Box::new(T::schema()))
    }

    fn to_json(&self) -> Json {
        self.as_ref().map_or(Json::Null, T::to_json)
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

impl<T: Bounded> Bounded for Option<T> {
    fn decode_within(node: &Node, range: Range, cx: &mut Cx) -> Option<Self> {
        optional(node, |node| T::decode_within(node, range, cx))
    }

    fn schema_within(range: Range) -> Schema {
        Schema::Optional(Box::new(T::schema_within(range)))
    }
}

fn optional<T>(node: &Node, decode: impl FnOnce(&Node) -> Option<T>) -> Option<Option<T>> {
    match node.value {
        Value::Null => Some(None),
        _ => decode(node).map(Some),
    }
}

/// Reads every item of a list, so that each wrong one is reported.
fn items<T>(
    nodes: &[Node],
    cx: &mut Cx,
    mut decode: impl FnMut(&Node, &mut Cx) -> Option<T>,
) -> Option<Vec<T>> {
    let decoded: Vec<Option<T>> =
        nodes.iter().enumerate().map(|(i, n)| cx.at(i, |cx| decode(n, cx))).collect();
    decoded.into_iter().collect()
}

/// Reads a list, of `len` items if given.
fn list<T>(
    node: &Node,
    schema: &Schema,
    len: Option<usize>,
    cx: &mut Cx,
    decode: impl FnMut(&Node, &mut Cx) -> Option<T>,
) -> Option<Vec<T>> {
    match &node.value {
        Value::List(nodes) if len.is_none_or(|len| len == nodes.len()) => items(nodes, cx, decode),
        _ => {
            cx.expected(&schema.words(), node);
            None
        }
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn decode(node: &Node, cx: &mut Cx) -> Option<Self> {
        list(node, &Self::schema(), None, cx, T::decode)
    }

    fn schema() -> Schema {
        Schema::List { item: Box::new(T::schema()), len: None }
    }

    fn to_json(&self) -> Json {
        self.iter().map(T::to_json).collect()
    }
}

impl<T: Bounded> Bounded for Vec<T> {
    fn decode_within(node: &Node, range: Range, cx: &mut Cx) -> Option<Self> {
        let schema = Self::schema_within(range);
        list(node, &schema, None, cx, |node, cx| T::decode_within(node, range, cx))
    }

    fn schema_within(range: Range) -> Schema {
        Schema::List { item: Box::new(T::schema_within(range)), len: None }
    }
}

impl<T: Decode, const N: usize> Decode for [T; N] {
    fn decode(node: &Node, cx: &mut Cx) -> Option<Self> {
        list(node, &Self::schema(), Some(N), cx, T::decode)?.try_into().ok()
    }

    fn schema() -> Schema {
        Schema::List { item: Box::new(T::schema()), len: Some(N) }
    }

    fn to_json(&self) -> Json {
        self.iter().map(T::to_json).collect()
    }
}

impl<T: Bounded, const N: usize> Bounded for [T; N] {
    fn decode_within(node: &Node, range: Range, cx: &mut Cx) -> Option<Self> {
        let schema = Self::schema_within(range);
        let decode = |node: &Node, cx: &mut Cx| T::decode_within(node, range, cx);
        list(node, &schema, Some(N), cx, decode)?.try_into().ok()
    }

    fn schema_within(range: Range) -> Schema {
        Schema::List { item: Box::new(T::schema_within(range)), len: Some(N) }
    }
}

/// A name of something elsewhere in the configuration, with the place where it is written.
#[derive(Debug, Clone, PartialEq)]
pub struct Name {
    /// The name.
    pub text: String,
    /// Where it is written.
    pub span: Span,
}

impl Decode for Name {
    fn decode(node: &Node, cx: &mut Cx) -> Option<Self> {
        String::decode(node, cx).map(|text| Self { text, span: node.span })
    }

    fn schema() -> Schema {
        Schema::Text
    }

    fn to_json(&self) -> Json {
        json!(self.text)
    }
}

/// One value per axis: `3` stands for `[3, 3]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerAxis<T, const N: usize>(pub [T; N]);

impl<T: Decode + Clone, const N: usize> Decode for PerAxis<T, N> {
    fn decode(node: &Node, cx: &mut Cx) -> Option<Self> {
        per_axis(node, &Self::schema(), cx, T::decode)
    }

    fn schema() -> Schema {
        Schema::Either(Box::new(T::schema()), Box::new(<[T; N]>::schema()))
    }

    fn to_json(&self) -> Json {
        self.0.to_json()
    }
}

impl<T: Bounded + Clone, const N: usize> Bounded for PerAxis<T, N> {
    fn decode_within(node: &Node, range: Range, cx: &mut Cx) -> Option<Self> {
        let schema = Self::schema_within(range);
        per_axis(node, &schema, cx, |node, cx| T::decode_within(node, range, cx))
    }

    fn schema_within(range: Range) -> Schema {
        let list = <[T; N]>::schema_within(range);
        Schema::Either(Box::new(T::schema_within(range)), Box::new(list))
    }
}

fn per_axis<T: Clone, const N: usize>(
    node: &Node,
    schema: &Schema,
    cx: &mut Cx,
    mut decode: impl FnMut(&Node, &mut Cx) -> Option<T>,
) -> Option<PerAxis<T, N>> {
    match node.value {
        Value::Scalar { .. } => {
            let value = decode(node, cx)?;
            Some(PerAxis(std::array::from_fn(|_| value.clone())))
        }
        _ => list(node, schema, Some(N), cx, decode)?.try_into().ok().map(PerAxis),
    }
}

/// One value or a list of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneOrMany<T>(pub Vec<T>);

impl<T: Decode> Decode for OneOrMany<T> {
    fn decode(node: &Node, cx: &mut Cx) -> Option<Self> {
        match &node.value {
            Value::List(nodes) if nodes.is_empty() => {
                cx.error(node.span, "this list is empty");
                None
            }
            Value::List(nodes) => items(nodes, cx, T::decode).map(Self),
            _ => T::decode(node, cx).map(|one| Self(vec![one])),
        }
    }

    fn schema() -> Schema {
        Schema::Either(Box::new(T::schema()), Box::new(Vec::<T>::schema()))
    }

    fn to_json(&self) -> Json {
        self.0.to_json()
    }
}

impl<T: Decode> Decode for BTreeMap<String, T> {
    fn decode(node: &Node, cx: &mut Cx) -> Option<Self> {
        let Value::Map(entries) = &node.value else {
            cx.expected(&Self::schema().words(), node);
            return None;
        };
        let decoded: Vec<Option<(String, T)>> = entries
            .iter()
            .map(|(key, node)| {
                let value = cx.within(&key.text, |cx| T::decode(node, cx))?;
                Some((key.text.clone(), value))
            })
            .collect();
        decoded.into_iter().collect()
    }

    fn schema() -> Schema {
        Schema::Table(Box::new(T::schema()))
    }

    fn to_json(&self) -> Json {
        self.iter().map(|(k, v)| (k.clone(), v.to_json())).collect()
    }
}
