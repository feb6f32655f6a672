//! What nodes say, stored by one writer that commits many reports at once (LK-6, LK-7).
//!
//! A report is answered after it is on the disk. Older never replaces newer: what stands in a node's row is the
//! report with the highest counter, whatever came last (B49).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use meshplan_schemas::ident::NodeId;
use meshplan_schemas::report::{Cause, Report};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::cell::{int, json};
use super::db::{Tx, args};
use super::timeline::Marks;
use super::{Store, StoreError, heard};
use crate::edge::activation::Waker;
use crate::pure::decide::look::went_aside;

/// The most reports in one transaction.
const BATCH: usize = 1_000;
/// How long a report waits for company.
const GATHER: Duration = Duration::from_millis(5);
/// The most reports that wait for the writer; above it the answer is [`Taken::Busy`].
const QUEUE: usize = 4_096;
/// The newest reports that are kept of each node.
const KEPT: i64 = 200;
/// Every so many reports of a node those before are taken away: until then so many more are kept.
const TRIMMED_EVERY: u64 = 20;

/// What became of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// On the disk.
    Stored,
    /// Was on the disk already.
    Duplicate,
    /// The counter was used with other bytes: never taken.
    Conflict,
    /// Too many at once: the same again later.
    Busy,
}

type Answer = Result<Taken, Arc<StoreError>>;

struct Item {
    node: NodeId,
    counter: u64,
    envelope: String,
    report: Report,
    answer: oneshot::Sender<Answer>,
}

/// The way to the writer. Cheap to clone; the writer ends when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct ReportWriter {
    queue: mpsc::Sender<Item>,
}

impl ReportWriter {
    /// Starts the writer. It wakes `waker` once after each transaction that brought something new.
    #[must_use]
    pub fn start(store: Store, waker: Waker) -> (Self, JoinHandle<()>) {
        let (queue, items) = mpsc::channel(QUEUE);
        (Self { queue }, tokio::spawn(write(store, waker, items)))
    }

    /// Stores a report whose signature and node were checked; answered when it is on the disk.
    ///
    /// # Errors
    /// [`StoreError`]: nothing is stored, the same again later.
    pub async fn take(&self, node: NodeId, counter: u64, envelope: String, report: Report) -> Answer {
        let (answer, answered) = oneshot::channel();
        let item = Item {
            node,
            counter,
            envelope,
            report,
            answer,
        };
        if self.queue.try_send(item).is_err() {
            return Ok(Taken::Busy);
        }
        // a writer that ended has stored nothing of it
        answered.await.unwrap_or(Ok(Taken::Busy))
    }
}

async fn write(store: Store, waker: Waker, mut items: mpsc::Receiver<Item>) {
    let mut marks = Marks::default();
    while let Some(first) = items.recv().await {
        let mut batch = vec![first];
        let until = Instant::now() + GATHER;
        while batch.len() < BATCH {
            let room = BATCH - batch.len();
            match timeout_at(until, items.recv_many(&mut batch, room)).await {
                Ok(more) if more > 0 => {}
                _ => break,
            }
        }
        match put(&store, &batch, &mut marks).await {
            Ok(answers) => {
                marks.committed();
                if answers.contains(&Taken::Stored) {
                    waker.wake();
                }
                for (item, taken) in batch.into_iter().zip(answers) {
                    // whoever asked may be gone: the report is stored all the same
                    let _ = item.answer.send(Ok(taken));
                }
            }
            Err(error) => {
                marks.dropped();
                tracing::error!(
                    reports = batch.len(),
                    error = &error as &dyn std::error::Error,
                    "reports not stored"
                );
                let error = Arc::new(error);
                for item in batch {
                    let _ = item.answer.send(Err(Arc::clone(&error)));
                }
            }
        }
    }
}

