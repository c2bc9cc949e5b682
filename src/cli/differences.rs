//! What differs between the configuration a run was started with and the one it is resumed with.

use serde_json::Value as Json;

use crate::config::node::Node;
use crate::config::{parse, source::SourceMap};

/// Keys that may change: they decide where, how long and how often, not what is computed.
const FREE: [&str; 9] = [
    "name",
    "device",
    "data.workers",
    "data.prefetch_mb",
    "train.epochs",
    "train.steps",
    "train.threads",
    "train.eval_every_steps",
    "checkpoint",
];

/// One line for each key whose value differs, both as YAML texts.
pub fn between(old: &str, new: &str) -> Vec<String> {
    let mut lines = Vec::new();
    match (tree(old), tree(new)) {
        (Some(old), Some(new)) => walk("", &old.to_json(), &new.to_json(), &mut lines),
        _ => lines.push("the run's config.yaml cannot be read".to_owned()),
    }
    lines
}

fn tree(text: &str) -> Option<Node> {
    let mut sources = SourceMap::default();
    let file = sources.add_text("config.yaml".into(), text.to_owned());
    parse::parse(&sources, file, &mut Default::default())
}

fn walk(path: &str, old: &Json, new: &Json, lines: &mut Vec<String>) {
    if old == new || FREE.contains(&path) {
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
                lines,
            );
        }
        return;
    }
    if let (Json::Array(a), Json::Array(b)) = (old, new)
        && a.len() == b.len()
    {
        let pairs = a.iter().zip(b).enumerate();
        return pairs.for_each(|(at, (a, b))| walk(&format!("{path}[{at}]"), a, b, lines));
    }
    lines.push(format!("{path}: {} then, {} now", short(old), short(new)));
}

fn short(value: &Json) -> String {
    let text = value.to_string();
    if text.chars().count() <= 60 {
        text
    } else {
        format!("{}…", text.chars().take(60).collect::<String>())
    }
}
