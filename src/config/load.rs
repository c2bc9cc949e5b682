//! From the path of a file to a [`Config`]: reads it and what it extends and includes, applies
//! environment and overrides, decodes. Called by `cli` and `sweep`.

use std::fmt;
use std::path::{Path, PathBuf};

use super::decode::{Cx, Decode};
use super::diagnostic::{Diagnostic, Diagnostics};
use super::environment::{Lookup, substitute};
use super::merge::merge;
use super::node::{Node, Value};
use super::overrides::Override;
use super::parse::parse;
use super::schema::Schema;
use super::source::{FileId, SourceMap, Span};
use super::sweep::Sweep;
use super::types::Config;

/// A configuration without errors, and what it was made from.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The typed configuration.
    pub config: Config,
    /// The tree it was decoded from, with everything extended, included and overridden.
    pub root: Node,
    /// The files read and the overrides given.
    pub sources: SourceMap,
}

/// The errors of a configuration, ready to be shown.
#[derive(Debug, Clone)]
pub struct ConfigError {
    diagnostics: Diagnostics,
    sources: SourceMap,
}

impl ConfigError {
    /// The errors in order.
    pub fn diagnostics(&self) -> Vec<&Diagnostic> {
        self.diagnostics.sorted()
    }

    /// The texts that the errors point into.
    pub fn sources(&self) -> &SourceMap {
        &self.sources
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.diagnostics.render(&self.sources).trim_end())
    }
}

impl std::error::Error for ConfigError {}

/// Loads a configuration in the environment of this process. The model stays a tree.
///
/// # Errors
/// Everything that is wrong in any of the files and overrides.
pub fn load(path: &Path, overrides: &[Override]) -> Result<Loaded, Box<ConfigError>> {
    let variables = |name: &str| std::env::var(name).ok();
    load_with(path, overrides, &variables, |_, _| Some(())).map(|(loaded, ())| loaded)
}

/// Loads a configuration and decodes its model with `model`, so that errors of both are reported
/// together. `model` is called whenever there is one, even if other sections are wrong; giving
/// nothing without an error is a broken invariant of the caller.
///
/// # Errors
/// Everything that is wrong in any of the files and overrides.
pub fn load_with<M>(
    path: &Path,
    overrides: &[Override],
    variables: Lookup,
    model: impl FnOnce(&Node, &mut Cx) -> Option<M>,
) -> Result<(Loaded, M), Box<ConfigError>> {
    let mut loader = Loader {
        sources: SourceMap::default(),
        diagnostics: Diagnostics::default(),
        open: Vec::new(),
        variables,
        holes: false,
        schema: Config::schema(),
    };
    let root = loader.root(path, overrides);
    let Loader { sources, diagnostics, holes, .. } = loader;
    // A tree with holes would only add errors about what is not there.
    let Some(root) = root.filter(|_| !holes) else {
        return Err(Box::new(ConfigError { diagnostics, sources }));
    };
    let mut cx = Cx::resume(diagnostics, Config::places());
    let config = Config::decode(&root, &mut cx);
    let model = root.get("model").and_then(|node| cx.within("model", |cx| model(node, cx)));
    let diagnostics = cx.finish();
    match (config, model) {
        (Some(config), Some(model)) if diagnostics.is_empty() => {
            Ok((Loaded { config, root, sources }, model))
        }
        _ => Err(Box::new(ConfigError { diagnostics, sources })),
    }
}

/// Loads a sweep in the environment of this process; `base` becomes a path from this process's
/// folder. Values of the space keep their `${VAR}`, which each trial resolves. `fault` tells what is
/// wrong with a key of the space, which is then reported at its line.
///
/// # Errors
/// Everything that is wrong in the file.
pub fn load_sweep(
    path: &Path,
    fault: impl Fn(&Sweep, &str) -> Option<Diagnostic>,
) -> Result<Sweep, Box<ConfigError>> {
    let variables = |name: &str| std::env::var(name).ok();
    let mut loader = Loader {
        sources: SourceMap::default(),
        diagnostics: Diagnostics::default(),
        open: Vec::new(),
        variables: &variables,
        holes: false,
        schema: Sweep::schema(),
    };
    let file = loader.read(path, None);
    let root = file.and_then(|file| parse(&loader.sources, file, &mut loader.diagnostics));
    let Loader { sources, diagnostics, .. } = loader;
    let Some(root) = root else { return Err(Box::new(ConfigError { diagnostics, sources })) };
    let mut cx = Cx::resume(diagnostics, &[]);
    let sweep = Sweep::decode(&root, &mut cx);
    let mut diagnostics = cx.finish();
    let Some(mut sweep) = sweep.filter(|_| diagnostics.is_empty()) else {
        return Err(Box::new(ConfigError { diagnostics, sources }));
    };
    sweep.base = beside(path, &sweep.base.to_string_lossy());
    for key in sweep.space.keys() {
        let place = root.get("space").and_then(|space| space.entry(key));
        if let (Some(fault), Some((key, _))) = (fault(&sweep, key), place) {
            diagnostics.push(Diagnostic { span: key.span, ..fault });
        }
    }
    match diagnostics.is_empty() {
        true => Ok(sweep),
        false => Err(Box::new(ConfigError { diagnostics, sources })),
    }
}

