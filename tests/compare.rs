//! `wootz bench --compare` tells what became slower from what only varied.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::wootz;

fn file(folder: &Path, name: &str, step: f64, op: f64) -> PathBuf {
    let times = |middle: f64| -> Vec<f64> {
        (0..8).map(|i| middle * (1.0 + 0.004 * (f64::from(i) - 3.5))).collect()
    };
    let (steps, ops) = (times(step), times(op));
    let text = format!(
        r#"{{"config":"a.yaml","sets":["precision=mixed"],"device":"cpu","block_ms":{steps:?}}}
{{"config":"a.yaml","sets":["precision=mixed"],"device":"cpu","ops":[{{"op":"matmul","pass":"","scope":"fc","shapes":"[2, 3]","us":{ops:?}}}]}}
"#
    );
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path
}

fn compare(before: &Path, after: &Path) -> (Option<i32>, String, String) {
    let output = wootz().args(["bench", "--compare"]).args([before, after]).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_slower_op_is_named_and_sets_the_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let before = file(folder.path(), "before.json", 10.0, 50.0);
    let after = file(folder.path(), "after.json", 10.1, 60.0);
    let (code, said, _) = compare(&before, &after);
    assert_eq!(code, Some(1), "{said}");
    let line = |word: &str| said.lines().find(|line| line.contains(word)).unwrap();
    assert!(line("µs of matmul fc [2, 3]").contains("+20.0 %  slower"), "{said}");
    assert!(line("a.yaml precision=mixed on cpu: ms of a step").contains("same"), "{said}");
    let (code, said, _) = compare(&after, &before);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("faster") && said.ends_with("0 slower\n"), "{said}");
}

#[test]
fn files_that_are_no_measurements_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let good = file(folder.path(), "good.json", 1.0, 1.0);
    for (text, words) in
        [("{}", "not what `wootz bench` prints"), ("", "no measurements"), ("{\"a", "EOF")]
    {
        let bad = folder.path().join("bad.json");
        fs::write(&bad, text).unwrap();
        let (code, _, said) = compare(&good, &bad);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(words) && said.contains("bad.json"), "{said}");
    }
    let output = wootz().arg("bench").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn what_bench_prints_can_be_compared() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ops.json");
    let output = wootz()
        .args(["bench", "--config", "configs/digits-mlp.yaml", "--device", "cpu"])
        .args(["--ops", "--json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::write(&path, &output.stdout).unwrap();
    let (code, said, _) = compare(&path, &path);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("matmul") && !said.contains("too few"), "{said}");
}
