//! Takes a map apart key by key and reports what is left. `options!` reads every section with
//! it; `layers` uses it to take the common keys off a layer before its own.

use super::decode::{Cx, Decode};
use super::node::{Key, Node, Value};
use super::schema::{Presence, Schema};
use super::source::Span;

/// A map being read. Every key asked for counts as known; [`MapReader::finish`] reports keys
/// never asked for and keys that were required and are not there.
#[derive(Debug)]
pub struct MapReader<'n> {
    span: Span,
    entries: &'n [(Key, Node)],
    known: Vec<&'static str>,
    missing: Vec<(&'static str, String)>,
}

impl<'n> MapReader<'n> {
    /// Opens a map; nothing at all counts as an empty one. Reports anything else.
    pub fn open(node: &'n Node, cx: &mut Cx) -> Option<Self> {
        let entries = match &node.value {
            Value::Map(entries) => entries.as_slice(),
            Value::Null => &[],
            _ => {
                cx.expected("a map", node);
                return None;
            }
        };
        Some(Self { span: node.span, entries, known: Vec::new(), missing: Vec::new() })
    }

    /// The key and value of a name, which from now on is known.
    pub fn entry(&mut self, name: &'static str) -> Option<(&'n Key, &'n Node)> {
        if !self.known.contains(&name) {
            self.known.push(name);
        }
        self.entries.iter().find(|(key, _)| key.text == name).map(|(key, node)| (key, node))
    }

    /// Reads a key with `decode`. If it is not there: `default`, else what the type takes for
    /// absent, else it is missing. `schema` describes it in that message.
    pub fn field<T: Decode>(
        &mut self,
        name: &'static str,
        schema: &Schema,
        default: Option<T>,
        cx: &mut Cx,
        decode: impl FnOnce(&Node, &mut Cx) -> Option<T>,
    ) -> Option<T> {
        match self.entry(name) {
            Some((_, node)) => cx.within(name, |cx| decode(node, cx)),
            None => {
                let value = default.or_else(T::absent);
                if value.is_none() {
                    self.missing.push((name, schema.words()));
                }
                value
            }
        }
    }

    /// Reads a key as its type describes.
    pub fn take<T: Decode>(&mut self, name: &'static str, cx: &mut Cx) -> Option<T> {
        self.field(name, &T::schema(), None, cx, T::decode)
    }

    /// The entries never asked for, for a caller that decodes them itself.
    pub fn rest(&self) -> Vec<(Key, Node)> {
        self.entries.iter().filter(|(k, _)| !self.is_known(k)).cloned().collect()
    }

    fn is_known(&self, key: &Key) -> bool {
        self.known.contains(&key.text.as_str())
    }

    /// Reports unknown and missing keys. A missing key that was misspelt is reported once.
    pub fn finish(self, cx: &mut Cx) {
        let mut meant = Vec::new();
        for (key, _) in self.entries.iter().filter(|(k, _)| !self.is_known(k)) {
            meant.extend(cx.unknown_key(&key.text, key.span, &self.known));
        }
        for (name, form) in self.missing.iter().filter(|(name, _)| !meant.contains(name)) {
            cx.missing_key(name, form, self.span);
        }
    }
}

/// Whether a key with this default may be left out. Called by `options!`.
pub fn presence<T: Decode>(default: Option<T>) -> Presence {
    match default {
        Some(value) => Presence::Default(value.to_json()),
        None if T::absent().is_some() => Presence::Optional,
        None => Presence::Required,
    }
}
