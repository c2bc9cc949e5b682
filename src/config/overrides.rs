//! `--set key.path[2].x=value`: reads the path and the value of an override.

use super::diagnostic::{Diagnostic, Diagnostics};
use super::merge::{Step, set};
use super::node::{Key, Node};
use super::parse::parse_text;
use super::schema::Schema;
use super::source::{FileId, SourceMap, Span};

/// One override, as given: `train.epochs=3`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    text: String,
}

impl Override {
    /// From the text after `--set`. What is wrong with it is reported when it is applied.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }

    /// The text after `--set`.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Adds the text to `sources`, shown there as a file of the name `--set <text>`.
    pub(super) fn register(&self, sources: &mut SourceMap) -> FileId {
        let name = format!("--set {}", self.text.replace(['\n', '\r'], " "));
        sources.add_text(name, self.text.clone())
    }

    /// Changes `root`; an error goes to `diagnostics`. `prepare` is applied to the value.
    pub(super) fn apply(
        &self,
        file: FileId,
        root: &mut Node,
        schema: &Schema,
        diagnostics: &mut Diagnostics,
        prepare: impl FnOnce(&mut Node, &mut Diagnostics),
    ) {
        let whole = Span { file, line: 1, column: 1, len: char_count(&self.text) };
        let Some((path, value)) = self.text.split_once('=') else {
            diagnostics
                .push(Diagnostic::new(whole, "", "an override needs a key and a value"))
                .help("write `--set key.path=value`");
            return;
        };
        let Some(steps) = steps(path, file) else {
            let span = Span { len: char_count(path), ..whole };
            diagnostics
                .push(Diagnostic::new(span, "", format!("`{path}` is not a path of keys")))
                .help("write it as `train.epochs` or `model.layers[2].linear.bias`");
            return;
        };
        // Blanks in place of the path keep the columns right.
        let blanks = " ".repeat(path.chars().count() + 1);
        let Some(mut value) = parse_text(&format!("{blanks}{value}"), file, diagnostics) else {
            return;
        };
        prepare(&mut value, diagnostics);
        if let Err(error) = set(root, &steps, value, Some(schema)) {
            diagnostics.push(Diagnostic::new(error.span, path, error.message));
        }
    }
}

fn char_count(text: &str) -> u32 {
    u32::try_from(text.chars().count()).unwrap_or(u32::MAX)
}

/// Takes `a.b[2].c` apart; nothing if it is not of that form.
fn steps(path: &str, file: FileId) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut column = 1;
    for part in path.split('.') {
        let (name, indices) = part.split_at(part.find('[').unwrap_or(part.len()));
        if name.is_empty() || name != name.trim() {
            return None;
        }
        let len = char_count(name);
        let span = Span { file, line: 1, column, len };
        steps.push(Step::Key(Key { text: name.to_owned(), span }));
        column += len;
        let mut rest = indices;
        while !rest.is_empty() {
            let (digits, after) = rest.strip_prefix('[')?.split_once(']')?;
            let len = char_count(digits) + 2;
            steps.push(Step::Index(digits.parse().ok()?, Span { file, line: 1, column, len }));
            column += len;
            rest = after;
        }
        column += 1;
    }
    Some(steps)
}
