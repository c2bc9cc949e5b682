//! YAML text to [`Node`]s. The only file that names the YAML parser. It reads parser events and
//! not serde values because a diagnostic needs what serde drops: where each key stands, keys
//! given twice, and scalars as they were written.

use std::collections::HashMap;

use granit_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span as Range};

use super::diagnostic::{Diagnostic, Diagnostics};
use super::node::{Key, Node, Value};
use super::source::{FileId, SourceMap, Span};

/// Deepest nesting, so that no later stage can run out of stack.
const MAX_DEPTH: usize = 100;
/// Most values that aliases may add, so that a few lines cannot expand to gigabytes.
const MAX_ALIASED: usize = 100_000;

/// Parses a text of the map. Reports every syntax error it can and keys given twice; gives
/// nothing if there is no tree to go on with.
pub fn parse(sources: &SourceMap, file: FileId, diagnostics: &mut Diagnostics) -> Option<Node> {
    parse_text(&sources.get(file).text, file, diagnostics)
}

/// Parses `text`, whose positions are those of `file`.
pub(super) fn parse_text(text: &str, file: FileId, diagnostics: &mut Diagnostics) -> Option<Node> {
    if let Some(tab) = tab_indentation(text, file) {
        diagnostics.push(tab);
        return None;
    }
    let mut builder = Builder {
        events: Parser::new_from_str(text),
        file,
        lines: text.lines().map(|l| l.trim_end().chars().count()).collect(),
        anchors: HashMap::new(),
        aliased: 0,
    };
    match builder.document() {
        Ok(mut node) => {
            drop_duplicates(&mut node, "", diagnostics);
            Some(node)
        }
        Err(error) => {
            diagnostics.push(*error);
            None
        }
    }
}

/// An error for the first line that is indented with a tab. Checked before parsing, because
/// YAML allows some of them and explains the others badly.
fn tab_indentation(text: &str, file: FileId) -> Option<Diagnostic> {
    let mut tabbed = text.lines().enumerate().filter_map(|(index, line)| {
        let indent = &line[..line.len() - line.trim_start().len()];
        let column = indent.find('\t').filter(|_| !line.trim().is_empty())?;
        Some((index, column))
    });
    let (index, column) = tabbed.next()?;
    let span = Span { file, line: position(index), column: position(column), len: 1 };
    let mut error = Diagnostic::new(span, "", "a tab is used for indentation");
    error.help("YAML is indented with spaces");
    match tabbed.count() {
        0 => {}
        more => _ = error.note(format!("so are {more} further lines")),
    }
    Some(error)
}

/// From an index to a 1-based line or column.
fn position(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX - 1) + 1
}

/// Reports the second and later of equal keys and removes them.
fn drop_duplicates(node: &mut Node, path: &str, diagnostics: &mut Diagnostics) {
    match &mut node.value {
        Value::Null | Value::Scalar { .. } => {}
        Value::List(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                drop_duplicates(item, &format!("{path}[{i}]"), diagnostics);
            }
        }
        Value::Map(entries) => {
            let mut first: HashMap<String, u32> = HashMap::new();
            let dot = if path.is_empty() { "" } else { "." };
            entries.retain_mut(|(key, value)| {
                let path = format!("{path}{dot}{}", key.text);
                if let Some(line) = first.get(&key.text) {
                    let message = format!("key `{}` is given twice", key.text);
                    diagnostics
                        .push(Diagnostic::new(key.span, path, message))
                        .note(format!("first given on line {line}"));
                    return false;
                }
                first.insert(key.text.clone(), key.span.line);
                drop_duplicates(value, &path, diagnostics);
                true
            });
        }
    }
}

type Parsed<T> = Result<T, Box<Diagnostic>>;

struct Builder<'t> {
    events: Parser<'t, granit_parser::StrInput<'t>>,
    file: FileId,
    /// Characters of each line, to end spans of values that go on below.
    lines: Vec<usize>,
    anchors: HashMap<usize, Node>,
    aliased: usize,
}

impl<'t> Builder<'t> {
    fn document(&mut self) -> Parsed<Node> {
        let mut root = None;
        loop {
            let (event, range) = self.next()?;
            match event {
                Event::StreamEnd => break,
                Event::DocumentStart(..) if root.is_some() => {
                    return self.fail(range, "a second document starts here").map_err(|mut e| {
                        e.help("a configuration file holds one document");
                        e
                    });
                }
                Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
                event => root = Some(self.node(event, range, 0)?),
            }
        }
        let start = Span { file: self.file, line: 1, column: 1, len: 1 };
        Ok(root.unwrap_or(Node::null(start)))
    }

    /// The next event that is not a comment.
    fn next(&mut self) -> Parsed<(Event<'t>, Range)> {
        loop {
            match self.events.next_event() {
                None => return Ok((Event::StreamEnd, Range::empty(Marker::new(0, 1, 0)))),
                Some(Ok((Event::Comment(..), _))) => {}
                Some(Ok(event)) => return Ok(event),
                Some(Err(error)) => return Err(self.syntax(&error)),
            }
        }
    }

