//! The store: everything that must survive a restart, in one database (LK-6).
//!
//! SQLite in write-ahead mode with `synchronous = FULL`: what a call has answered is on the disk. Every call is one
//! transaction; one that writes says so at its start. Rows that are documents are JSON of the types in
//! [`crate::pure`]; signed things are the exact text that was signed.
//!
//! | file | what it holds |
//! | --- | --- |
//! | [`act`] | what a pass decided, in one transaction |
//! | [`gather`] | what a pass may know, at one moment |
//! | [`kept`] | the assignments in memory, as long as they are what the database has |
//! | [`deliveries`] | a delivery and its parts; the open ones in memory |
//! | [`heard`] | what is heard of each node in memory; what is new is read |
//! | [`orders`] | signed orders, leaves and timestamps, as sessions read them |
//! | [`journal`] | signed blocks on their way into notes |
//! | [`reports`] | what nodes say, group-committed by one writer |
//! | [`rollouts`] | epochs, timelines and archives of rollouts |
//! | [`events`] | the journal of events |
//! | [`inbox`] | accepted webhooks, and how far each branch is read |
//! | [`queue`] | rows of the outbox |
//! | [`recovery`] | a database rebuilt from the record, and that it waits for the machines |
//! | [`people`] | deliveries, requests and invitations, as people read and write them |

pub mod act;
mod cell;
mod db;
mod deliveries;
pub mod error;
pub mod events;
mod forge;
pub mod gather;
mod heard;
pub mod inbox;
pub mod journal;
mod kept;
pub mod orders;
pub mod people;
pub mod queue;
pub mod recovery;
pub mod reports;
pub mod rollouts;
#[cfg(test)]
mod suite;
mod timeline;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{Connection as _, SqlSafeStr as _};
use tokio::sync::watch;

use super::clock::Clock;
use db::{Db, SqliteFile, args};
use deliveries::Walking;
pub use error::StoreError;
use heard::Heard;
pub use heard::Since;
use kept::Kept;
pub use orders::OrderKind;

/// How long a statement waits for a lock that another program holds.
const BUSY: Duration = Duration::from_secs(5);
/// So many statements stay prepared on a connection: all that there are.
const PREPARED: usize = 300;
/// Connections that read beside the writer.
const READERS: u32 = 4;
/// The write-ahead log is cut back to this many bytes after each checkpoint that empties it.
const LOG_BYTES: &str = "16777216";

/// The migrations of SQLite, in order; only ever added to.
const SQLITE_MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "store", include_str!("../../migrations/sqlite/0001_store.sql")),
    (
        2,
        "generation",
        include_str!("../../migrations/sqlite/0002_generation.sql"),
    ),
    (3, "heard", include_str!("../../migrations/sqlite/0003_heard.sql")),
    (
        4,
        "rollouts",
        include_str!("../../migrations/sqlite/0004_rollouts.sql"),
    ),
    (
        5,
        "reviews",
        include_str!("../../migrations/sqlite/0005_reviews.sql"),
    ),
    (6, "parts", include_str!("../../migrations/sqlite/0006_parts.sql")),
    (
        7,
        "secret values",
        include_str!("../../migrations/sqlite/0007_secret_values.sql"),
    ),
    (8, "aside", include_str!("../../migrations/sqlite/0008_aside.sql")),
    (9, "forge", include_str!("../../migrations/sqlite/0009_forge.sql")),
    (
        10,
        "checks",
        include_str!("../../migrations/sqlite/0010_checks.sql"),
    ),
    (
        11,
        "epoch aside",
        include_str!("../../migrations/sqlite/0011_epoch_aside.sql"),
    ),
];

/// The store. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    db: Db,
    clock: Clock,
    /// Counts up when requests have been answered, so that those who wait look again.
    answered: watch::Sender<u64>,
    /// Counts up when events were stored.
    happened: watch::Sender<u64>,
    /// What the next pass need not read again.
    kept: Kept,
    walking: Walking,
    heard: Heard,
    /// Held as long as the store is: one reconciler for one database.
    _lock: File,
}

