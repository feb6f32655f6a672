//! The database behind the store, whichever it is: the one place that knows back ends apart.
//!
//! Statements are `&'static str` with `$1` placeholders, arguments are [`Arg`], rows are tuples. A second back end is
//! a second arm of each `match` here and its name in [`Row`]; no statement changes.
//!
//! Each statement is handed to the database's thread and back, which costs more than most of them: what is stored for each of many
//! machines goes as a statement over [`OverRows`].

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sqlx::sqlite::{SqliteArguments, SqlitePool, SqliteRow};
use sqlx::{AssertSqlSafe, FromRow, SqlSafeStr, Sqlite, Transaction};

use super::error::StoreError;

/// A back end.
#[derive(Debug, Clone)]
pub(super) enum Db {
    /// Many readers beside one writer.
    Sqlite {
        /// Read-only connections.
        read: SqlitePool,
        /// The one connection that writes.
        write: SqlitePool,
        /// The file that they have open.
        file: SqliteFile,
    },
}

/// A database file, as it was when it was opened.
#[derive(Debug, Clone)]
pub(super) struct SqliteFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl SqliteFile {
    /// Remembers which file stands at `path`.
    pub(super) fn at(path: &Path) -> std::io::Result<Self> {
        let found = std::fs::metadata(path)?;
        Ok(Self {
            path: path.to_owned(),
            identity: (found.dev(), found.ino()),
        })
    }

    /// Refuses to write when the file stands there no more: SQLite would go on writing into what has no name.
    fn check(&self) -> Result<(), StoreError> {
        match Self::at(&self.path) {
            Ok(now) if now.identity == self.identity => Ok(()),
            _ => Err(StoreError::Gone {
                path: self.path.clone(),
            }),
        }
    }
}

/// An open transaction; dropped without [`Tx::commit`] it has not happened.
pub(super) enum Tx {
    /// Of SQLite.
    Sqlite(Transaction<'static, Sqlite>),
}

/// So many rows go in one statement; what is left over goes by fewer, so that few texts are ever prepared.
const TOGETHER: [usize; 3] = [100, 10, 1];

/// A statement over rows: `before VALUES ($1, $2), ($3, $4), ... after`.
#[derive(Debug, Clone, Copy)]
pub(super) struct OverRows {
    /// What stands before the values.
    pub(super) before: &'static str,
    /// What stands after them.
    pub(super) after: &'static str,
}

impl OverRows {
    /// The statement for so many rows of so many columns.
    fn text(self, rows: usize, columns: usize) -> String {
        let mut text = format!("{} VALUES ", self.before);
        for row in 0..rows {
            let open = if row == 0 { "(" } else { ", (" };
            text.push_str(open);
            for column in 1..=columns {
                let comma = if column == 1 { "" } else { ", " };
                text.push_str(comma);
                text.push('$');
                text.push_str(&(row * columns + column).to_string());
            }
            text.push(')');
        }
        text.push(' ');
        text.push_str(self.after);
        text
    }

    /// The statements that take these rows, each with its arguments. All rows have the same columns.
    fn statements(self, rows: Vec<Vec<Arg>>) -> Vec<(String, Vec<Arg>)> {
        let columns = rows.first().map_or(0, Vec::len);
        let mut left = rows.len();
        let mut rows = rows.into_iter();
        let mut statements = Vec::new();
        for together in TOGETHER {
            while left >= together {
                left -= together;
                let args = rows.by_ref().take(together).flatten().collect();
                statements.push((self.text(together, columns), args));
            }
        }
        statements
    }
}

/// An argument of a statement.
#[derive(Debug, Clone)]
pub(super) enum Arg {
    /// Text.
    Text(String),
    /// Text or NULL.
    OptText(Option<String>),
    /// A number.
    Int(i64),
    /// A number or NULL.
    OptInt(Option<i64>),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl From<&str> for Arg {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}
impl From<String> for Arg {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}
impl From<Option<String>> for Arg {
    fn from(value: Option<String>) -> Self {
        Self::OptText(value)
    }
}
impl From<i64> for Arg {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}
impl From<Option<i64>> for Arg {
    fn from(value: Option<i64>) -> Self {
        Self::OptInt(value)
    }
}
impl From<&[u8]> for Arg {
    fn from(value: &[u8]) -> Self {
        Self::Bytes(value.to_vec())
    }
}

/// The arguments of a statement, in order.
macro_rules! args {
    ($($value:expr),* $(,)?) => { vec![$($crate::edge::store::db::Arg::from($value)),*] };
}
pub(super) use args;

/// A row that every back end can give: a tuple.
pub(super) trait Row: for<'r> FromRow<'r, SqliteRow> + Send + Unpin {}
impl<T: for<'r> FromRow<'r, SqliteRow> + Send + Unpin> Row for T {}

type SqliteQuery = sqlx::query::Query<'static, Sqlite, SqliteArguments>;

fn sqlite_query(sql: impl SqlSafeStr, args: Vec<Arg>) -> SqliteQuery {
    let mut query = sqlx::query(sql);
    for arg in args {
        query = match arg {
            Arg::Text(value) => query.bind(value),
            Arg::OptText(value) => query.bind(value),
            Arg::Int(value) => query.bind(value),
            Arg::OptInt(value) => query.bind(value),
            Arg::Bytes(value) => query.bind(value),
        };
    }
    query
}

fn tuples<R: Row>(rows: &[SqliteRow]) -> Result<Vec<R>, StoreError> {
    Ok(rows.iter().map(R::from_row).collect::<Result<_, _>>()?)
}

impl Db {
    /// A transaction that sees one moment and writes nothing.
    pub(super) async fn begin_read(&self) -> Result<Tx, StoreError> {
        match self {
            Self::Sqlite { read, .. } => Ok(Tx::Sqlite(read.begin().await?)),
        }
    }

