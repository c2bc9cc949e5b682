//! What a run records for other programs: metrics.csv as a table of metrics.jsonl, event files with
//! the bytes of TensorBoard's own package, and the numbers that Prometheus collects.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use common::wootz;
use serde_json::Value as Json;
use wootz::train::records::event;

fn train(run: &Path, more: &[&str]) {
    let mut command = wootz();
    command.args(["train", "--config", "configs/digits-mlp.yaml", "--device", "cpu"]);
    let output = command.args(more).arg("--run-dir").arg(run).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The numbers of metrics.jsonl, by step.
fn lines(run: &Path) -> BTreeMap<u64, BTreeMap<String, f64>> {
    let mut steps: BTreeMap<u64, BTreeMap<String, f64>> = BTreeMap::new();
    for line in fs::read_to_string(run.join("metrics.jsonl")).unwrap().lines() {
        let line: Json = serde_json::from_str(line).unwrap();
        let values = steps.entry(line["step"].as_u64().unwrap()).or_default();
        let numbers = line.as_object().unwrap().iter();
        values.extend(numbers.filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))));
    }
    steps
}

fn table(run: &Path) -> BTreeMap<u64, BTreeMap<String, f64>> {
    let mut reader = csv::Reader::from_path(run.join("metrics.csv")).unwrap();
    let header = reader.headers().unwrap().clone();
    let rows = reader.records().map(|row| {
        let row = row.unwrap();
        let filled = header.iter().zip(&row).filter(|(_, field)| !field.is_empty());
        let values: BTreeMap<String, f64> =
            filled.map(|(name, field)| (name.to_owned(), field.parse().unwrap())).collect();
        (values["step"] as u64, values)
    });
    rows.collect()
}

#[test]
fn metrics_csv_is_metrics_jsonl_as_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let more =
        ["--set", "train.eval_every_steps=5", "--set", "metrics=[accuracy, confusion_matrix]"];
    train(&run, &[&more[..], &["--steps", "12"]].concat());
    assert_eq!(table(&run).len(), 12);
    assert_eq!(table(&run), lines(&run));
    train(&run, &[&more[..], &["--steps", "20", "--resume"]].concat());
    assert_eq!(table(&run).len(), 20);
    assert_eq!(table(&run), lines(&run));
    assert!(table(&run)[&10].contains_key("valid/accuracy"));
    assert!(!table(&run)[&11].contains_key("valid/accuracy"));
}

#[test]
fn metrics_csv_is_written_when_a_run_is_stopped_by_its_health() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let args = ["train", "--config", "configs/digits-mlp.yaml", "--device", "cpu"];
    let mut command = wootz();
    command.args(args).args(["--inject-fault", "nan-batch:7", "--run-dir"]).arg(&run);
    assert_eq!(command.output().unwrap().status.code(), Some(5));
    assert_eq!(table(&run).len(), 6);
}

#[test]
fn events_have_the_bytes_that_tensorboard_writes() {
    let time = 1_700_000_000.25;
    let values = [0.0, -1.5, 0.25, 0.25, 3.0, 1e-13, 1000.0];
    let events = [
        event::file_version(time),
        event::session_start(time, 301),
        event::summary(time, 300, &[event::text("config/text_summary", "    version: 1")]),
        event::summary(time, 301, &[event::scalar("train/loss", 0.625), event::scalar("lr", 0.0)]),
        event::summary(time, 301, &[event::histogram("weights/0.weight", &values)]),
    ];
    let written: Vec<u8> = events.iter().flat_map(|event| event.record()).collect();
    assert_eq!(written, include_bytes!("reference/events.tfrecord"));
}

/// The messages of an event file.
fn records(path: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(path).unwrap();
    let (mut found, mut rest) = (Vec::new(), bytes.as_slice());
    while !rest.is_empty() {
        let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
        found.push(rest[12..12 + length].to_vec());
        rest = &rest[16 + length..];
    }
    found
}

#[test]
fn a_run_writes_event_files() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let set = "records.tensorboard.histograms=true";
    train(&run, &["--set", set, "--steps", "6"]);
    let files = || -> Vec<PathBuf> {
        let entries = fs::read_dir(run.join("tensorboard")).unwrap();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    };
    let first = records(&files()[0]);
    // The version, the configuration, six steps, and at the end a histogram and a validation.
    assert_eq!(first.len(), 1 + 1 + 6 + 2);
    let holds =
        |record: &[u8], text: &str| record.windows(text.len()).any(|w| w == text.as_bytes());
    assert!(holds(&first[1], "batch_size: 32"));
    assert!(holds(&first[2], "train/loss"));
    assert!(
        first.iter().any(|record| holds(record, "weights/0.weight") || holds(record, "weights/"))
    );
    assert!(holds(&first[9], "valid/accuracy"));

    train(&run, &["--set", set, "--steps", "8", "--resume"]);
    assert_eq!(files().len(), 2);
    assert_eq!(records(&files()[1]).len(), 1 + 2 + 2 + 2);
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn prometheus_collects_the_latest_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = wootz();
    command.args(["train", "--config", "configs/digits-mlp.yaml", "--device", "cpu"]);
    command.args(["--set", "train.epochs=100000", "--metrics-addr", "127.0.0.1:0", "--run-dir"]);
    command.arg(folder.path().join("run")).stderr(Stdio::piped()).stdout(Stdio::null());
    let mut running = Running(command.spawn().unwrap());
    let mut said = BufReader::new(running.0.stderr.take().unwrap()).lines();
    let address = said.find_map(|line| Some(line.unwrap().strip_prefix("metrics: ")?.to_owned()));
    let address = address.unwrap();
    std::thread::spawn(move || said.for_each(drop));
    let collect = || {
        let mut text = String::new();
        let response = ureq::get(&address).call().unwrap();
        assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4");
        response.into_body().into_reader().read_to_string(&mut text).unwrap();
        text
    };
    let value = |text: &str, name: &str| -> Option<f64> {
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{")))?;
        line.rsplit(' ').next()?.parse().ok()
    };
    let start = std::time::Instant::now();
    let text = loop {
        let text = collect();
        if value(&text, "wootz_step").unwrap() > 3.0 || start.elapsed().as_secs() > 60 {
            break text;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    assert!(value(&text, "wootz_step").unwrap() > 3.0, "{text}");
    assert!(value(&text, "wootz_loss").unwrap() > 0.0, "{text}");
    assert!(value(&text, "wootz_learning_rate").unwrap() > 0.0, "{text}");
    assert!(value(&text, "wootz_planned_bytes").unwrap() > 1000.0, "{text}");
    assert!(text.contains("# TYPE wootz_loss gauge\nwootz_loss{run=\"digits-mlp\"} "), "{text}");
    // Each line is a comment, or a name with labels and a number.
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        assert!(line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
    }
    let gone = ureq::get(format!("{address}/no")).call();
    assert!(matches!(gone, Err(ureq::Error::StatusCode(404))));
}

#[test]
fn an_address_that_is_none_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = wootz();
    command.args(["train", "--config", "configs/digits-mlp.yaml", "--device", "cpu", "--run-dir"]);
    command.arg(folder.path().join("run")).args(["--metrics-addr", "nowhere"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot listen at `nowhere`"));
}