impl Store {
    /// Opens the database of `path`, makes it and its folder when there is none, and brings its schema up to date.
    ///
    /// # Errors
    /// [`StoreError`]: the folder cannot be used, another process has it, the disk is full, the file is damaged or
    /// was written by a newer build. The file is as it was then.
    pub async fn open(path: &Path, clock: Clock) -> Result<Self, StoreError> {
        let unreachable = |source| StoreError::Unreachable {
            path: path.to_owned(),
            source,
        };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(unreachable)?;
        }
        let lock = File::create(path.with_extension("lock")).map_err(unreachable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(StoreError::InUse {
                    path: path.to_owned(),
                });
            }
            Err(std::fs::TryLockError::Error(source)) => return Err(unreachable(source)),
        }
        let db = open_sqlite(path).await?;
        Ok(Self {
            inner: Arc::new(Inner {
                db,
                clock,
                answered: watch::Sender::new(0),
                happened: watch::Sender::new(0),
                kept: Kept::default(),
                walking: Walking::default(),
                heard: Heard::default(),
                _lock: lock,
            }),
        })
    }

    /// Ends all connections; calls that come after fail.
    pub async fn close(&self) {
        self.db().close().await;
    }

    /// Writes a whole copy of the database to `path` while everything goes on. It stands there whole and on the disk, or not at
    /// all: one that was cut off is `path` with `.part` behind it, and the next copy begins anew.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn copy_to(&self, path: &Path) -> Result<(), StoreError> {
        let mut half = path.as_os_str().to_owned();
        half.push(".part");
        let half = PathBuf::from(half);
        let unreachable = |source| StoreError::Unreachable {
            path: path.to_owned(),
            source,
        };
        match std::fs::remove_file(&half) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(unreachable(e)),
            _ => {}
        }
        match self.db() {
            Db::Sqlite { read, .. } => {
                let into = half.to_string_lossy().into_owned();
                sqlx::query("VACUUM INTO $1").bind(into).execute(read).await?;
            }
        }
        recovery::cut("recover-half-copied");
        // SQLite leaves such a copy in the page cache.
        let whole = File::open(&half).and_then(|file| file.sync_all());
        whole
            .and_then(|()| std::fs::rename(&half, path))
            .and_then(|()| File::open(path.parent().unwrap_or(path))?.sync_all())
            .map_err(unreachable)
    }

    /// A value that the reconciler remembers under a name.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn meta(&self, key: &str) -> Result<Option<String>, StoreError> {
        let row: Option<(String,)> = self
            .db()
            .row("SELECT value FROM meta WHERE key = $1", args![key])
            .await?;
        Ok(row.map(|(value,)| value))
    }

    /// Remembers a value under a name, in place of the former one.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn set_meta(&self, key: &str, value: &str) -> Result<(), StoreError> {
        const SQL: &str = "INSERT INTO meta (key, value) VALUES ($1, $2) \
            ON CONFLICT (key) DO UPDATE SET value = excluded.value";
        self.db().run(SQL, args![key, value]).await?;
        Ok(())
    }

    fn db(&self) -> &Db {
        &self.inner.db
    }

    pub(super) fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }
}

async fn open_sqlite(path: &Path) -> Result<Db, StoreError> {
    let existed = match std::fs::metadata(path) {
        // SQLite takes an empty file for a new database: orders would begin again at 1
        Ok(found) if found.len() == 0 => {
            return Err(StoreError::Damaged {
                path: path.to_owned(),
                detail: "the file is empty".to_owned(),
            });
        }
        Ok(_) => true,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => false,
        Err(source) => {
            return Err(StoreError::Unreachable {
                path: path.to_owned(),
                source,
            });
        }
    };
    let options = SqliteConnectOptions::new()
        .filename(path)
        .statement_cache_capacity(PREPARED)
        .busy_timeout(BUSY)
        .foreign_keys(true)
        .synchronous(SqliteSynchronous::Full);
    let opening = |e| error::opening(path, e);
    let write = pool(1)
        .idle_timeout(None)
        .max_lifetime(None)
        .connect_with(
            options
                .clone()
                .create_if_missing(true)
                .journal_mode(SqliteJournalMode::Wal)
                .pragma("journal_size_limit", LOG_BYTES),
        )
        .await
        .map_err(opening)?;
    if existed {
        check(&write, path).await?;
    }
    let migrations = SQLITE_MIGRATIONS
        .iter()
        .map(|(version, name, sql)| {
            Migration::new(
                *version,
                (*name).into(),
                MigrationType::Simple,
                sql.into_sql_str(),
                false,
            )
        })
        .collect();
    let known = SQLITE_MIGRATIONS.last().map_or(0, |(version, ..)| *version);
    Migrator::with_migrations(migrations)
        .run(&write)
        .await
        .map_err(|e| error::migrating(path, known, e))?;
    let read = pool(READERS)
        .connect_with(options.read_only(true))
        .await
        .map_err(opening)?;
    let file = SqliteFile::at(path).map_err(|source| StoreError::Unreachable {
        path: path.to_owned(),
        source,
    })?;
    Ok(Db::Sqlite { read, write, file })
}

/// A pool that gives up a connection which still counts itself inside a transaction: SQLite ends a transaction by
/// itself when the disk is full, sqlx does not notice, and the one connection that writes would be of no use for ever.
fn pool(connections: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(connections)
        .after_release(|connection, _| Box::pin(async move { Ok(!connection.is_in_transaction()) }))
}

/// Refuses a database whose pages do not fit together.
async fn check(pool: &SqlitePool, path: &Path) -> Result<(), StoreError> {
    let said: Vec<(String,)> = sqlx::query_as("PRAGMA quick_check(1)")
        .fetch_all(pool)
        .await
        .map_err(|e| error::opening(path, e))?;
    match said.first() {
        Some((word,)) if word == "ok" => Ok(()),
        other => Err(StoreError::Damaged {
            path: path.to_owned(),
            detail: other.map_or_else(|| "the check said nothing".to_owned(), |(word,)| word.clone()),
        }),
    }
}
