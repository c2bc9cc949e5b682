//! The page of a run: it needs nothing from elsewhere, and holds what the run's folder says.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::fs;
use std::path::Path;

use common::wootz;
use serde_json::{Value as Json, json};

fn train(run: &Path, more: &[&str]) {
    let mut command = wootz();
    command.args(["train", "--config", "configs/digits-mlp.yaml", "--device", "cpu"]);
    command.args(["--set", "metrics=[accuracy, confusion_matrix]", "--steps", "30"]);
    command.args(["--set", "train.eval_every_steps=10", "--set", "name=a <b> & c"]);
    command.args(["--set", "checkpoint.dir=a</script>b"]);
    let output = command.args(more).arg("--run-dir").arg(run).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn page(args: &[&Path]) -> (String, Json) {
    let output = wootz().arg("report").args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    let page = fs::read_to_string(said.trim().strip_prefix("wrote ").unwrap()).unwrap();
    let (_, after) = page.split_once("id=\"data\">").unwrap();
    let (data, _) = after.split_once("</script>").unwrap();
    let data = serde_json::from_str(data).unwrap();
    (page, data)
}

#[test]
fn a_page_holds_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("one"), folder.path().join("two"));
    train(&first, &[]);
    let (page_of_one, data) = page(&[&first]);
    // Nothing is fetched: no address but the name space of SVG.
    let addresses = page_of_one.matches("http").count();
    assert_eq!(addresses, page_of_one.matches("http://www.w3.org/2000/svg").count());
    assert!(page_of_one.contains("<title>a &lt;b&gt; &amp; c</title>"));

    let loss = &data["runs"][0]["series"]["train/loss"];
    assert_eq!(loss["steps"].as_array().unwrap().len(), 30);
    let lines = fs::read_to_string(first.join("metrics.jsonl")).unwrap();
    let line: Json = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(loss["values"][0], line["train/loss"]);
    let titles: Vec<&str> =
        data["charts"].as_array().unwrap().iter().map(|c| c["title"].as_str().unwrap()).collect();
    for title in
        ["loss", "accuracy", "learning rate", "gradient norm", "samples or tokens a second"]
    {
        assert!(titles.contains(&title), "{titles:?}");
    }
    let matrix = data["matrices"][0]["rows"].as_array().unwrap();
    let counts = matrix.iter().flat_map(|row| row.as_array().unwrap());
    assert_eq!(counts.map(|count| count.as_u64().unwrap()).sum::<u64>(), 180);
    assert_eq!(data["matrices"][0]["step"], 30);
    assert_eq!(
        data["plan"]["layers"].as_array().unwrap().last().unwrap()["output"],
        json!([32, 10])
    );
    assert!(data["plan"]["memory"].as_array().unwrap().len() > 4);
    let best = data["runs"][0]["results"].as_array().unwrap();
    assert!(best.iter().any(|row| row["name"] == "valid/accuracy" && row["best_step"].is_u64()));
    assert_eq!(data["differences"], Json::Null);

    train(&second, &["--set", "optimizer.sgd.lr=0.01", "--set", "train.epochs=31"]);
    let both = folder.path().join("both.html");
    let (_, data) = page(&[&first, Path::new("--compare"), &second, Path::new("-o"), &both]);
    let found = data["differences"].as_array().unwrap();
    assert!(found.iter().any(|d| d[0] == "optimizer.sgd.lr" && d[2] == "0.01"), "{found:?}");
    assert!(found.iter().any(|d| d[0] == "train.epochs" && d[1] == "30" && d[2] == "31"));
    assert_eq!(data["runs"][1]["series"]["train/loss"]["steps"].as_array().unwrap().len(), 30);
}

#[test]
fn a_folder_without_a_run_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for command in ["report", "watch"] {
        let output = wootz().arg(command).arg(folder.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("there is no run"));
    }
}
