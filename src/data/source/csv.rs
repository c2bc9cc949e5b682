//! Tables: one sample a row, numbers in the feature columns.

use std::path::Path;

use csv::StringRecord;

use super::{read, spec};
use crate::config::data::{Column, Csv, Task as CsvTask};
use crate::config::nearest::nearest;
use crate::data::DataError;
use crate::data::dataset::{Content, Samples, Targets, Task};
use crate::graph::TensorType;

pub(super) fn open(options: &Csv, like: Option<&Content>) -> Result<Content, DataError> {
    let path = &options.path;
    let bytes = read(path)?;
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(options.delimiter as u8)
        .has_headers(options.header)
        .from_reader(&bytes[..]);
    let failed = |error: csv::Error| DataError::content(path, error.to_string());
    let header = if options.header {
        reader.headers().map_err(failed)?.clone()
    } else {
        StringRecord::new()
    };
    let records: Vec<StringRecord> = reader.records().collect::<Result<_, _>>().map_err(failed)?;
    let Some(first) = records.first() else {
        return Err(DataError::content(path, "there are no rows"));
    };
    let twice = |i: &usize| header.iter().take(*i).any(|h| h == &header[*i]);
    if let Some(twice) = (1..header.len()).find(twice) {
        let reason = format!("two columns are called `{}`", &header[twice]);
        return Err(DataError::content(path, reason));
    }
    let find = |column: &Column| find(column, &header, first.len(), path);
    let target = find(&options.target)?;
    // A held-out table has the training table's columns, in its order.
    let like_columns = like.map(|content| content.columns.as_slice()).unwrap_or_default();
    let find_all = |columns: &[Column]| -> Result<Vec<usize>, DataError> {
        columns.iter().map(find).collect()
    };
    let mut inputs: Vec<(String, usize)> = Vec::new();
    let features = match (&options.inputs, &options.features) {
        (Some(named), _) => {
            let mut all = Vec::new();
            for (name, columns) in named {
                inputs.push((name.clone(), columns.len()));
                all.extend(find_all(columns)?);
            }
            all
        }
        (None, Some(columns)) => find_all(columns)?,
        (None, None) if options.header && !like_columns.is_empty() => {
            let names: Vec<Column> = like_columns.iter().cloned().map(Column::Name).collect();
            find_all(&names)?
        }
        (None, None) => (0..first.len()).filter(|column| *column != target).collect(),
    };
    if inputs.is_empty() {
        inputs.push(("features".to_owned(), features.len()));
    }
    if features.is_empty() {
        return Err(DataError::content(path, "there are no feature columns"));
    }
    if features.contains(&target) {
        return Err(DataError::content(path, "the target is among the features"));
    }
    let columns = features.iter().filter_map(|at| header.get(*at)).map(str::to_owned).collect();
    let table = Table { path, header: &header };
    let mut values = Vec::with_capacity(records.len() * features.len());
    for record in &records {
        for column in &features {
            values.push(table.number(record, *column)?);
        }
    }
    let inputs = inputs.iter().map(|(name, width)| spec(name, TensorType::f32([*width]))).collect();
    let (target, targets, task) = match options.task {
        CsvTask::Regression => {
            let numbers =
                records.iter().map(|r| table.number(r, target)).collect::<Result<_, _>>()?;
            (spec("target", TensorType::f32([1])), Targets::Numbers(numbers), Task::Regression)
        }
        CsvTask::Classification => {
            let words: Vec<&str> = records.iter().map(|r| r[target].trim()).collect();
            let names = match like.map(|content| &content.task) {
                Some(Task::Classification { names, .. }) => names.clone(),
                _ => class_names(&words),
            };
            if names.len() < 2 {
                return Err(DataError::content(path, "the target has only one class"));
            }
            let classes = classes(&words, &names, path, &records)?;
            let task = Task::Classification { classes: names.len(), names };
            (spec("target", TensorType::i32([])), Targets::Classes(classes), task)
        }
    };
    Ok(Content { inputs, target, task, columns, samples: Samples::Rows { values, targets } })
}

fn find(
    column: &Column,
    header: &StringRecord,
    width: usize,
    path: &Path,
) -> Result<usize, DataError> {
    match column {
        Column::Index(index) if *index < width => Ok(*index),
        Column::Index(index) => Err(DataError::content(
            path,
            format!("there is no column {index}: the columns are 0 to {}", width - 1),
        )),
        Column::Name(name) => header.iter().position(|h| h.trim() == name).ok_or_else(|| {
            let hint = nearest(name, header.iter())
                .map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            DataError::content(path, format!("there is no column `{name}`{hint}"))
        }),
    }
}

struct Table<'a> {
    path: &'a Path,
    header: &'a StringRecord,
}

impl Table<'_> {
    fn number(&self, record: &StringRecord, column: usize) -> Result<f32, DataError> {
        let word = record[column].trim();
        match word.parse::<f32>() {
            Ok(number) if number.is_finite() => Ok(number),
            _ => {
                let line = record.position().map_or(0, csv::Position::line);
                let name =
                    self.header.get(column).map_or(format!("{column}"), |name| format!("`{name}`"));
                let found =
                    if word.is_empty() { "nothing".to_owned() } else { format!("`{word}`") };
                Err(DataError::content(
                    self.path,
                    format!("line {line}, column {name}: expected a finite number, found {found}"),
                ))
            }
        }
    }
}

/// The classes' names in order: as numbers where all are integers, else as words.
fn class_names(words: &[&str]) -> Vec<String> {
    let mut names: Vec<&str> = words.to_vec();
    let integers = names.iter().all(|word| word.parse::<i64>().is_ok());
    if integers {
        names.sort_by_key(|word| word.parse::<i64>().unwrap_or(0));
    } else {
        names.sort_unstable();
    }
    names.dedup();
    names.into_iter().map(str::to_owned).collect()
}

fn classes(
    words: &[&str],
    names: &[String],
    path: &Path,
    records: &[StringRecord],
) -> Result<Vec<i32>, DataError> {
    words
        .iter()
        .zip(records)
        .map(|(word, record)| {
            let line = record.position().map_or(0, csv::Position::line);
            let class = names.iter().position(|name| name == word).filter(|_| !word.is_empty());
            let problem = if word.is_empty() {
                "the target is empty".to_owned()
            } else {
                format!("class `{word}` does not occur in the training table")
            };
            class
                .map(|class| class as i32)
                .ok_or_else(|| DataError::content(path, format!("line {line}: {problem}")))
        })
        .collect()
}
