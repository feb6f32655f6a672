//! What only a file can suffer: damage, a full disk, a second process, a log that grows.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr as _;

use meshplan_schemas::lifecycle::delivery::State;
use meshplan_schemas::report::Cause;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{Connection as _, Executor as _};
use tempfile::TempDir;

use super::fixtures::*;
use super::{Fresh, fresh_sqlite};
use crate::edge::activation::Waker;
use crate::edge::clock::Clock;
use crate::edge::store::act::Signed;
use crate::edge::store::reports::{ReportWriter, Taken};
use crate::edge::store::{Store, StoreError};
use crate::pure::snapshot::Counters;

fn path_of(fresh: &Fresh) -> PathBuf {
    fresh.folder.path().join("state/meshplan.db")
}

async fn raw(path: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::from_str(&format!("sqlite://{}", path.display())).unwrap();
    SqliteConnection::connect_with(&options).await.unwrap()
}

async fn fill(store: &Store, deliveries: u8) {
    let none = Counters::default();
    let mut act = act(&none, &none);
    act.deliveries = (1..=deliveries).map(|n| delivery(n, State::Held)).collect();
    store.commit(&act, &Signed::default(), &[], &[]).await.unwrap();
}

/// A closed store's file with something in it.
async fn closed() -> (TempDir, PathBuf) {
    let fresh = fresh_sqlite().await;
    fill(&fresh.store, 100).await;
    fresh.store.close().await;
    let path = path_of(&fresh);
    (fresh.folder, path)
}

// holds: LK-6
#[tokio::test]
async fn what_was_stored_is_there_when_the_store_is_opened_again() {
    let (_folder, path) = closed().await;
    let store = Store::open(&path, Clock::default()).await.unwrap();
    assert_eq!(store.snapshot().await.unwrap().deliveries.len(), 100);
}

// holds: LK-6
#[tokio::test]
async fn a_second_reconciler_on_one_database_is_refused_with_what_to_do() {
    let fresh = fresh_sqlite().await;
    let error = Store::open(&path_of(&fresh), Clock::default()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "the database {} is in use by another reconciler; stop that one, or give this one a `state_dir` of its own",
            path_of(&fresh).display()
        )
    );
}

#[tokio::test]
async fn a_database_that_was_cut_is_refused_and_left_as_it_is() {
    for part in [0, 1000, 4096, 20_000] {
        let (_folder, path) = closed().await;
        let whole = std::fs::metadata(&path).unwrap().len();
        assert!(part < whole);
        std::fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(part)
            .unwrap();
        let cut = std::fs::read(&path).unwrap();
        let error = Store::open(&path, Clock::default()).await.unwrap_err();
        assert!(
            matches!(error, StoreError::Damaged { .. }),
            "cut to {part}: {error:?}"
        );
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("the database {} is damaged: ", path.display())),
            "{text}"
        );
        assert!(
            text.ends_with("Restore a backup, or move the file away and run `meshplan recover`"),
            "{text}"
        );
        assert_eq!(
            std::fs::read(&path).unwrap(),
            cut,
            "cut to {part}: it was changed"
        );
    }
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("meshplan.db");
    std::fs::write(&path, "my shopping list\n".repeat(100)).unwrap();
    let error = Store::open(&path, Clock::default()).await.unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
}

#[tokio::test]
async fn a_database_of_a_newer_build_is_refused_with_both_numbers() {
    let (_folder, path) = closed().await;
    let mut connection = raw(&path).await;
    connection
        .execute(
            "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
             VALUES (99, 'of tomorrow', TRUE, x'00', 0)",
        )
        .await
        .unwrap();
    connection.close().await.unwrap();
    let error = Store::open(&path, Clock::default()).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("was written by a newer meshplan (schema 99; this build knows 11)"),
        "{error}"
    );
}

#[tokio::test]
async fn a_folder_that_cannot_be_made_is_named() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("state"), "a file").unwrap();
    let path = folder.path().join("state/meshplan.db");
    let error = Store::open(&path, Clock::default()).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_named_by_table_column_and_key() {
    let fresh = fresh_sqlite().await;
    fill(&fresh.store, 3).await;
    let mut connection = raw(&path_of(&fresh)).await;
    let garble = "UPDATE deliveries SET doc = '{\"half\":' WHERE order_no = 2";
    connection.execute(garble).await.unwrap();
    let error = fresh.store.snapshot().await.unwrap_err();
    let StoreError::Corrupt {
        table, column, id, ..
    } = &error
    else {
        panic!("{error:?}");
    };
    assert_eq!(
        (*table, *column, id.as_str()),
        ("deliveries", "doc", commit(2).as_str())
    );
    assert!(fresh.store.delivery(&commit(1)).await.unwrap().is_some());
}

// holds: B48
#[tokio::test]
async fn another_program_that_writes_is_waited_for_and_one_that_holds_on_is_named() {
    let fresh = fresh_sqlite().await;
    let mut other = raw(&path_of(&fresh)).await;
    let none = Counters::default();
    let store = fresh.store.clone();
    let ours = tokio::spawn(async move {
        for _ in 0..100 {
            // reads the counters first, writes later
            store
                .commit(&act(&none, &none), &Signed::default(), &[], &[])
                .await
                .unwrap();
        }
    });
    let mut theirs = 0;
    while !ours.is_finished() {
        other.execute("BEGIN IMMEDIATE").await.unwrap();
        other
            .execute("INSERT INTO meta VALUES ('theirs', '1') ON CONFLICT DO NOTHING")
            .await
            .unwrap();
        other.execute("UPDATE meta SET value = value + 1").await.unwrap();
        other.execute("COMMIT").await.unwrap();
        theirs += 1;
    }
    ours.await.unwrap();
    assert!(theirs > 0);

    other.execute("BEGIN IMMEDIATE").await.unwrap();
    let error = fresh.store.set_meta("a", "b").await.unwrap_err();
    assert!(matches!(error, StoreError::Locked), "{error:?}");
    assert!(error.is_passing());
    other.execute("ROLLBACK").await.unwrap();
    fresh.store.set_meta("a", "b").await.unwrap();
}

