//! metrics.csv: the numbers of metrics.jsonl as a table with one row a step.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use serde_json::Value as Json;

use super::numbers;

/// Writes metrics.csv of a run's folder anew. A row holds a step's own numbers and those of the
/// validation after it; columns stand in the order in which they first occur.
///
/// # Errors
/// When a file cannot be read or written.
pub fn write(folder: &Path) -> io::Result<()> {
    let source = folder.join("metrics.jsonl");
    let mut columns: Vec<String> = vec!["step".into()];
    each_line(&source, |line| {
        for (name, _) in numbers(line) {
            if !columns.iter().any(|column| column == name) {
                columns.push(name.to_owned());
            }
        }
        Ok(())
    })?;
    let (temporary, file) = (folder.join(".metrics.csv.new"), folder.join("metrics.csv"));
    let mut out = csv::Writer::from_path(&temporary)?;
    out.write_record(&columns)?;
    let mut row: Option<(u64, HashMap<String, String>)> = None;
    let mut end_row = |row: &mut Option<(u64, HashMap<String, String>)>| match row.take() {
        None => Ok(()),
        Some((step, mut values)) => {
            values.insert("step".into(), step.to_string());
            let fields = columns.iter().map(|column| values.get(column).map_or("", String::as_str));
            out.write_record(fields)
        }
    };
    each_line(&source, |line| {
        let Some(step) = line["step"].as_u64() else { return Ok(()) };
        if row.as_ref().is_some_and(|(at, _)| *at != step) {
            end_row(&mut row)?;
        }
        let (_, values) = row.get_or_insert_with(|| (step, HashMap::new()));
        // As the line has it: the digits of a number stay what they were.
        let texts = numbers(line).map(|(name, _)| (name.to_owned(), line[name].to_string()));
        values.extend(texts);
        Ok(())
    })?;
    end_row(&mut row)?;
    out.flush()?;
    drop(out);
    std::fs::rename(&temporary, &file)
}

/// Reads metrics.jsonl line by line; a last line that a kill has cut off is passed over.
pub fn each_line(path: &Path, mut take: impl FnMut(&Json) -> io::Result<()>) -> io::Result<()> {
    for line in BufReader::new(File::open(path)?).lines() {
        if let Ok(line) = serde_json::from_str(&line?) {
            take(&line)?;
        }
    }
    Ok(())
}
