//! x
use wootz::config::load_with;
#[test]
fn look() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.yaml");
    for text in [
        "version: 2\ntrain: {epoch: 3, batch_size: abc, lr: 0.1}\noptimizer: {sgd: {lr: 0.1}, adam: {}}\nloss: cross_entropi\n",
        "a: b: c\n",
        "a: [1, 2\nb: 3\n",
        "a:\n  - b\n c: d\n",
        "a: \"x\n",
        "",
        "- 1\n",
        "a: !x b\n",
        "? [a]\n: b\n",
        "a: *b\n",
        "a: 1\n---\nb: 2\n",
        "a: &x [*x]\n",
        "%FOO\n",
        "a: @x\n",
        "{",
        "}",
        "a: 'b' c\n",
        "\u{feff}a: 1\n",
        "a: |\n  x\n b: 2\n",
    ] {
        std::fs::write(&path, text).expect("written");
        match load_with(&path, &[], &|_| None, |_, _| Some(())) {
            Err(e) => println!(
                "=== {text:?}\n{}",
                e.to_string().replace(&folder.path().display().to_string(), "")
            ),
            Ok(_) => println!("=== {text:?} OK?!"),
        }
    }
}
