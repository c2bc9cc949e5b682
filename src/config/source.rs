//! The texts of a configuration and positions in them. `parse` makes the spans, `diagnostic`
//! shows the lines they point at, `load` keeps the files for hashing.

use std::path::{Path, PathBuf};

/// Number of a text in its [`SourceMap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// A stretch of one line. Lines and columns count from 1, in characters; line 0 means the file
/// as a whole (for instance one that cannot be read).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The text it lies in.
    pub file: FileId,
    /// Line, from 1.
    pub line: u32,
    /// Column of the first character, from 1.
    pub column: u32,
    /// Characters covered on that line.
    pub len: u32,
}

impl Span {
    /// The file as a whole.
    pub fn whole(file: FileId) -> Self {
        Self { file, line: 0, column: 0, len: 0 }
    }
}

/// One text: a file that was read, or the text of a `--set` override.
#[derive(Debug, Clone)]
pub struct Source {
    /// As shown in messages.
    pub name: String,
    /// The file; none for an override.
    pub path: Option<PathBuf>,
    /// The contents; empty if the file could not be read.
    pub text: String,
}

/// All texts that make up one configuration, in the order they were read.
#[derive(Debug, Clone, Default)]
pub struct SourceMap {
    sources: Vec<Source>,
}

impl SourceMap {
    /// Adds the contents of a file.
    pub fn add_file(&mut self, path: &Path, text: String) -> FileId {
        self.add(Source { name: path.display().to_string(), path: Some(path.to_owned()), text })
    }

    /// Adds a text that is no file.
    pub fn add_text(&mut self, name: String, text: String) -> FileId {
        self.add(Source { name, path: None, text })
    }

    fn add(&mut self, source: Source) -> FileId {
        let id = u32::try_from(self.sources.len()).expect("fewer than 2^32 files");
        self.sources.push(source);
        FileId(id)
    }

    /// The text with this number.
    pub fn get(&self, file: FileId) -> &Source {
        &self.sources[file.0 as usize]
    }

    /// Paths and contents of all files read: what a run records to be repeated.
    pub fn files(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        self.sources.iter().filter_map(|s| Some((s.path.as_deref()?, s.text.as_bytes())))
    }

    /// The line a span lies on, without its line break.
    pub fn line(&self, span: Span) -> Option<&str> {
        let index = (span.line as usize).checked_sub(1)?;
        self.get(span.file).text.lines().nth(index)
    }
}
