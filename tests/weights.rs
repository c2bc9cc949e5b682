//! `weights` of a configuration: the tensors of another program become the model's, by a map of
//! names, and every difference is listed. tests/reference/weights.py wrote the file.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Output;

use common::reference::{Reference, floats, folder};
use common::wootz;
use sha2::{Digest, Sha256};
use wootz::train::checkpoint;

/// The rows that PyTorch was given, and the probabilities that it answered with.
fn recorded() -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
    let file = Reference::read("weights");
    let rows = |key: &str| serde_json::from_str(&file.metadata[key]).unwrap();
    (rows("x"), rows("y"))
}

fn likeliest(row: &[f64]) -> usize {
    (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap()
}

const MAP: &str = "{\"net.0.*\": \"in.*\", \"net.1.*\": \"norm.*\", \"net.3.*\": \"out.*\"}";

/// Runs a command in a folder, on a model of the file's shapes, with more keys under `weights`.
fn run_in(place: &Path, command: &[&str], hidden: usize, map: &str, more: &str) -> Output {
    let (inputs, answers) = recorded();
    let mut table = String::new();
    for (x, y) in inputs.iter().zip(&answers) {
        let row: Vec<String> = x.iter().map(f64::to_string).collect();
        writeln!(table, "{},{}", row.join(","), likeliest(y)).unwrap();
    }
    // All classes must be there.
    (0..3).for_each(|class| writeln!(table, "0,0,0,0,{class}").unwrap());
    let data = place.join("data.csv");
    fs::write(&data, table).unwrap();
    let config = place.join("config.yaml");
    let text = format!(
        "version: 1\ndata: {{train: {{csv: {{path: '{}', header: false, target: 4, task: classification}}}}}}\n\
         model:\n  layers:\n    - linear: {{name: in, out_features: {hidden}}}\n    - batch_norm: {{name: norm}}\n    \
         - relu\n    - linear: {{name: out, out_features: 3}}\n\
         weights: {{path: '{}', map: {map}{more}}}\n\
         loss: cross_entropy\nmetrics: [accuracy]\noptimizer: {{sgd: {{lr: 1.0e-30}}}}\naverage: ema\ntrain: {{steps: 1, batch_size: 5}}\n",
        data.display(),
        folder().join("weights.safetensors").display(),
    );
    fs::write(&config, text).unwrap();
    let device = if command == ["check"] { &[][..] } else { &["--device", "cpu"] };
    wootz().args(command).args(device).arg("--config").arg(&config).output().unwrap()
}

fn run(command: &[&str], hidden: usize, map: &str, more: &str) -> Output {
    run_in(tempfile::tempdir().unwrap().path(), command, hidden, map, more)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_foreign_net_answers_as_in_pytorch() {
    let output = run(&["predict", "--on", "train"], 5, MAP, "");
    assert!(output.status.success(), "{}", said(&output));
    let lines = String::from_utf8(output.stdout).unwrap();
    let (_, answers) = recorded();
    let mut compared = 0;
    for (line, wanted) in lines.lines().zip(&answers) {
        let found: serde_json::Value = serde_json::from_str(line).unwrap();
        let class = likeliest(wanted);
        assert_eq!(found["class"], class.to_string(), "{line}");
        let difference = (found["probability"].as_f64().unwrap() - wanted[class]).abs();
        assert!(difference <= 1e-6, "{line}, PyTorch {}", wanted[class]);
        compared += 1;
    }
    assert_eq!(compared, 7);
}

/// With a rate that moves nothing, the parameters of the first checkpoint are the file's, and so are
/// their averages; the statistics of the batch norm have moved.
#[test]
fn training_starts_from_the_file() {
    let place = tempfile::tempdir().unwrap();
    let run_folder = place.path().join("run");
    let command = ["train", "--run-dir", run_folder.to_str().unwrap()];
    let output = run_in(place.path(), &command, 5, MAP, "");
    assert!(output.status.success(), "{}", said(&output));
    let (_, snapshot, _) = checkpoint::newest_good(&run_folder).unwrap();
    let file = Reference::read("weights");
    let names = [("in", "net.0"), ("norm", "net.1"), ("out", "net.3")];
    let theirs = |name: &str| {
        let (layer, kind) = name.split_once('.').unwrap();
        let (_, theirs) = names.iter().find(|(ours, _)| *ours == layer).unwrap();
        file.tensor(&format!("{theirs}.{kind}"))
    };
    assert_eq!((snapshot.model.len(), snapshot.average.len()), (8, 6));
    let path = folder().join("weights.safetensors");
    let hash: String =
        Sha256::digest(fs::read(&path).unwrap()).iter().map(|byte| format!("{byte:02x}")).collect();
    let about = fs::read_to_string(run_folder.join("run.json")).unwrap();
    let about: serde_json::Value = serde_json::from_str(&about).unwrap();
    let files = about["files"].as_array().unwrap();
    let wanted = serde_json::json!({"path": path.display().to_string(), "sha256": hash});
    assert!(files.contains(&wanted), "{files:?}");
    for tensor in &snapshot.model {
        let same = tensor.bytes == theirs(&tensor.name).bytes;
        assert_eq!(same, !tensor.name.contains("running"), "{}", tensor.name);
    }
    for tensor in &snapshot.average {
        let pairs = floats(&tensor.bytes).into_iter().zip(theirs(&tensor.name).floats());
        for (found, wanted) in pairs {
            assert!((found - wanted).abs() <= 1e-6 * wanted.abs(), "{}: {found}", tensor.name);
        }
    }
}

#[test]
fn every_difference_is_listed() {
    let output =
        run(&["eval", "--on", "train"], 6, "{\"net.0.*\": \"in.*\", \"net.1.*\": \"norm.*\"}", "");
    let text = said(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    for line in [
        "missing:\n    `out.weight` [3, 6]\n    `out.bias` [3]",
        "unexpected:\n    `net.3.bias` [3]\n    `net.3.weight` [3, 5]",
        "misshaped:\n    `in.weight` is [5, 4] in the file, [6, 4] in the model",
        "`norm.running_var` is [5] in the file, [6] in the model",
    ] {
        assert!(text.contains(line), "{line}\nis not in\n{text}");
    }
    assert!(!text.contains("num_batches_tracked"), "{text}");
}

#[test]
fn without_strict_the_rest_is_left_as_it_was_and_said() {
    let map = "{\"net.0.*\": \"in.*\", \"net.1.*\": \"norm.*\"}";
    let output = run(&["eval", "--on", "train"], 5, map, ", strict: false");
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("missing:\n    `out.weight` [3, 5]"), "{text}");
    let output = run(&["eval", "--on", "train"], 6, map, ", strict: false");
    assert!(said(&output).contains("misshaped"), "{}", said(&output));
    assert_eq!(output.status.code(), Some(2));
    let output = run(&["eval", "--on", "train"], 5, "{}", ", strict: false");
    assert!(said(&output).contains("none of its tensors is the model's"), "{}", said(&output));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn check_reads_the_file() {
    let good = run(&["check"], 5, MAP, "");
    assert!(good.status.success(), "{}", said(&good));
    let bad = run(&["check"], 6, MAP, "");
    assert_eq!(bad.status.code(), Some(2), "{}", said(&bad));
    assert!(said(&bad).contains("misshaped"), "{}", said(&bad));
}

#[test]
fn slips_in_the_map_are_named() {
    let fault = |map: &str| {
        let output = run(&["eval", "--on", "train"], 5, map, "");
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        said(&output)
    };
    assert!(
        fault("{\"nett.0.*\": \"in.*\"}").contains("`nett.0.*` in `weights.map` fits no tensor")
    );
    assert!(fault("{\"net.0.*\": \"in\"}").contains("`net.0.*` has 1 `*`, `in` has 0"));
    let both = fault("{\"net.*.weight\": \"in.weight*\", \"net.0.*\": \"in.*\"}");
    assert!(both.contains("not the model's"), "{both}");
    let both = fault("{\"net.0.weight\": \"in.weight\", \"net.3.weight\": \"in.weight\"}");
    assert!(both.contains("`net.0.weight` and `net.3.weight` would both be `in.weight`"), "{both}");
}

#[test]
fn a_run_or_weights_are_needed() {
    let output =
        wootz().args(["eval", "--on", "train", "--config", "configs/digits-cnn.yaml"]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("has no `weights`"), "{}", said(&output));
}

/// The ResNet-20 of github.com/akamaster/pytorch_resnet_cifar10, as safetensors in the file that
/// WOOTZ_RESNET20 names, on the first thousand images of a file of CIFAR-10 that WOOTZ_CIFAR10 names.
/// Without them there is nothing to measure.
#[test]
fn a_published_resnet_knows_its_training_images() {
    let file = |name: &str| std::env::var(name).ok();
    let (Some(weights), Some(images)) = (file("WOOTZ_RESNET20"), file("WOOTZ_CIFAR10")) else {
        eprintln!("not run: WOOTZ_RESNET20 and WOOTZ_CIFAR10 name no files");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("images.bin");
    fs::write(&data, &fs::read(images).unwrap()[..1000 * 3073]).unwrap();
    let config = folder.path().join("config.yaml");
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/models/resnet20.yaml");
    let text = format!(
        "version: 1\ndata:\n  train: {{cifar10: {{path: '{}'}}}}\n  \
         normalize: {{mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}}\n\
         model: '{}'\nweights: {{path: '{weights}', map: {{\"linear.*\": \"fc.*\"}}}}\n\
         loss: cross_entropy\nmetrics: [accuracy]\noptimizer: {{sgd: {{lr: 0.1}}}}\ntrain: {{steps: 1, batch_size: 250}}\n",
        data.display(),
        model.display(),
    );
    fs::write(&config, text).unwrap();
    let output = wootz()
        .args(["eval", "--on", "train", "--json", "--device", "cpu", "--config"])
        .arg(&config)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let accuracy = found["metrics"]["train/accuracy"].as_f64().unwrap();
    eprintln!("accuracy {accuracy} on {} images", found["samples"]);
    assert!(accuracy >= 0.99, "{accuracy}");
}
