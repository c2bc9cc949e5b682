//! Failures are never silent: what goes wrong stops the run, is named, gives its exit code, and
//! leaves the last good checkpoint whole.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::fs;
use std::path::Path;

use common::{gpu, wootz};

const CONFIG: &str = "
version: 1
name: faults
data: {train: {csv: {path: CSV, target: y, task: classification}}}
model: {layers: [{linear: {name: first, out_features: 8, init: {normal: {std: 4.0}}}}, relu, {linear: {name: second, out_features: 2}}]}
loss: cross_entropy
optimizer: {sgd: {lr: 1.0e-4}}
train: {epochs: 4, batch_size: 8, shuffle: false}
checkpoint: {every_steps: 1, keep_last: 2}
";

/// 40 rows; row `bad` holds a number so large that the first layer overflows.
fn write(folder: &Path, bad: Option<usize>) {
    let mut csv = "a,b,y\n".to_owned();
    for row in 0..40 {
        let a = if bad == Some(row) { "3e38".to_owned() } else { format!("{}.5", row % 7) };
        csv.push_str(&format!("{a},{},{}\n", row % 5, row % 2));
    }
    fs::write(folder.join("rows.csv"), csv).unwrap();
    let path = folder.join("rows.csv").display().to_string();
    fs::write(folder.join("config.yaml"), CONFIG.replace("CSV", &path)).unwrap();
}

fn train(folder: &Path, more: &[&str]) -> (Option<i32>, String) {
    let output = wootz()
        .args(["train", "--config"])
        .arg(folder.join("config.yaml"))
        .arg("--run-dir")
        .arg(folder.join("run"))
        .args(more)
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn overflow_on(device: &str) {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), Some(19));
    let (code, said) = train(folder.path(), &["--device", device]);
    assert_eq!(code, Some(5), "{said}");
    for words in ["step 3", "not finite", "samples 16, 17, 18, 19, 20, 21, 22, 23", "first"] {
        assert!(said.contains(words), "`{words}` is not in: {said}");
    }
    let newest =
        wootz::train::checkpoint::by_age(&folder.path().join("run")).pop().expect("a checkpoint");
    assert!(wootz::train::checkpoint::step_of(&newest).unwrap() <= 2);
    wootz::train::checkpoint::load(&newest).expect("the last good checkpoint is whole");
}

#[test]
fn a_number_that_overflows_stops_the_run_on_the_cpu() {
    overflow_on("cpu");
}

#[test]
fn a_number_that_overflows_stops_the_run_on_the_gpu() {
    overflow_on(&gpu());
}

fn nan_batch_on(device: &str) {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), None);
    let more = ["--device", device, "--inject-fault", "nan-batch:4"];
    let (code, said) = train(folder.path(), &more);
    assert_eq!(code, Some(5), "{said}");
    for words in ["step 4", "not finite", "the data", "24, 25, 26"] {
        assert!(said.contains(words), "`{words}` is not in: {said}");
    }
    let newest =
        wootz::train::checkpoint::by_age(&folder.path().join("run")).pop().expect("a checkpoint");
    assert!(wootz::train::checkpoint::step_of(&newest).unwrap() <= 3);
    wootz::train::checkpoint::load(&newest).expect("the last good checkpoint is whole");
}

#[test]
fn a_nan_in_a_batch_stops_the_run_on_both_devices() {
    nan_batch_on("cpu");
    nan_batch_on(&gpu());
}

#[test]
fn json_logs_are_json_alone() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), None);
    let more = ["--device", "cpu", "--log-format", "json", "-vv"];
    let (code, said) = train(folder.path(), &more);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.lines().count() > 5, "{said}");
    for line in said.lines() {
        let parsed: Result<serde_json::Value, _> = serde_json::from_str(line);
        assert!(parsed.is_ok(), "no JSON: {line}");
    }
    assert!(said.contains("checkpoint saved") && said.contains("step planned"), "{said}");
}

#[test]
fn a_dropped_submission_stops_the_run() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), None);
    let (code, said) =
        train(folder.path(), &["--device", &gpu(), "--inject-fault", "drop-submission:6"]);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("submission 6"), "{said}");
    let newest =
        wootz::train::checkpoint::by_age(&folder.path().join("run")).pop().expect("a checkpoint");
    wootz::train::checkpoint::load(&newest).expect("the last good checkpoint is whole");
}

#[test]
fn a_lost_device_stops_the_run() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), None);
    let (code, said) =
        train(folder.path(), &["--device", &gpu(), "--inject-fault", "lose-device:6"]);
    assert_eq!(code, Some(4), "{said}");
    let newest =
        wootz::train::checkpoint::by_age(&folder.path().join("run")).pop().expect("a checkpoint");
    wootz::train::checkpoint::load(&newest).expect("the last good checkpoint is whole");
}

#[test]
fn missing_data_and_devices_have_their_exit_codes() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), None);
    let (code, said) = train(folder.path(), &["--device", "no-such-gpu"]);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("no-such-gpu"), "{said}");
    fs::remove_file(folder.path().join("rows.csv")).unwrap();
    let (code, said) = train(folder.path(), &["--device", "cpu"]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("rows.csv"), "{said}");
    fs::write(folder.path().join("config.yaml"), "version: 1\nmodle: {}\n").unwrap();
    let (code, said) = train(folder.path(), &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("did you mean `model`?"), "{said}");
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), None);
    fs::write(folder.path().join("run"), "a file stands where the run folder should").unwrap();
    let (code, said) = train(folder.path(), &["--device", "cpu"]);
    assert_eq!(code, Some(1), "{said}");
}
