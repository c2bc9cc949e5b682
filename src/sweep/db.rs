//! A connection to the database of a record, and the values that go in and out.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::types::Value as Sql;

/// A value of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Nothing.
    Null,
    /// BIGINT.
    Int(i64),
    /// DOUBLE PRECISION.
    Real(f64),
    /// TEXT.
    Text(String),
}

impl From<usize> for Cell {
    fn from(value: usize) -> Self {
        Cell::Int(value as i64)
    }
}

impl From<u64> for Cell {
    fn from(value: u64) -> Self {
        Cell::Int(value as i64)
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        Cell::Real(value)
    }
}

impl From<&str> for Cell {
    fn from(value: &str) -> Self {
        Cell::Text(value.to_owned())
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Cell::Null, Into::into)
    }
}

/// A row of a result, column by column.
#[derive(Clone, Debug)]
pub struct Row(pub Vec<Cell>);

impl Row {
    /// An integer that is not below 0.
    pub fn int(&self, column: usize) -> u64 {
        self.maybe_int(column).unwrap_or_default()
    }

    /// An integer that may be missing.
    pub fn maybe_int(&self, column: usize) -> Option<u64> {
        match self.0.get(column) {
            Some(Cell::Int(value)) => Some(*value as u64),
            _ => None,
        }
    }

    /// A number that may be missing.
    pub fn real(&self, column: usize) -> Option<f64> {
        match self.0.get(column) {
            Some(Cell::Real(value)) => Some(*value),
            Some(Cell::Int(value)) => Some(*value as f64),
            _ => None,
        }
    }

    /// A text that may be missing.
    pub fn text(&self, column: usize) -> Option<&str> {
        match self.0.get(column) {
            Some(Cell::Text(text)) => Some(text),
            _ => None,
        }
    }
}

/// A connection.
pub struct Db {
    connection: Connection,
}

impl Db {
    /// Opens a file, which may be new.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn sqlite(path: &Path) -> Result<Self, String> {
        let open = || {
            let connection = Connection::open(path)?;
            connection.busy_timeout(Duration::from_secs(10))?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            Ok(Db { connection })
        };
        open().map_err(|error: rusqlite::Error| error.to_string())
    }

    /// Runs statements without parameters or results.
    ///
    /// # Errors
    /// What the database says.
    pub fn batch(&mut self, sql: &str) -> Result<(), String> {
        self.connection.execute_batch(sql).map_err(|error| error.to_string())
    }

    /// Runs a statement, `$1`, `$2`, … being its parameters; gives its rows.
    ///
    /// # Errors
    /// What the database says.
    pub fn rows(&mut self, sql: &str, cells: &[Cell]) -> Result<Vec<Row>, String> {
        let run = || -> rusqlite::Result<Vec<Row>> {
            let mut statement = self.connection.prepare(&sql.replace('$', "?"))?;
            let columns = statement.column_count();
            let values = cells.iter().map(|cell| match cell {
                Cell::Null => Sql::Null,
                Cell::Int(value) => Sql::Integer(*value),
                Cell::Real(value) => Sql::Real(*value),
                Cell::Text(text) => Sql::Text(text.clone()),
            });
            let rows = statement.query_map(rusqlite::params_from_iter(values), |row| {
                let cell = |column| {
                    Ok(match row.get(column)? {
                        Sql::Integer(value) => Cell::Int(value),
                        Sql::Real(value) => Cell::Real(value),
                        Sql::Text(text) => Cell::Text(text),
                        Sql::Null | Sql::Blob(_) => Cell::Null,
                    })
                };
                (0..columns).map(cell).collect::<Result<_, rusqlite::Error>>().map(Row)
            })?;
            rows.collect()
        };
        run().map_err(|error| error.to_string())
    }

    /// Runs `body` as one transaction, which no other writer interrupts.
    ///
    /// # Errors
    /// What the database says, or `body`'s error; nothing is changed then.
    pub fn transaction<T>(
        &mut self,
        body: impl FnOnce(&mut Self) -> Result<T, String>,
    ) -> Result<T, String> {
        self.batch("BEGIN IMMEDIATE")?;
        match body(self) {
            Ok(value) => self.batch("COMMIT").map(|()| value),
            Err(error) => {
                self.batch("ROLLBACK")?;
                Err(error)
            }
        }
    }
}
