//! Errors about the user's files: collected by every stage of `config` (and by `layers` through
//! `Cx`), shown together with the lines they are about.

use std::fmt::Write as _;

use super::source::{SourceMap, Span};

/// One error in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Where.
    pub span: Span,
    /// The key path, such as `model.layers[3].conv2d.stride`; empty at the top.
    pub path: String,
    /// What is wrong: "expected X, got Y".
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// Further facts.
    pub notes: Vec<String>,
}

impl Diagnostic {
    /// An error with neither help nor notes.
    pub fn new(span: Span, path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { span, path: path.into(), message: message.into(), help: None, notes: Vec::new() }
    }

    /// Sets what to do about it.
    pub fn help(&mut self, help: impl Into<String>) -> &mut Self {
        self.help = Some(help.into());
        self
    }

    /// Adds a fact.
    pub fn note(&mut self, note: impl Into<String>) -> &mut Self {
        self.notes.push(note.into());
        self
    }

    fn render(&self, sources: &SourceMap, out: &mut String) {
        let source = sources.get(self.span.file);
        let _ = writeln!(out, "error: {}", self.message);
        let path = match self.path.as_str() {
            "" => String::new(),
            path => format!("   ({path})"),
        };
        let shown = sources.line(self.span).filter(|line| !line.trim().is_empty());
        let number = self.span.line.to_string();
        let pad = " ".repeat(if shown.is_some() { number.len() } else { 1 });
        if self.span.line == 0 {
            let _ = writeln!(out, "{pad}--> {}{path}", source.name);
        } else {
            let at = format!("{}:{}:{}", source.name, self.span.line, self.span.column);
            let _ = writeln!(out, "{pad}--> {at}{path}");
        }
        if let Some(line) = shown {
            let _ = writeln!(out, "{pad} |");
            let _ = writeln!(out, "{number} | {}", line.replace('\t', " ").trim_end());
            let _ = writeln!(out, "{pad} | {}", self.underline(line));
        }
        for (kind, text) in
            self.help.iter().map(|h| ("help", h)).chain(self.notes.iter().map(|n| ("note", n)))
        {
            let _ = writeln!(out, "{pad} = {kind}: {text}");
        }
    }

    /// Carets under the span, kept inside the line.
    fn underline(&self, line: &str) -> String {
        let start = self.span.column.saturating_sub(1) as usize;
        let room = line.trim_end().chars().count().saturating_sub(start).max(1);
        let len = (self.span.len as usize).clamp(1, room);
        format!("{}{}", " ".repeat(start), "^".repeat(len))
    }
}

/// All errors found so far.
#[derive(Debug, Clone, Default)]
pub struct Diagnostics {
    items: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Adds an error; the result can take `.help()` and `.note()`.
    pub fn push(&mut self, diagnostic: Diagnostic) -> &mut Diagnostic {
        self.items.push(diagnostic);
        self.items.last_mut().expect("just pushed")
    }

    /// How many errors were pushed.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The errors in order of file, line and column; what an alias makes appear twice, once.
    pub fn sorted(&self) -> Vec<&Diagnostic> {
        let mut items: Vec<_> = self.items.iter().collect();
        items.sort_by_key(|d| d.span);
        items.dedup_by(|a, b| a.span == b.span && a.message == b.message);
        items
    }

    /// The report a user reads: every error, then their number and the files they are in.
    pub fn render(&self, sources: &SourceMap) -> String {
        let items = self.sorted();
        let mut out = String::new();
        let mut names: Vec<&str> = Vec::new();
        for item in &items {
            item.render(sources, &mut out);
            out.push('\n');
            let name = sources.get(item.span.file).name.as_str();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let plural = if items.len() == 1 { "error" } else { "errors" };
        let _ = writeln!(out, "{} {plural} in {}", items.len(), names.join(", "));
        out
    }
}
