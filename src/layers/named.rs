//! What has a name while a model is built.

use std::collections::BTreeMap;

use super::BuildError;
use crate::config::nearest::nearest;
use crate::config::source::Span;
use crate::graph::ValueId;

/// A value and where it came from, for messages.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) value: ValueId,
    pub(super) from: String,
    pub(super) line: Option<u32>,
}

impl Source {
    pub(super) fn described(&self) -> String {
        match self.line {
            Some(line) => format!("{} (line {line})", self.from),
            None => self.from.clone(),
        }
    }
}

/// What the inputs and the layers that have names give.
#[derive(Clone, Debug)]
pub(super) struct Named(pub(super) BTreeMap<String, Source>);

impl Named {
    /// A value by its name.
    pub(super) fn value(&self, name: &str) -> Option<ValueId> {
        self.0.get(name).map(|source| source.value)
    }

    /// The name that is most like another one.
    pub(super) fn nearest(&self, name: &str) -> Option<&str> {
        nearest(name, self.0.keys().map(String::as_str))
    }

    /// A layer's result by its name, which stands at `path`.
    pub(super) fn find(&self, name: &str, span: Span, path: &str) -> Result<Source, BuildError> {
        self.0.get(name).cloned().ok_or_else(|| BuildError {
            span,
            path: path.to_owned(),
            message: format!("`{name}` names no layer"),
            note: self.nearest(name).map(|meant| format!("did you mean `{meant}`?")),
        })
    }
}
