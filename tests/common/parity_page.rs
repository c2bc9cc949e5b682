//! docs/parity.md: the cases of tests/parity.rs, and the worst error that each device showed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

const PATH: &str = "docs/parity.md";

const HEAD: &str = "# Parity with PyTorch

Each layer is compared with PyTorch over several options and odd sizes: outputs, the gradients of all inputs and
parameters, and new states, from files that PyTorch wrote in f64 (`tests/reference/parity`). The numbers are the worst
difference of a case in f32, relative to the largest element of its tensor, rounded up. `cargo test --test parity`
accepts 1e-5 on the CPU and 1e-4 on a GPU, and holds that each case has its row here; `0` is equality of all bits.
The page is written by `WOOTZ_WRITE_PARITY=1 cargo test --test parity`.
";

/// A row of the page.
#[derive(Debug, Clone)]
pub struct Row {
    layer: String,
    options: String,
    mode: String,
    /// `<family>::<case>`.
    test: String,
}

impl Row {
    /// A row without numbers.
    pub fn new(layer: &str, options: &str, mode: &str, test: &str) -> Self {
        let [layer, options, mode, test] = [layer, options, mode, test].map(str::to_owned);
        Row { layer, options, mode, test }
    }

    fn left(&self) -> String {
        format!("| `{}` | {} | {} | `{}` |", self.layer, self.options, self.mode, self.test)
    }
}

fn read() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PATH);
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The numbers that the page holds, by test and device.
fn numbers(page: &str) -> BTreeMap<(String, String), String> {
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let mut lines = page.lines().filter(|line| line.starts_with('|'));
    let devices = lines.next().map(cells).unwrap_or_default();
    let mut found = BTreeMap::new();
    for cells in lines.map(cells) {
        let test = cells[3].trim_matches('`');
        for (device, cell) in
            devices.iter().zip(&cells).skip(4).filter(|(_, cell)| !cell.is_empty())
        {
            found.insert((test.to_owned(), device.clone()), cell.clone());
        }
    }
    found
}

/// Whether the page has a row for each case, and no other.
pub fn is_complete(rows: &[Row]) -> Result<(), String> {
    let page = read();
    let known: BTreeSet<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let missing = rows.iter().find(|row| !known.iter().any(|line| line.starts_with(&row.left())));
    if let Some(row) = missing {
        return Err(format!("{PATH} has no row of `{}`: write it anew", row.test));
    }
    if known.len() != rows.len() {
        return Err(format!(
            "{PATH} has {} rows for {} cases: write it anew",
            known.len(),
            rows.len()
        ));
    }
    Ok(())
}

/// Writes the page: new numbers where there are some, those that it holds elsewhere.
pub fn write(mut rows: Vec<Row>, worst: &BTreeMap<(String, String), f64>) {
    let mut numbers = numbers(&read());
    numbers.extend(worst.iter().map(|(key, error)| (key.clone(), rounded_up(*error))));
    let devices: BTreeSet<&String> = numbers.keys().map(|(_, device)| device).collect();
    rows.sort_by(|a, b| (&a.layer, &a.test).cmp(&(&b.layer, &b.test)));
    let mut page = format!("{HEAD}\n| layer | options | mode | test |");
    devices.iter().for_each(|device| _ = write!(page, " {device} |"));
    _ = write!(page, "\n| --- | --- | --- | --- |{}", " --- |".repeat(devices.len()));
    for row in rows {
        _ = write!(page, "\n{}", row.left());
        for device in &devices {
            let number = numbers.get(&(row.test.clone(), (*device).clone()));
            _ = write!(page, " {} |", number.map_or("", String::as_str));
        }
    }
    page.push('\n');
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PATH);
    std::fs::write(path, page).expect("the page can be written");
}

/// Two digits, the next larger ones.
fn rounded_up(error: f64) -> String {
    if error == 0.0 {
        return "0".to_owned();
    }
    let exponent = error.log10().floor() as i32;
    let digits = (error / 10f64.powi(exponent - 1)).ceil();
    format!("{:.1e}", digits * 10f64.powi(exponent - 1))
}
