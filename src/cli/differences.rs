//! What differs between the configuration a run was started with and the one it is resumed with.

use serde_json::Value as Json;

use crate::config::node::Node;
use crate::config::{parse, source::SourceMap};

/// Keys that may change: they decide where, how long and how often, not what is computed.
const FREE: [&str; 10] = [
    "name",
    "device",
    "data.workers",
    "data.prefetch_mb",
    "train.epochs",
    "train.steps",
    "train.threads",
    "train.eval_every_steps",
    "checkpoint",
    "records",
];

/// A key whose value differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Its path.
    pub path: String,
    /// The first configuration's value, shortened.
    pub old: String,
    /// The second one's.
    pub new: String,
}

/// One line for each key that decides what is computed and whose value differs, both as YAML texts.
pub fn between(old: &str, new: &str) -> Vec<String> {
    let is_free = |path: &str| {
        FREE.iter().any(|free| {
            path.strip_prefix(free).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    };
    let differences = all(old, new).into_iter().filter(|found| !is_free(&found.path));
    differences
        .map(|Difference { path, old, new }| match path.as_str() {
            "" => "the run's config.yaml cannot be read".to_owned(),
            _ => format!("{path}: {old} then, {new} now"),
        })
        .collect()
}

/// Every key whose value differs; a text that is no YAML differs as a whole, at an empty path.
pub fn all(old: &str, new: &str) -> Vec<Difference> {
    let mut found = Vec::new();
    match (tree(old), tree(new)) {
        (Some(old), Some(new)) => walk("", &old.to_json(), &new.to_json(), &mut found),
        _ => found.push(Difference { path: String::new(), old: String::new(), new: String::new() }),
    }
    found
}

fn tree(text: &str) -> Option<Node> {
    let mut sources = SourceMap::default();
    let file = sources.add_text("config.yaml".into(), text.to_owned());
    parse::parse(&sources, file, &mut Default::default())
}

fn walk(path: &str, old: &Json, new: &Json, found: &mut Vec<Difference>) {
    if old == new {
        return;
    }
    if let (Json::Object(a), Json::Object(b)) = (old, new) {
        let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            let inner = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            walk(
                &inner,
                a.get(key).unwrap_or(&Json::Null),
                b.get(key).unwrap_or(&Json::Null),
                found,
            );
        }
        return;
    }
    if let (Json::Array(a), Json::Array(b)) = (old, new)
        && a.len() == b.len()
    {
        let pairs = a.iter().zip(b).enumerate();
        return pairs.for_each(|(at, (a, b))| walk(&format!("{path}[{at}]"), a, b, found));
    }
    found.push(Difference { path: path.to_owned(), old: short(old), new: short(new) });
}

fn short(value: &Json) -> String {
    let text = value.to_string();
    if text.chars().count() <= 60 {
        text
    } else {
        format!("{}…", text.chars().take(60).collect::<String>())
    }
}