    fn syntax(&self, error: &ScanError) -> Box<Diagnostic> {
        let mark = *error.marker();
        // An error at the end of the text is shown on the last line there is.
        let line = mark.line().clamp(1, self.lines.len().max(1));
        let column = if line < mark.line() { self.lines[line - 1] } else { mark.col() };
        let span =
            Span { file: self.file, line: position(line - 1), column: position(column), len: 1 };
        Box::new(Diagnostic::new(span, "", format!("not valid YAML: {}", error.info())))
    }

    fn fail<T>(&self, range: Range, message: impl Into<String>) -> Parsed<T> {
        Err(Box::new(Diagnostic::new(self.span(range.start, range.end), "", message)))
    }

    /// The part on its first line of what lies between two marks.
    fn span(&self, start: Marker, end: Marker) -> Span {
        let rest = || {
            let length = self.lines.get(start.line().saturating_sub(1)).copied().unwrap_or(0);
            length.saturating_sub(start.col())
        };
        let len = if start.line() == end.line() { end.col() - start.col() } else { rest() };
        Span {
            file: self.file,
            line: position(start.line().saturating_sub(1)),
            column: position(start.col()),
            len: u32::try_from(len.max(1)).unwrap_or(u32::MAX),
        }
    }

    /// The value that begins with `event`.
    fn node(&mut self, event: Event<'t>, range: Range, depth: usize) -> Parsed<Node> {
        if depth > MAX_DEPTH {
            return self.fail(range, format!("nested deeper than {MAX_DEPTH} levels"));
        }
        if let Some(tag) = event.tag() {
            return self.fail(range, format!("the YAML tag `{}` is not supported", tag.original()));
        }
        let (anchor, value, end) = match event {
            Event::Alias(id) => return self.alias(id, range, depth),
            Event::Scalar(text, style, anchor, _) => {
                let quoted = style != ScalarStyle::Plain;
                let null = !quoted && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let text = text.into_owned();
                let value = if null { Value::Null } else { Value::Scalar { text, quoted } };
                (anchor, value, range.end)
            }
            Event::SequenceStart(_, anchor, _) => {
                let (items, end) = self.list(depth)?;
                (anchor, Value::List(items), end)
            }
            Event::MappingStart(_, anchor, _) => {
                let (entries, end) = self.map(depth)?;
                (anchor, Value::Map(entries), end)
            }
            _ => return self.fail(range, "not valid YAML: a value was expected"),
        };
        let node = Node { value, span: self.span(range.start, end) };
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Parsed<(Vec<Node>, Marker)> {
        let mut items = Vec::new();
        loop {
            let (event, range) = self.next()?;
            if matches!(event, Event::SequenceEnd) {
                return Ok((items, range.end));
            }
            items.push(self.node(event, range, depth + 1)?);
        }
    }

    fn map(&mut self, depth: usize) -> Parsed<(Vec<(Key, Node)>, Marker)> {
        let mut entries: Vec<(Key, Node)> = Vec::new();
        let mut merged = Vec::new();
        let end = loop {
            let (event, range) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                break range.end;
            }
            let Event::Scalar(text, style, ..) = event else {
                return self.fail(range, "a key must be a plain name");
            };
            let key = Key { text: text.into_owned(), span: self.span(range.start, range.end) };
            let (event, range) = self.next()?;
            let value = self.node(event, range, depth + 1)?;
            if key.text == "<<" && style == ScalarStyle::Plain {
                merged.extend(self.merge_sources(value)?);
            } else {
                entries.push((key, value));
            }
        };
        // Keys of the map itself win over merged ones, earlier merged ones over later.
        for (key, value) in merged {
            if entries.iter().all(|(k, _)| k.text != key.text) {
                entries.push((key, value));
            }
        }
        Ok((entries, end))
    }

    /// What `<<: *a` or `<<: [*a, *b]` brings.
    fn merge_sources(&self, value: Node) -> Parsed<Vec<(Key, Node)>> {
        let wrong = |span| {
            let message = "`<<` merges a map or a list of maps";
            Err(Box::new(Diagnostic::new(span, "", message)))
        };
        match value.value {
            Value::Map(entries) => Ok(entries),
            Value::List(items) => items.into_iter().try_fold(Vec::new(), |mut all, item| {
                let Value::Map(entries) = item.value else { return wrong(item.span) };
                all.extend(entries);
                Ok(all)
            }),
            _ => wrong(value.span),
        }
    }

    fn alias(&mut self, id: usize, range: Range, depth: usize) -> Parsed<Node> {
        let Some(node) = self.anchors.get(&id) else {
            return self.fail(range, "this alias stands inside what it refers to");
        };
        let (height, count) = extent(node);
        self.aliased += count;
        if depth + height > MAX_DEPTH || self.aliased > MAX_ALIASED {
            return self.fail(range, "aliases expand to too much");
        }
        Ok(node.clone())
    }
}

/// Levels and number of values of a tree.
fn extent(node: &Node) -> (usize, usize) {
    let add = |(height, count): (usize, usize), child: &Node| {
        let (h, c) = extent(child);
        (height.max(h + 1), count + c)
    };
    match &node.value {
        Value::Null | Value::Scalar { .. } => (0, 1),
        Value::List(items) => items.iter().fold((0, 1), add),
        Value::Map(entries) => entries.iter().map(|(_, n)| n).fold((0, 1), add),
    }
}
