//! What can go wrong with the store, in words for the person who runs it.

use std::path::PathBuf;

use sqlx::migrate::MigrateError;

/// Why the store did not do what was asked. Nothing of the call has happened then.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The folder cannot be made or the file cannot be reached.
    #[error(
        "cannot use the database {path}: {source}; check that the folder exists and that this user may write there"
    )]
    Unreachable {
        /// The database file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Another process has it open.
    #[error(
        "the database {path} is in use by another reconciler; stop that one, or give this one a `state_dir` of its own"
    )]
    InUse {
        /// The database file.
        path: PathBuf,
    },
    /// No room.
    #[error(
        "the disk that holds the database is full; nothing was stored. Free some space: work goes on by itself then"
    )]
    Full,
    /// The lock was not had in time.
    #[error("the database was busy for too long (another program holds it); nothing was stored, try again")]
    Locked,
    /// The file went away under us.
    #[error(
        "the database {path} is not the file any more that was opened (moved, removed or replaced); nothing was \
         stored. Put it back and restart"
    )]
    Gone {
        /// The database file.
        path: PathBuf,
    },
    /// The file may not be written.
    #[error(
        "the database cannot be written (it or its folder was made read-only); nothing was stored. Check owner and mode"
    )]
    ReadOnly,
    /// The file is no database, cut or garbled.
    #[error(
        "the database {path} is damaged: {detail}; nothing was changed. Restore a backup, or move the file away and \
         run `meshplan recover`"
    )]
    Damaged {
        /// The database file.
        path: PathBuf,
        /// What SQLite says of it.
        detail: String,
    },
    /// A newer build wrote it.
    #[error(
        "the database {path} was written by a newer meshplan (schema {found}; this build knows {known}); run the newer \
         build, or restore the backup from before the update"
    )]
    NewerSchema {
        /// The database file.
        path: PathBuf,
        /// What it has.
        found: i64,
        /// What this build knows.
        known: i64,
    },
    /// A row cannot be read.
    #[error(
        "the database has a row that cannot be read: {table}.{column} of `{id}`: {why}; restore a backup, or run \
         `meshplan recover`"
    )]
    Corrupt {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
        /// The row's key, as text.
        id: String,
        /// What is wrong with it.
        why: String,
    },
    /// Somebody else has used numbers since the decision was made: decide again (SG-8).
    #[error(
        "the numbers have moved since the decision was made ({counter} is {stored}, expected {expected}); decide again"
    )]
    Moved {
        /// Which number.
        counter: &'static str,
        /// What stands in the store.
        stored: String,
        /// What the decision was made with.
        expected: String,
    },
    /// The number was used before with other bytes (SG-8). Never published.
    #[error(
        "{kind} {number} is stored already with other bytes; a number is never used twice, so nothing was stored"
    )]
    NumberReused {
        /// What it numbers.
        kind: &'static str,
        /// The number.
        number: u64,
    },
    /// Older than what is stored (SG-9).
    #[error("{kind} {number} is older than the newest one stored ({newest})")]
    Older {
        /// What it numbers.
        kind: &'static str,
        /// The number.
        number: u64,
        /// The stored one.
        newest: u64,
    },
    /// A number above 2^63.
    #[error("the number {0} is too large to be stored")]
    TooLarge(u64),
    /// A value of ours could not be written as JSON.
    #[error("a value cannot be written as JSON")]
    Json(#[source] serde_json::Error),
    /// Anything else of the database.
    #[error("the database refused")]
    Database(#[source] sqlx::Error),
}

impl StoreError {
    /// Whether the same call may work later by itself.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Full | Self::Locked | Self::Moved { .. })
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::PoolTimedOut => Self::Locked,
            sqlx::Error::Database(inner) => {
                let code = inner.code().and_then(|c| c.parse::<i64>().ok()).unwrap_or(0);
                // SQLite's extended result codes carry the primary one in the low byte (sqlite.org/rescode.html)
                match code & 0xff {
                    5 | 6 => Self::Locked,
                    13 => Self::Full,
                    8 | 14 => Self::ReadOnly,
                    _ => Self::Database(error),
                }
            }
            _ => Self::Database(error),
        }
    }
}

impl From<serde_json::Error> for StoreError {
    fn from(error: serde_json::Error) -> Self {
        Self::Json(error)
    }
}

/// Names the file in what SQLite says about a file that is not what it should be.
pub(super) fn opening(path: &std::path::Path, error: sqlx::Error) -> StoreError {
    match StoreError::from(error) {
        StoreError::Database(sqlx::Error::Database(inner)) => {
            let code = inner.code().and_then(|c| c.parse::<i64>().ok()).unwrap_or(0);
            match code & 0xff {
                // SQLITE_CORRUPT and SQLITE_NOTADB
                11 | 26 => StoreError::Damaged {
                    path: path.to_owned(),
                    detail: inner.message().to_owned(),
                },
                _ => StoreError::Database(sqlx::Error::Database(inner)),
            }
        }
        // SQLITE_READONLY and SQLITE_CANTOPEN, before anything was open
        StoreError::ReadOnly => StoreError::Unreachable {
            path: path.to_owned(),
            source: std::io::Error::other("it cannot be opened for writing"),
        },
        other => other,
    }
}

/// The same for migrations.
pub(super) fn migrating(path: &std::path::Path, known: i64, error: MigrateError) -> StoreError {
    match error {
        MigrateError::VersionMissing(found) => StoreError::NewerSchema {
            path: path.to_owned(),
            found,
            known,
        },
        MigrateError::VersionMismatch(version) | MigrateError::Dirty(version) => StoreError::Damaged {
            path: path.to_owned(),
            detail: format!("its schema {version} is not the one that this program makes"),
        },
        MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _) => opening(path, source),
        other => StoreError::Database(sqlx::Error::Migrate(Box::new(other))),
    }
}