#[tokio::test]
async fn a_database_that_is_taken_away_while_it_runs_takes_no_more_promises() {
    let fresh = fresh_sqlite().await;
    let path = path_of(&fresh);
    let away = path.with_extension("away");
    std::fs::rename(&path, &away).unwrap();
    let error = fresh.store.set_meta("a", "b").await.unwrap_err();
    assert!(matches!(error, StoreError::Gone { .. }), "{error:?}");
    std::fs::copy(&away, &path).unwrap();
    let error = fresh.store.set_meta("a", "b").await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("is not the file any more that was opened"),
        "{error}"
    );
    std::fs::rename(&away, &path).unwrap();
    fresh.store.set_meta("a", "b").await.unwrap();
}

/// A small file system in memory, gone when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"])
            .arg(at)
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(at.to_owned())),
            other => {
                assert!(
                    std::env::var_os("CI").is_none(),
                    "cannot mount a tmpfs: {other:?}"
                );
                println!("skipped: a tmpfs cannot be mounted here ({other:?})");
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

// holds: SG-8
#[tokio::test]
async fn on_a_full_disk_nothing_is_half_stored_and_work_goes_on_when_there_is_room() {
    let folder = TempDir::new().unwrap();
    let Some(disk) = SmallDisk::mount(&folder.path().join("disk")) else {
        return;
    };
    let store = Store::open(&disk.0.join("meshplan.db"), Clock::default())
        .await
        .unwrap();
    fill(&store, 3).await;
    let (writer, _task) = ReportWriter::start(store.clone(), Waker::default());
    let ballast = disk.0.join("ballast");
    let mut file = std::fs::File::create(&ballast).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}

    let none = Counters::default();
    let mut counters = none.clone();
    counters.epoch = 1;
    let mut big = act(&none, &counters);
    big.deliveries = vec![delivery(9, State::Held)];
    big.contents
        .insert(meshplan_schemas::digest::Digest::of(b"big"), vec![7; 512 * 1024]);
    let error = store
        .commit(&big, &Signed::default(), &[], &[])
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the disk that holds the database is full; nothing was stored. Free some space: work goes on by itself then"
    );
    let seen = store.snapshot().await.unwrap();
    assert_eq!((seen.counters.epoch, seen.deliveries.len()), (0, 3));
    let large = format!("envelope {}", "x".repeat(512 * 1024));
    let report = report(node(1), 1, Cause::Change);
    let answer = writer.take(node(1), 1, large.clone(), report.clone()).await;
    assert!(
        matches!(answer.as_ref().map_err(|e| &**e), Err(StoreError::Full)),
        "{answer:?}"
    );

    drop(file);
    std::fs::remove_file(&ballast).unwrap();
    store.commit(&big, &Signed::default(), &[], &[]).await.unwrap();
    assert_eq!(
        writer.take(node(1), 1, large, report).await.unwrap(),
        Taken::Stored
    );
    store.close().await;
}

// holds: LK-6, B48
#[tokio::test]
async fn a_slow_reader_and_a_copy_stop_nobody_and_the_log_does_not_stay_large() {
    let fresh = fresh_sqlite().await;
    let (store, path) = (&fresh.store, path_of(&fresh));
    fill(store, 10).await;
    let mut slow = raw(&path).await;
    slow.execute("BEGIN").await.unwrap();
    slow.fetch_all("SELECT doc FROM deliveries").await.unwrap();

    let (writer, _task) = ReportWriter::start(store.clone(), Waker::default());
    let text = "x".repeat(64 * 1024);
    let copy = fresh.folder.path().join("copy.db");
    let burst = (0..500_u64).map(|n| {
        let report = report(node(u128::from(n)), n, Cause::Change);
        writer.take(node(u128::from(n)), n, text.clone(), report)
    });
    let (answers, copied) = tokio::join!(futures_util::future::join_all(burst), store.copy_to(&copy));
    copied.unwrap();
    for answer in answers {
        assert_eq!(answer.unwrap(), Taken::Stored);
    }
    let log = path.with_extension("db-wal");
    let grown = std::fs::metadata(&log).unwrap().len();
    assert!(grown > 16 * 1024 * 1024, "the reader held nothing back: {grown}");

    slow.execute("ROLLBACK").await.unwrap();
    // the next transactions empty the log and cut it back
    for n in 0..3 {
        writer
            .take(
                node(1),
                1000 + n,
                text.clone(),
                report(node(1), 1000 + n, Cause::Change),
            )
            .await
            .unwrap();
    }
    let left = std::fs::metadata(&log).unwrap().len();
    assert!(left <= 17 * 1024 * 1024, "the log stays at {left} bytes");

    let copied = Store::open(&copy, Clock::default()).await.unwrap();
    assert_eq!(copied.snapshot().await.unwrap().deliveries.len(), 10);
}