struct Loader<'e> {
    sources: SourceMap,
    diagnostics: Diagnostics,
    /// The files being read, outermost first, to find cycles.
    open: Vec<PathBuf>,
    variables: Lookup<'e>,
    /// Whether something could not be read, so that the tree is not what was meant.
    holes: bool,
    schema: Schema,
}

impl Loader<'_> {
    fn root(&mut self, path: &Path, overrides: &[Override]) -> Option<Node> {
        let mut root = self.file(path, None, true)?;
        for given in overrides {
            let file = given.register(&mut self.sources);
            let variables = self.variables;
            let prepare =
                |value: &mut Node, errors: &mut Diagnostics| substitute(value, variables, errors);
            let before = self.diagnostics.len();
            given.apply(file, &mut root, &self.schema, &mut self.diagnostics, prepare);
            self.holes |= self.diagnostics.len() > before;
            // An override may name a section's file, and the next one a key in it.
            self.include_sections(&mut root, true);
        }
        Some(root)
    }

    /// Reads a file with what it extends and includes. `named_at` is where another names it.
    fn file(&mut self, path: &Path, named_at: Option<Span>, is_root: bool) -> Option<Node> {
        let node = self.file_node(path, named_at, is_root);
        self.holes |= node.is_none();
        node
    }

    fn file_node(&mut self, path: &Path, named_at: Option<Span>, is_root: bool) -> Option<Node> {
        let identity = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if self.open.contains(&identity) {
            let message = format!("`{}` comes back to itself", path.display());
            let chain = self.chain();
            self.report(named_at?, message).help(format!("it is read by way of {chain}"));
            return None;
        }
        let file = self.read(path, named_at)?;
        let mut node = parse(&self.sources, file, &mut self.diagnostics)?;
        let before = self.diagnostics.len();
        substitute(&mut node, self.variables, &mut self.diagnostics);
        if self.diagnostics.len() > before {
            // What a path with a hole in it names would only be a second error.
            return None;
        }
        self.open.push(identity);
        self.include_sections(&mut node, is_root);
        let node = self.extend(node, path, is_root);
        self.open.pop();
        node
    }

    fn chain(&self) -> String {
        let names: Vec<_> = self.open.iter().filter_map(|p| p.file_name()).collect();
        names.iter().map(|n| n.to_string_lossy()).collect::<Vec<_>>().join(" → ")
    }

    fn report(&mut self, span: Span, message: String) -> &mut Diagnostic {
        self.diagnostics.push(Diagnostic::new(span, "", message))
    }

    /// Reads the text of a file into the sources.
    fn read(&mut self, path: &Path, named_at: Option<Span>) -> Option<FileId> {
        let text = std::fs::read(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
            _ => error.to_string(),
        });
        let text = text.and_then(|bytes| {
            String::from_utf8(bytes).map_err(|_| "it is not text in UTF-8".to_owned())
        });
        match text {
            Ok(text) => Some(self.sources.add_file(path, text)),
            Err(reason) => {
                let span = named_at
                    .unwrap_or_else(|| Span::whole(self.sources.add_file(path, String::new())));
                self.report(span, format!("cannot read `{}`: {reason}", path.display()));
                None
            }
        }
    }

    /// Lays a file over the one its `extends` names.
    fn extend(&mut self, mut node: Node, path: &Path, is_root: bool) -> Option<Node> {
        let Value::Map(entries) = &mut node.value else { return Some(node) };
        let Some(index) = entries.iter().position(|(k, _)| k.text == "extends") else {
            return Some(node);
        };
        let (_, base) = entries.remove(index);
        let Some(name) = base.text() else {
            let message = format!("expected the path of a file, got {}", base.describe());
            self.report(base.span, message);
            return None;
        };
        let base_path = beside(path, name);
        let base = self.file(&base_path, Some(base.span), is_root)?;
        let schema = is_root.then_some(&self.schema);
        Some(merge(base, node, schema))
    }

    /// Replaces values that name a YAML file with its contents: the sections of a run, and any
    /// value at the top of a section's own file.
    fn include_sections(&mut self, node: &mut Node, is_root: bool) {
        let Value::Map(entries) = &mut node.value else { return };
        for (key, value) in entries {
            if key.text == "extends" || (is_root && !self.is_section(&key.text)) {
                continue;
            }
            let Some(name) = value.text().filter(|t| is_yaml(t)) else { continue };
            // A path in an override is relative to the folder the command runs in.
            let from = self.sources.get(value.span.file).path.clone().unwrap_or_default();
            let path = beside(&from, name);
            if let Some(included) = self.file(&path, Some(value.span), false) {
                *value = included;
            }
        }
    }

    fn is_section(&self, key: &str) -> bool {
        self.schema.child(key).is_some_and(Schema::is_compound)
    }
}

/// A path as written in the file `from`.
fn beside(from: &Path, name: &str) -> PathBuf {
    from.parent().unwrap_or(Path::new("")).join(name)
}

fn is_yaml(text: &str) -> bool {
    let extension = Path::new(text).extension();
    extension.is_some_and(|e| e.eq_ignore_ascii_case("yaml") || e.eq_ignore_ascii_case("yml"))
}
