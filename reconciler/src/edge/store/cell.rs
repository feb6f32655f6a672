//! Cells: how our values become columns and come back, with the place named when one does not.

use std::fmt::Display;
use std::str::FromStr;

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::StoreError;

/// Where a cell is, for errors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell<'a> {
    /// The table.
    pub(super) table: &'static str,
    /// The column.
    pub(super) column: &'static str,
    /// The row's key, as text.
    pub(super) id: &'a dyn DisplayKey,
}

/// A key that can be shown.
pub(super) trait DisplayKey: Display + std::fmt::Debug + Sync {}
impl<T: Display + std::fmt::Debug + Sync> DisplayKey for T {}

/// Names a cell.
pub(super) fn cell<'a>(table: &'static str, column: &'static str, id: &'a dyn DisplayKey) -> Cell<'a> {
    Cell { table, column, id }
}

impl Cell<'_> {
    /// The cell cannot be read.
    pub(super) fn corrupt(&self, why: impl Display) -> StoreError {
        StoreError::Corrupt {
            table: self.table,
            column: self.column,
            id: self.id.to_string(),
            why: why.to_string(),
        }
    }

    /// A document.
    pub(super) fn json<T: DeserializeOwned>(&self, text: &str) -> Result<T, StoreError> {
        serde_json::from_str(text).map_err(|e| self.corrupt(e))
    }

    /// A name, digest or id.
    pub(super) fn parse<T: FromStr<Err: Display>>(&self, text: &str) -> Result<T, StoreError> {
        text.parse().map_err(|e| self.corrupt(e))
    }

    /// A number.
    pub(super) fn number(&self, value: i64) -> Result<u64, StoreError> {
        u64::try_from(value).map_err(|_| self.corrupt("a number below zero"))
    }

    /// A time.
    pub(super) fn time(&self, value: i64) -> Result<Timestamp, StoreError> {
        Timestamp::from_microsecond(value).map_err(|e| self.corrupt(e))
    }
}

/// A number as a column takes it.
pub(super) fn int(value: u64) -> Result<i64, StoreError> {
    i64::try_from(value).map_err(|_| StoreError::TooLarge(value))
}

/// A document as a column takes it.
pub(super) fn json<T: Serialize>(value: &T) -> Result<String, StoreError> {
    Ok(serde_json::to_string(value)?)
}