    /// A transaction that will write, and says so at its start: one that reads first and writes later cannot wait
    /// for the lock and is refused at once (B48).
    pub(super) async fn begin_write(&self) -> Result<Tx, StoreError> {
        match self {
            Self::Sqlite { write, file, .. } => {
                file.check()?;
                Ok(Tx::Sqlite(write.begin_with("BEGIN IMMEDIATE").await?))
            }
        }
    }

    /// All rows of a statement that only reads.
    pub(super) async fn rows<R: Row>(&self, sql: &'static str, args: Vec<Arg>) -> Result<Vec<R>, StoreError> {
        match self {
            Self::Sqlite { read, .. } => tuples(&sqlite_query(sql, args).fetch_all(read).await?),
        }
    }

    /// The first row of a statement that only reads.
    pub(super) async fn row<R: Row>(
        &self,
        sql: &'static str,
        args: Vec<Arg>,
    ) -> Result<Option<R>, StoreError> {
        match self {
            Self::Sqlite { read, .. } => {
                let row = sqlite_query(sql, args).fetch_optional(read).await?;
                Ok(row.map(|r| R::from_row(&r)).transpose()?)
            }
        }
    }

    /// One statement that writes, as a transaction of its own; gives the number of rows that it changed.
    pub(super) async fn run(&self, sql: &'static str, args: Vec<Arg>) -> Result<u64, StoreError> {
        let mut tx = self.begin_write().await?;
        let changed = tx.run(sql, args).await?;
        tx.commit().await?;
        Ok(changed)
    }

    /// Ends all connections.
    pub(super) async fn close(&self) {
        match self {
            Self::Sqlite { read, write, .. } => {
                read.close().await;
                write.close().await;
            }
        }
    }
}

impl Tx {
    /// Runs a statement; gives the number of rows that it changed.
    pub(super) async fn run(&mut self, sql: &'static str, args: Vec<Arg>) -> Result<u64, StoreError> {
        match self {
            Self::Sqlite(tx) => Ok(sqlite_query(sql, args).execute(&mut **tx).await?.rows_affected()),
        }
    }

    /// Runs a statement over rows, none of which it may meet twice; gives the number of rows that it changed.
    pub(super) async fn run_over(
        &mut self,
        statement: OverRows,
        rows: Vec<Vec<Arg>>,
    ) -> Result<u64, StoreError> {
        let mut changed = 0;
        // The texts are made of statements of ours and of numbers.
        for (sql, args) in statement.statements(rows) {
            changed += match self {
                Self::Sqlite(tx) => {
                    let done = sqlite_query(AssertSqlSafe(sql), args).execute(&mut **tx);
                    done.await?.rows_affected()
                }
            };
        }
        Ok(changed)
    }

    /// The same for a statement that returns rows.
    pub(super) async fn rows_over<R: Row>(
        &mut self,
        statement: OverRows,
        rows: Vec<Vec<Arg>>,
    ) -> Result<Vec<R>, StoreError> {
        let mut out = Vec::new();
        for (sql, args) in statement.statements(rows) {
            match self {
                Self::Sqlite(tx) => {
                    let found = sqlite_query(AssertSqlSafe(sql), args).fetch_all(&mut **tx);
                    out.extend(tuples::<R>(&found.await?)?);
                }
            }
        }
        Ok(out)
    }

    /// All rows.
    pub(super) async fn rows<R: Row>(
        &mut self,
        sql: &'static str,
        args: Vec<Arg>,
    ) -> Result<Vec<R>, StoreError> {
        match self {
            Self::Sqlite(tx) => tuples(&sqlite_query(sql, args).fetch_all(&mut **tx).await?),
        }
    }

    /// The first row.
    pub(super) async fn row<R: Row>(
        &mut self,
        sql: &'static str,
        args: Vec<Arg>,
    ) -> Result<Option<R>, StoreError> {
        match self {
            Self::Sqlite(tx) => {
                let row = sqlite_query(sql, args).fetch_optional(&mut **tx).await?;
                Ok(row.map(|r| R::from_row(&r)).transpose()?)
            }
        }
    }

    /// Makes it happen.
    pub(super) async fn commit(self) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(tx) => Ok(tx.commit().await?),
        }
    }
}
