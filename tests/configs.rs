//! Every shipped configuration: it plans, trains a few steps with a falling loss, and every slip
//! in it is found at its line.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{mutate, soak, wootz};

fn shipped() -> Vec<PathBuf> {
    yaml_files("configs")
}

fn yaml_files(folder: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut found: Vec<PathBuf> = fs::read_dir(root)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "yaml"))
        .collect();
    found.sort();
    assert!(found.len() >= 3, "the shipped configurations are gone");
    found
}

#[test]
fn every_configuration_trains_and_its_loss_falls() {
    for path in shipped() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let output = wootz()
            .args(["train", "--device", "cpu", "--steps", "12", "--config"])
            .arg(&path)
            .arg("--run-dir")
            .arg(&run)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}: {}",
            path.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        let losses: Vec<f64> = fs::read_to_string(run.join("metrics.jsonl"))
            .unwrap()
            .lines()
            .filter_map(|line| {
                serde_json::from_str::<serde_json::Value>(line).unwrap()["train/loss"].as_f64()
            })
            .collect();
        assert_eq!(losses.len(), 12, "{}", path.display());
        assert!(losses[11] < losses[0], "{}: {losses:?}", path.display());
    }
}

/// Lines inside `blocks:` hold names of the user's own choice, and `params:` too.
fn free_lines(text: &str) -> Vec<usize> {
    let mut free = Vec::new();
    let mut blocks: Option<usize> = None;
    for (index, line) in text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        if blocks.is_some_and(|at| indent <= at && !line.trim().is_empty()) {
            blocks = None;
        }
        if blocks.is_some_and(|at| indent == at + 2) || line.trim_start().starts_with("params:") {
            free.push(index + 1);
        }
        if line.trim_start().starts_with("blocks:") {
            blocks = Some(indent);
        }
    }
    free
}

#[test]
fn two_hundred_slips_in_each_configuration_are_found_at_their_line() {
    let rounds = if soak() { 1000 } else { 200 };
    for path in shipped().into_iter().chain(yaml_files("configs/bench")) {
        let text = fs::read_to_string(&path).unwrap();
        let free = free_lines(&text);
        let mut random = mutate::Random(17);
        let folder = tempfile::tempdir().unwrap();
        for part in ["models", "optimizers"] {
            copy(
                &Path::new(env!("CARGO_MANIFEST_DIR")).join("configs").join(part),
                &folder.path().join(part),
            );
        }
        let file = folder.path().join("mutant.yaml");
        for _ in 0..rounds {
            let mutant = mutate::mutate(&text, &mut random, |line| free.contains(&line));
            fs::write(&file, &mutant.text).unwrap();
            let said = check(&file).expect_err(&format!(
                "{}: accepted: {}\n{}",
                path.display(),
                mutant.what,
                mutant.text
            ));
            let found =
                mutant.lines.iter().any(|line| said.contains(&format!("mutant.yaml:{line}:")));
            assert!(
                found,
                "{}: {} must be reported at a line of {:?}, but:\n{said}",
                path.display(),
                mutant.what,
                mutant.lines
            );
        }
    }
}

#[test]
fn the_generated_references_are_current() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    for (file, flag) in [("config.md", "--markdown"), ("layers.md", "--layers")] {
        let output = wootz().args(["schema", flag]).output().unwrap();
        let generated = String::from_utf8(output.stdout).unwrap();
        let written = fs::read_to_string(docs.join(file)).unwrap();
        assert!(
            written.contains(generated.trim_end()),
            "docs/{file} is old: write it anew with scripts/references.sh"
        );
    }
}

/// Runs in the long form of the tests only: while options are being added, what editors know may be
/// a day old.
#[test]
fn the_schemas_of_editors_are_current() {
    if !soak() {
        return;
    }
    let schemas = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/schema");
    for (file, section) in [
        ("config.json", None),
        ("model.json", Some("model")),
        ("optimizer.json", Some("optimizer")),
        ("sweep.json", Some("sweep")),
    ] {
        let mut command = wootz();
        command.arg("schema").args(section.iter().flat_map(|name| ["--section", name]));
        let generated = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let written = fs::read_to_string(schemas.join(file)).unwrap();
        assert!(
            written == generated,
            "configs/schema/{file} is old: write it anew with scripts/references.sh"
        );
    }
}

/// Loads a configuration as every command does; the rendered errors otherwise.
fn check(path: &Path) -> Result<(), String> {
    use wootz::config::load::load_with;
    use wootz::layers::Model;
    load_with(path, &[], &|_| None, |node, cx| Model::decode(node, 2, cx))
        .map(|_| ())
        .map_err(|error| error.to_string())
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}
