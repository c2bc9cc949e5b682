//! The JSON Schema agrees with `check` about structure: it accepts what is shipped, and rejects
//! what is misspelt, misplaced, missing or of another type. Judged by the crate `jsonschema`.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::mutate::{Random, mutate};
use common::wootz;
use jsonschema::Validator;
use serde_json::Value as Json;

fn validator(section: Option<&str>) -> Validator {
    let mut command = wootz();
    command.arg("schema").args(section.iter().flat_map(|name| ["--section", name]));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let schema: Json = serde_json::from_slice(&output.stdout).unwrap();
    jsonschema::draft202012::meta::validate(&schema).unwrap();
    jsonschema::draft202012::new(&schema).unwrap()
}

fn tree(text: &str) -> Option<Json> {
    serde_yaml::from_str(text).ok()
}

/// Each shipped file with the section that it holds.
fn shipped() -> Vec<(PathBuf, Option<&'static str>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    let folders = [
        ("", None),
        ("bench", None),
        ("models", Some("model")),
        ("optimizers", Some("optimizer")),
        ("sweeps", Some("sweep")),
    ];
    let mut found = Vec::new();
    for (folder, section) in folders {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "yaml") {
                found.push((path, section));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn every_shipped_file_names_its_schema_and_follows_it() {
    let files = shipped();
    assert!(files.len() > 40);
    for section in [None, Some("model"), Some("optimizer"), Some("sweep")] {
        let validator = validator(section);
        for (path, _) in files.iter().filter(|(_, of)| *of == section) {
            let text = fs::read_to_string(path).unwrap();
            let errors: Vec<String> = validator
                .iter_errors(&tree(&text).unwrap())
                .map(|error| format!("{}: {error}", error.instance_path()))
                .collect();
            assert!(errors.is_empty(), "{}: {errors:#?}", path.display());
            let header = text.lines().next().unwrap();
            let named = header.strip_prefix("# yaml-language-server: $schema=").unwrap();
            let schema = path.parent().unwrap().join(named);
            let expected = format!("{}.json", section.unwrap_or("config"));
            assert!(schema.ends_with(expected) && schema.exists(), "{}", path.display());
        }
    }
}

#[test]
fn slips_in_shipped_files_are_rejected() {
    let validator = validator(None);
    let mut tried = 0;
    for (path, _) in shipped().iter().filter(|(_, section)| section.is_none()) {
        let text = fs::read_to_string(path).unwrap();
        // In a model with blocks every word may be one.
        let layers = text.lines().position(|line| line.starts_with("model:")).unwrap();
        let after = text.lines().skip(layers + 1).take_while(|line| line.starts_with(' ')).count();
        let blocks = text.contains("blocks:");
        let is_free = |line: usize| blocks && (layers..=layers + after).contains(&(line - 1));
        let mut random = Random(23);
        for _ in 0..200 {
            let mutant = mutate(&text, &mut random, is_free);
            // Twice the same key, or a tab, is a fault of the YAML itself.
            let form = mutant.what.contains("twice") || mutant.what.contains("tab");
            if let Some(tree) = tree(&mutant.text).filter(|_| !form) {
                tried += 1;
                assert!(
                    !validator.is_valid(&tree),
                    "{}: accepted although {}",
                    path.display(),
                    mutant.what
                );
            }
        }
    }
    assert!(tried > 800, "only {tried} slips were tried");
}

#[test]
fn layers_and_their_options_are_checked() {
    let validator = validator(Some("model"));
    let accepts = |text: &str| validator.is_valid(&tree(text).unwrap());
    assert!(accepts("layers: [flatten, relu, {linear: {out_features: 3, name: head}}]"));
    assert!(accepts("layers: [{residual: {layers: [{linear: {out_features: $classes}}]}}]"));
    assert!(accepts("{blocks: {b: {params: {n: int}, layers: [relu]}}, layers: [{b: {n: 3}}]}"));
    assert!(accepts("extends: other.yaml"));
    for wrong in [
        "layers: []",
        "layers: [rleu]",
        "layers: [linear]",
        "layers: [{linear: {}}]",
        "layers: [{linear: {out_features: 0}}]",
        "layers: [{linear: {out_features: 2.5}}]",
        "layers: [{linear: {out_features: 3, nmae: head}}]",
        "layers: [{linear: {out_features: 3}, relu: {}}]",
        "layers: [{residual: {layers: [rleu]}}]",
        "layers: [{parallel: {merge: add, branches: [[relu]]}}]",
        "layers: [{parallel: {merge: sum, branches: [[relu], [tanh]]}}]",
        "layers: [{repeat: {layers: [relu]}}]",
        "layer: [relu]",
        "outputs: [relu]",
    ] {
        assert!(!accepts(wrong), "{wrong}");
    }
}

#[test]
fn a_file_that_extends_another_may_leave_keys_out() {
    let validator = validator(None);
    let accepts = |text: &str| validator.is_valid(&tree(text).unwrap());
    assert!(accepts("{extends: base.yaml, train: {batch_size: 64}}"));
    assert!(!accepts("{extends: base.yaml, train: {batch_sise: 64}}"));
    assert!(!accepts("train: {batch_size: 64}"));
}

#[test]
fn no_schema_for_what_is_no_section() {
    let output = wootz().args(["schema", "--section", "seed"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("`seed`"));
}
