//! What the user is told about a wrong file: the place, what was expected, the nearest name, and
//! all errors at once.

use wootz::config::load_with;

/// A file's text, and what its errors must say, in order.
const CASES: &[(&str, &[&str])] = &[
    (
        "version: 2\ntrain: {epoch: 3, batch_size: abc, lr: 0.1}\noptimizer: {sgd: {lr: 0.1}, adam: {}}\nloss: cross_entropi\n",
        &[
            "missing key `data`",
            "missing key `model`",
            "x.yaml:1:10   (version)",
            "unknown key `epoch` in `train`\n --> x.yaml:2:9   (train.epoch)",
            "did you mean `epochs`?",
            "expected an integer >= 1, got the text `abc`\n --> x.yaml:2:31   (train.batch_size)",
            "`lr` belongs in `optimizer.sgd`, `optimizer.adam` or `optimizer.adamw`",
            "`adam` beside `sgd`\n --> x.yaml:3:29",
            "x.yaml:4:7   (loss)",
            "did you mean `cross_entropy`?",
            "8 errors in x.yaml",
        ],
    ),
    ("a: b: c\n", &["not valid YAML", "x.yaml:1:5"]),
    ("a: [1, 2\nb: 3\n", &["not valid YAML", "x.yaml:2:2"]),
    ("a:\n  - b\n c: d\n", &["not valid YAML", "x.yaml:3:2"]),
    ("a: \"x\n", &["unclosed quote", "x.yaml:1:4"]),
    ("", &["missing key `version`", "missing key `train`", "6 errors in x.yaml"]),
    ("- 1\n", &["expected a map, got a list of 1 item", "x.yaml:1:1"]),
    ("a: !x b\n", &["the YAML tag `!x` is not supported", "x.yaml:1:7"]),
    ("? [a]\n: b\n", &["a key must be a plain name", "x.yaml:1:3"]),
    ("a: *b\n", &["unknown anchor", "x.yaml:1:4"]),
    ("a: 1\n---\nb: 2\n", &["a second document starts here", "x.yaml:2:1"]),
    ("a: &x [*x]\n", &["this alias stands inside what it refers to", "x.yaml:1:8"]),
    ("%FOO\n", &["not valid YAML", "x.yaml:1:5"]),
    ("{", &["not valid YAML", "x.yaml:1:"]),
    ("train: {epochs: 1, epochs: 2, batch_size: 1}\n", &["epochs", "x.yaml:1:20"]),
    ("precision: mixed\n", &["missing key `version`"]),
    (
        "model: ${NOT_SET}/m.yaml\n",
        &["the environment variable `NOT_SET` is not set", "x.yaml:1:8", "1 error in x.yaml"],
    ),
    (
        concat!(
            "version: 1\n",
            "data: {train: {synthetic: {kind: classification, classes: 3, samples: 9, shape: [2]}}, valid: {split: 0.5}}\n",
            "model: x\n",
            "loss:\n",
            "  a: {loss: huber}\n",
            "  b: {loss: {cross_entropy: {label_smoothing: 0.1}}, metrics: [mae, perplexity, f1, f1], target: y}\n",
            "  c: {loss: nll, metrics: [f1, {f1: {average: per_class}}]}\n",
            "penalties: [{layer: a}]\n",
            "metrics: [accuracy]\n",
            "optimizer: {sgd: {lr: 0.1}}\n",
            "train: {steps: 1, batch_size: 1}\n",
            "early_stop: {patience: 1, metric: valid/c_f1_per_class}\n",
        ),
        &[
            "`huber` needs numbers as targets, and `data.train` has classes\n --> x.yaml:5:6   (loss.a)",
            "`mae` needs numbers, and `cross_entropy` has none\n --> x.yaml:6:54   (loss.b.metrics)",
            "`perplexity` is made of a cross entropy without `label_smoothing` and `weight`",
            "`f1` needs classes",
            "`f1` is given twice",
            "neither `l1` nor `l2` is above 0\n --> x.yaml:8:21   (penalties[0])",
            "`metrics` beside a map of losses: of which output?\n --> x.yaml:9:1   (metrics)",
            "the run does not compute `valid/c_f1_per_class`",
            "it computes `valid/loss`, `valid/a_loss`, `valid/b_loss`",
        ],
    ),
    (
        "loss:\n  a: {los: mse}\n  b: {loss: mse, wieght: 2}\n  c: {loss: hubber}\n",
        &[
            "unknown key `los` in `a`\n --> x.yaml:2:7   (loss.a.los)",
            "did you mean `loss`?",
            "x.yaml:3:18   (loss.b.wieght)",
            "did you mean `weight`?",
            "x.yaml:4:13   (loss.c.loss)",
            "did you mean `huber`?",
        ],
    ),
    (
        "loss:\n  a: {loss: {cross_entropy: {weight: [0, 0.0]}}}\n  b: {loss: {nll: {weight: [0]}}}\n  c: {loss: {multi_margin: {weight: [0, 0]}}}\n",
        &[
            "no class counts: every weight is 0\n --> x.yaml:2:30   (loss.a.loss.cross_entropy)",
            "= help: give the classes that matter a weight above 0",
            "x.yaml:3:20   (loss.b.loss.nll)",
            "x.yaml:4:29   (loss.c.loss.multi_margin)",
        ],
    ),
];

#[test]
fn every_mistake_is_named_at_its_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.yaml");
    for (text, wanted) in CASES {
        std::fs::write(&path, text).expect("written");
        let error = load_with(&path, &[], &|_| None, |_, _| Some(())).expect_err(text).to_string();
        let error = error.replace(&format!("{}/", folder.path().display()), "");
        let mut rest = error.as_str();
        for phrase in *wanted {
            let Some(at) = rest.find(phrase) else {
                panic!(
                    "{text:?}: `{phrase}` is not in, or not after what comes before it:\n{error}"
                )
            };
            rest = &rest[at + phrase.len()..];
        }
    }
}
