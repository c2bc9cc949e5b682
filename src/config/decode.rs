//! From nodes to typed values: the [`Decode`] trait and the context it works in. The macros
//! `options!`, `choices!` and `tagged!` implement it for the types of `config` and `layers`.

use std::borrow::Cow;

use serde_json::Value as Json;

use super::diagnostic::{Diagnostic, Diagnostics};
use super::nearest::nearest;
use super::node::{Node, Value};
use super::schema::{Place, Range, Schema, Word, alternatives, doc_text};
use super::source::{FileId, Span};

/// A type that can be read from a configuration.
pub trait Decode: Sized {
    /// Reads the value. On an error reports to `cx` and gives nothing; a map reports all of its
    /// errors, not the first.
    fn decode(node: &Node, cx: &mut Cx) -> Option<Self>;

    /// What is accepted.
    fn schema() -> Schema;

    /// The value as it could be written in a configuration.
    fn to_json(&self) -> Json;

    /// The value of a key that is left out, for types that allow it.
    fn absent() -> Option<Self> {
        None
    }
}

/// The value of a section whose keys all have defaults.
pub fn all_defaults<T: Decode>() -> T {
    let nowhere = Node::null(Span::whole(FileId(0)));
    T::decode(&nowhere, &mut Cx::new(&[])).expect("every key has a default")
}

/// A number, or a container of numbers, that can be limited to a range.
pub trait Bounded: Decode {
    /// Reads numbers that must lie in `range`.
    fn decode_within(node: &Node, range: Range, cx: &mut Cx) -> Option<Self>;

    /// What is accepted then.
    fn schema_within(range: Range) -> Schema;
}

/// What decoding carries along: the errors so far and the path of keys to the present node.
#[derive(Debug)]
pub struct Cx {
    diagnostics: Diagnostics,
    path: String,
    places: &'static [Place],
}

impl Cx {
    /// Starts at the top. `places` are the keys a misplaced one is looked for in; see
    /// [`super::schema::places`].
    pub fn new(places: &'static [Place]) -> Self {
        Self::resume(Diagnostics::default(), places)
    }

    /// Starts at the top with errors found earlier.
    pub fn resume(diagnostics: Diagnostics, places: &'static [Place]) -> Self {
        Self { diagnostics, path: String::new(), places }
    }

    /// The errors found.
    pub fn finish(self) -> Diagnostics {
        self.diagnostics
    }

    /// Whether anything was reported so far.
    pub fn failed(&self) -> bool {
        !self.diagnostics.is_empty()
    }

    /// The path of keys to the present node: `model.layers[3].conv2d`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Goes one key down while `body` runs.
    pub fn within<T>(&mut self, key: &str, body: impl FnOnce(&mut Self) -> T) -> T {
        let dot = if self.path.is_empty() { "" } else { "." };
        self.below(&format!("{dot}{key}"), body)
    }

    /// Goes to an item of a list while `body` runs.
    pub fn at<T>(&mut self, index: usize, body: impl FnOnce(&mut Self) -> T) -> T {
        self.below(&format!("[{index}]"), body)
    }

    fn below<T>(&mut self, step: &str, body: impl FnOnce(&mut Self) -> T) -> T {
        let len = self.path.len();
        self.path.push_str(step);
        let result = body(self);
        self.path.truncate(len);
        result
    }

    /// Reports an error at the present path; the result takes `.help()` and `.note()`.
    pub fn error(&mut self, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        self.diagnostics.push(Diagnostic::new(span, self.path.clone(), message))
    }

    /// Reports that something else stands where `what` should.
    pub fn expected(&mut self, what: &str, node: &Node) -> &mut Diagnostic {
        self.error(node.span, format!("expected {what}, got {}", node.describe()))
    }