async fn put(store: &Store, batch: &[Item], marks: &mut Marks) -> Result<Vec<Taken>, StoreError> {
    const TRIM: &str = "DELETE FROM reports WHERE node = $1 AND counter <= \
        (SELECT counter FROM reports WHERE node = $1 ORDER BY counter DESC LIMIT 1 OFFSET $2)";
    let now = store.now().as_microsecond();
    let mut answers = Vec::with_capacity(batch.len());
    let mut nodes = BTreeSet::new();
    let mut tx = store.db().begin_write().await?;
    let mut change = None;
    for item in batch {
        answers.push(put_one(&mut tx, item, marks, now, &mut change).await?);
        if item.counter % TRIMMED_EVERY == 0 {
            nodes.insert(item.node);
        }
    }
    for node in nodes {
        tx.run(TRIM, args![node.to_string(), KEPT]).await?;
    }
    fail::fail_point!("reports-before-commit");
    tx.commit().await?;
    fail::fail_point!("reports-after-commit");
    Ok(answers)
}

/// `change` is that of the transaction, counted with the first report that is new.
async fn put_one(
    tx: &mut Tx,
    item: &Item,
    marks: &mut Marks,
    now: i64,
    change: &mut Option<i64>,
) -> Result<Taken, StoreError> {
    const INSERT: &str = "INSERT INTO reports (node, counter, envelope, received_at) VALUES ($1, $2, $3, $4) \
        ON CONFLICT DO NOTHING";
    const FORMER: &str = "SELECT envelope FROM reports WHERE node = $1 AND counter = $2";
    const NEWEST: &str = "INSERT INTO nodes (node, counter, instance, boot_id, report, heard_at, change, aside) \
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
        ON CONFLICT (node) DO UPDATE SET counter = excluded.counter, instance = excluded.instance, \
        boot_id = excluded.boot_id, report = excluded.report, heard_at = excluded.heard_at, \
        change = excluded.change, aside = excluded.aside \
        WHERE excluded.counter > nodes.counter";
    const LOOK: &str = "UPDATE nodes SET look = $2, look_counter = $3, look_at = $4, change = $5 \
        WHERE node = $1 AND (look_counter IS NULL OR look_counter < $3)";
    // no node gets there by counting; one that claims to is not to hold up the others in its batch
    let Ok(counter) = int(item.counter) else {
        return Ok(Taken::Conflict);
    };
    let node = item.node.to_string();
    let row = args![node.clone(), counter, item.envelope.as_str(), now];
    if tx.run(INSERT, row).await? == 0 {
        let former: Option<(String,)> = tx.row(FORMER, args![node, counter]).await?;
        return Ok(match former {
            Some((envelope,)) if envelope == item.envelope => Taken::Duplicate,
            _ => Taken::Conflict,
        });
    }
    let change = match *change {
        Some(change) => change,
        None => *change.insert(heard::change(tx).await?),
    };
    let report = json(&item.report)?;
    let (instance, boot_id) = (item.report.instance.as_str(), item.report.boot_id.as_str());
    let row = args![
        node.clone(),
        counter,
        instance,
        boot_id,
        report.clone(),
        now,
        change,
        went_aside(&item.report).and_then(|sequence| int(sequence).ok()),
    ];
    let newest = tx.run(NEWEST, row).await? > 0;
    if let Some(status) = item.report.epoch.as_ref().filter(|_| newest) {
        marks.take(tx, item.node, status, now).await?;
    }
    if matches!(item.report.cause, Cause::Look(_)) {
        tx.run(LOOK, args![node, report, counter, now, change]).await?;
    }
    Ok(Taken::Stored)
}

impl Store {
    /// The exact text of a node's newest reports, newest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn reports_of(&self, node: NodeId, limit: u32) -> Result<Vec<String>, StoreError> {
        const SQL: &str = "SELECT envelope FROM reports WHERE node = $1 ORDER BY counter DESC LIMIT $2";
        let args = args![node.to_string(), i64::from(limit)];
        let rows: Vec<(String,)> = self.db().rows(SQL, args).await?;
        Ok(rows.into_iter().map(|(envelope,)| envelope).collect())
    }
}
