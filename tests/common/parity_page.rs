//! docs/parity.md: the cases of tests/parity.rs and tests/losses.rs, and the worst error that each
//! device showed.

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

const LOSSES: &str = "
## Losses

The same of each loss, its value and the gradient of the output, by `cargo test --test losses` from
`tests/reference/losses.safetensors`. `WOOTZ_WRITE_PARITY=1 cargo test --test losses` writes this part.
";

/// A part of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Layers: layer, options, mode, test.
    Layers,
    /// Losses: loss, options, test.
    Losses,
}

impl Part {
    fn columns(self) -> &'static [&'static str] {
        match self {
            Part::Layers => &["layer", "options", "mode", "test"],
            Part::Losses => &["loss", "options", "test"],
        }
    }

    fn of(self, page: &str) -> String {
        let (layers, losses) = page.split_once("\n## Losses\n").unwrap_or((page, ""));
        if self == Part::Layers { layers.to_owned() } else { losses.to_owned() }
    }
}

/// A row of the page: words in the first column, the test in the last one.
#[derive(Debug, Clone)]
pub struct Row(Vec<String>);

impl Row {
    /// A row without numbers.
    pub fn new(cells: &[&str]) -> Self {
        Row(cells.iter().map(|cell| (*cell).to_owned()).collect())
    }

    fn test(&self) -> &str {
        &self.0[self.0.len() - 1]
    }

    fn left(&self) -> String {
        let middle: String =
            self.0[1..self.0.len() - 1].iter().map(|cell| format!(" {cell} |")).collect();
        format!("| `{}` |{middle} `{}` |", self.0[0], self.test())
    }
}

fn read() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PATH);
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The numbers that a part holds, by test and device.
fn numbers(text: &str, part: Part) -> BTreeMap<(String, String), String> {
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let left = part.columns().len();
    let mut lines = text.lines().filter(|line| line.starts_with('|'));
    let devices = lines.next().map(cells).unwrap_or_default();
    let mut found = BTreeMap::new();
    for cells in lines.map(cells) {
        let test = cells[left - 1].trim_matches('`');
        for (device, cell) in
            devices.iter().zip(&cells).skip(left).filter(|(_, cell)| !cell.is_empty())
        {
            found.insert((test.to_owned(), device.clone()), cell.clone());
        }
    }
    found
}

/// Whether a part has a row for each case, and no other.
pub fn is_complete(part: Part, rows: &[Row]) -> Result<(), String> {
    let text = part.of(&read());
    let known: BTreeSet<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
    let missing = rows.iter().find(|row| !known.iter().any(|line| line.starts_with(&row.left())));
    if let Some(row) = missing {
        return Err(format!("{PATH} has no row of `{}`: write it anew", row.test()));
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

/// Writes a part of the page: new numbers where there are some, those that it holds elsewhere.
pub fn write(part: Part, mut rows: Vec<Row>, worst: &BTreeMap<(String, String), f64>) {
    let page = read();
    let mut numbers = numbers(&part.of(&page), part);
    numbers.extend(worst.iter().map(|(key, error)| (key.clone(), rounded_up(*error))));
    let devices: BTreeSet<&String> = numbers.keys().map(|(_, device)| device).collect();
    rows.sort_by(|a, b| (&a.0[0], a.test()).cmp(&(&b.0[0], b.test())));
    let mut table = format!("\n| {} |", part.columns().join(" | "));
    devices.iter().for_each(|device| _ = write!(table, " {device} |"));
    let count = part.columns().len() + devices.len();
    _ = write!(table, "\n|{}", " --- |".repeat(count));
    for row in rows {
        _ = write!(table, "\n{}", row.left());
        for device in &devices {
            let number = numbers.get(&(row.test().to_owned(), (*device).clone()));
            _ = write!(table, " {} |", number.map_or("", String::as_str));
        }
    }
    table.push('\n');
    let page = match (part, page.split_once("\n## Losses\n")) {
        (Part::Layers, None) => format!("{HEAD}{table}"),
        (Part::Layers, Some((_, losses))) => format!("{HEAD}{table}\n## Losses\n{losses}"),
        (Part::Losses, None) => format!("{page}{LOSSES}{table}"),
        (Part::Losses, Some((layers, _))) => format!("{layers}{LOSSES}{table}"),
    };
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