    /// Reports a key that is not among `valid`. Gives the one that was probably meant.
    pub fn unknown_key<'k>(&mut self, key: &str, span: Span, valid: &[&'k str]) -> Option<&'k str> {
        let message = match self.section() {
            "" => format!("unknown key `{key}` at the top level"),
            section => format!("unknown key `{key}` in `{section}`"),
        };
        let meant = nearest(key, valid.iter().copied());
        let elsewhere = self.elsewhere(key).map(|places| format!("`{key}` belongs {places}"));
        self.within(key, |cx| {
            let error = cx.error(span, message);
            match (meant, elsewhere) {
                (Some(meant), elsewhere) => {
                    error.help(format!("did you mean `{meant}`?"));
                    error.notes.extend(elsewhere);
                }
                (None, Some(elsewhere)) => _ = error.help(elsewhere),
                (None, None) if valid.is_empty() => _ = error.help("it takes no keys"),
                (None, None) => _ = error.help(format!("the keys are {}", listed(valid))),
            }
        });
        meant
    }

    /// Reports a key that must be given; `form` says what it takes.
    pub fn missing_key(&mut self, key: &str, form: &str, span: Span) -> &mut Diagnostic {
        let message = match self.section() {
            "" => format!("missing key `{key}` at the top level"),
            section => format!("missing key `{key}` in `{section}`"),
        };
        self.error(span, message).help(format!("add `{key}`: {form}"))
    }

    /// Where else a key is valid: "in `optimizer.sgd` or `optimizer.adam`".
    fn elsewhere(&self, key: &str) -> Option<String> {
        let sections: Vec<&str> = self
            .places
            .iter()
            .filter(|p| p.key == key && p.section != self.path)
            .map(|p| p.section.as_str())
            .take(3)
            .collect();
        match sections.as_slice() {
            [] => None,
            [""] => Some("at the top level".into()),
            named => Some(format!("in {}", alternatives(named.iter().copied()))),
        }
    }

    /// The last key of the path.
    fn section(&self) -> &str {
        let last = self.path.rsplit('.').next().unwrap_or("");
        last.split('[').next().unwrap_or(last)
    }
}

/// Names for a message, cut where they become too many to read.
fn listed(names: &[&str]) -> String {
    const SHOWN: usize = 12;
    let shown = names.iter().take(SHOWN).map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Reads one of `words`; gives its index.
pub fn decode_word(node: &Node, words: &[&str], cx: &mut Cx) -> Option<usize> {
    let found = node.text().and_then(|text| words.iter().position(|w| *w == text));
    if found.is_none() {
        let meant = node.text().and_then(|text| nearest(text, words.iter().copied()));
        let error = cx.expected(&alternatives(words.iter().copied()), node);
        if let Some(meant) = meant {
            error.help(format!("did you mean `{meant}`?"));
        }
    }
    found
}

/// The choice made in a tagged value, as [`decode_variant`] found it.
#[derive(Debug, Clone)]
pub struct Choice<'n> {
    /// Index of the word chosen.
    pub index: usize,
    /// Where the word stands.
    pub span: Span,
    /// What stands under it; empty for a bare word.
    pub options: Cow<'n, Node>,
}

/// Reads a tagged value: a map with one key, which is one of `words`, or the bare word.
pub fn decode_variant<'n>(node: &'n Node, words: &[&str], cx: &mut Cx) -> Option<Choice<'n>> {
    let index_of = |text: &str| words.iter().position(|w| *w == text);
    match &node.value {
        Value::Scalar { text, .. } => match index_of(text) {
            Some(index) => {
                let options = Cow::Owned(Node::null(node.span));
                Some(Choice { index, span: node.span, options })
            }
            None => {
                let meant = nearest(text, words.iter().copied());
                let error = cx.error(
                    node.span,
                    format!("expected one of {}, got {}", listed(words), node.describe()),
                );
                if let Some(meant) = meant {
                    error.help(format!("did you mean `{meant}`?"));
                }
                None
            }
        },
        Value::Map(entries) => {
            let known: Vec<_> =
                entries.iter().filter_map(|(k, n)| Some((index_of(&k.text)?, k, n))).collect();
            for (key, _) in entries.iter().filter(|(k, _)| index_of(&k.text).is_none()) {
                cx.unknown_key(&key.text, key.span, words);
            }
            match known.as_slice() {
                [(index, key, options)] if entries.len() == 1 => {
                    let options = Cow::Borrowed(*options);
                    Some(Choice { index: *index, span: key.span, options })
                }
                [(_, first, _), (_, second, _), ..] => {
                    cx.error(second.span, format!("`{}` beside `{}`", second.text, first.text))
                        .help("give one of them");
                    None
                }
                _ if entries.is_empty() => {
                    cx.expected(&format!("one of {}", listed(words)), node);
                    None
                }
                _ => None,
            }
        }
        _ => {
            cx.expected(&format!("one of {}", listed(words)), node);
            None
        }
    }
}

/// A variant of a tagged type: its word and how to read what is under it.
pub type VariantDecoder<T> = (&'static str, fn(&Node, &mut Cx) -> Option<T>);

/// Reads a tagged value by a table of its variants. Called by `tagged!`.
pub fn decode_tagged<T>(node: &Node, variants: &[VariantDecoder<T>], cx: &mut Cx) -> Option<T> {
    let words: Vec<&str> = variants.iter().map(|(word, _)| *word).collect();
    let choice = decode_variant(node, &words, cx)?;
    let (word, decode) = variants[choice.index];
    cx.within(word, |cx| decode(&choice.options, cx))
}

/// The words of a choice with their documentation. Called by `choices!`.
pub fn words(table: &[(&'static str, &[&str])]) -> Vec<Word> {
    table.iter().map(|(word, docs)| Word { word, docs: doc_text(docs) }).collect()
}
