//! The house's own rules: direction of use between the rooms, size of files, no leftovers.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs" || e == "wgsl") {
            found.push(path);
        }
    }
}

fn all() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    ["src", "kernels"].iter().for_each(|folder| sources(&root.join(folder), &mut found));
    found.sort();
    found
        .into_iter()
        .map(|path| {
            (
                path.strip_prefix(root).expect("inside").to_owned(),
                fs::read_to_string(&path).expect("text"),
            )
        })
        .collect()
}

/// For each room, the rooms that it may use. `graph`, `ops` and what they are run and planned with
/// (`device`'s scalars, `plan`'s pages) are one tier of types.
const MAY_USE: &[(&str, &[&str])] = &[
    ("config", &["config"]),
    ("graph", &["graph", "ops", "device", "plan"]),
    ("ops", &["graph", "ops", "device", "plan", "cpu_by_eval"]),
    ("kernels", &["ops"]),
    ("plan", &["graph", "ops", "plan"]),
    ("device", &["graph", "ops", "plan", "kernels", "device"]),
    ("layers", &["config", "graph", "ops", "plan", "layers"]),
    ("data", &["config", "graph", "ops", "layers", "data"]),
    ("train", &["config", "graph", "ops", "plan", "device", "layers", "data", "log", "train"]),
    ("sweep", &["config", "train", "sweep"]),
];

#[test]
fn rooms_use_only_what_lies_before_them() {
    let mut wrong = Vec::new();
    for (path, text) in all() {
        let parts: Vec<String> =
            path.components().map(|c| c.as_os_str().to_string_lossy().into_owned()).collect();
        let Some((room, allowed)) =
            MAY_USE.iter().find(|(room, _)| parts.get(1).is_some_and(|p| p == room))
        else {
            continue;
        };
        for used in text.match_indices("crate::").map(|(at, _)| &text[at + 7..]) {
            let name: String =
                used.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if !name.is_empty() && !allowed.contains(&name.as_str()) {
                wrong.push(format!("{}: `{room}` uses `{name}`", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn files_are_small_and_nothing_is_left_over() {
    for (path, text) in all() {
        let lines = text.lines().count();
        assert!(lines <= 600, "{}: {lines} lines", path.display());
        for word in ["TODO", "FIXME", "XXX", "todo!(", "unimplemented!("] {
            assert!(!text.contains(word), "{}: {word}", path.display());
        }
    }
}
