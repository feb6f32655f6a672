//! What nodes say, stored by one writer that commits many reports at once (LK-6, LK-7).
//!
//! A report is answered after it is on the disk. Older never replaces newer: what stands in a node's row is the
//! report with the highest counter, whatever came last (B49).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use meshplan_schemas::ident::NodeId;
use meshplan_schemas::report::{Cause, Report};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::cell::{cell, int, json};
use super::db::{OverRows, Tx, args};
use super::timeline::Marks;
use super::{Store, StoreError, heard};
use crate::edge::activation::Waker;
use crate::pure::decide::look::{epoch_went_aside, went_aside};

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
    let mut tx = store.db().begin_write().await?;
    let mut writing = Writing {
        tx: &mut tx,
        marks,
        now,
        change: None,
    };
    let mut answers = vec![Taken::Conflict; batch.len()];
    for round in rounds(batch) {
        let items: Vec<&Item> = round.iter().filter_map(|at| batch.get(*at)).collect();
        for (at, taken) in round.into_iter().zip(writing.put(&items).await?) {
            if let Some(answer) = answers.get_mut(at) {
                *answer = taken;
            }
        }
    }
    let due = batch.iter().filter(|item| item.counter % TRIMMED_EVERY == 0);
    let nodes: BTreeSet<NodeId> = due.map(|item| item.node).collect();
    for node in nodes {
        tx.run(TRIM, args![node.to_string(), KEPT]).await?;
    }
    fail::fail_point!("reports-before-commit");
    tx.commit().await?;
    fail::fail_point!("reports-after-commit");
    Ok(answers)
}

/// The places of a batch in rounds, in which each node is met once: what it says comes after what it said.
fn rounds(batch: &[Item]) -> Vec<Vec<usize>> {
    let mut met: BTreeMap<NodeId, usize> = BTreeMap::new();
    let mut rounds: Vec<Vec<usize>> = Vec::new();
    for (at, item) in batch.iter().enumerate() {
        let round = met.entry(item.node).or_default();
        match rounds.get_mut(*round) {
            Some(places) => places.push(at),
            None => rounds.push(vec![at]),
        }
        *round += 1;
    }
    rounds
}

/// A transaction that takes reports.
struct Writing<'a> {
    tx: &'a mut Tx,
    marks: &'a mut Marks,
    now: i64,
    /// Its change of what is heard, counted with the first report that is new.
    change: Option<i64>,
}

impl Writing<'_> {
    /// Stores reports of as many nodes; what became of each.
    async fn put(&mut self, items: &[&Item]) -> Result<Vec<Taken>, StoreError> {
        const INSERT: OverRows = OverRows {
            before: "INSERT INTO reports (node, counter, envelope, received_at)",
            after: "ON CONFLICT DO NOTHING RETURNING node",
        };
        const FORMER: &str = "SELECT envelope FROM reports WHERE node = $1 AND counter = $2";
        // No node gets above that by counting; one that claims to is not to hold up the others in its batch.
        let numbered = items
            .iter()
            .filter_map(|item| Some((*item, int(item.counter).ok()?)));
        let rows = numbered
            .clone()
            .map(|(item, counter)| args![item.node.to_string(), counter, item.envelope.as_str(), self.now]);
        let rows = rows.collect();
        let stored = nodes(self.tx.rows_over(INSERT, rows).await?)?;
        let new = numbered.filter(|(item, _)| stored.contains(&item.node));
        self.hear(&new.collect::<Vec<_>>()).await?;
        let mut taken = Vec::with_capacity(items.len());
        for item in items {
            taken.push(match int(item.counter) {
                Err(_) => Taken::Conflict,
                Ok(_) if stored.contains(&item.node) => Taken::Stored,
                Ok(counter) => {
                    let key = args![item.node.to_string(), counter];
                    let former: Option<(String,)> = self.tx.row(FORMER, key).await?;
                    match former {
                        Some((envelope,)) if envelope == item.envelope => Taken::Duplicate,
                        _ => Taken::Conflict,
                    }
                }
            });
        }
        Ok(taken)
    }

    /// Takes down what is newest of these nodes, each met once.
    async fn hear(&mut self, new: &[(&Item, i64)]) -> Result<(), StoreError> {
        const NEWEST: OverRows = OverRows {
            before: "INSERT INTO nodes \
                (node, counter, instance, boot_id, report, heard_at, change, aside, epoch_aside)",
            after: "ON CONFLICT (node) DO UPDATE SET counter = excluded.counter, instance = excluded.instance, \
                boot_id = excluded.boot_id, report = excluded.report, heard_at = excluded.heard_at, \
                change = excluded.change, aside = excluded.aside, epoch_aside = excluded.epoch_aside \
                WHERE excluded.counter > nodes.counter RETURNING node",
        };
        const LOOK: OverRows = OverRows {
            before: "UPDATE nodes SET look = said.column2, look_counter = said.column3, look_at = said.column4, \
                change = said.column5 FROM (",
            after: ") AS said WHERE nodes.node = said.column1 \
                AND (nodes.look_counter IS NULL OR nodes.look_counter < said.column3)",
        };
        if new.is_empty() {
            return Ok(());
        }
        let change = match self.change {
            Some(change) => change,
            None => *self.change.insert(heard::change(self.tx).await?),
        };
        let (mut newest, mut looks) = (Vec::with_capacity(new.len()), Vec::new());
        for (Item { node, report, .. }, counter) in new {
            let text = json(report)?;
            if matches!(report.cause, Cause::Look(_)) {
                looks.push(args![node.to_string(), text.clone(), *counter, self.now, change]);
            }
            newest.push(args![
                node.to_string(),
                *counter,
                report.instance.as_str(),
                report.boot_id.as_str(),
                text,
                self.now,
                change,
                went_aside(report).and_then(|sequence| int(sequence).ok()),
                epoch_went_aside(report).and_then(|epoch| int(epoch).ok()),
            ]);
        }
        let newest = nodes(self.tx.rows_over(NEWEST, newest).await?)?;
        for (item, _) in new.iter().filter(|(item, _)| newest.contains(&item.node)) {
            if let Some(status) = &item.report.epoch {
                self.marks.take(self.tx, item.node, status, self.now).await?;
            }
        }
        self.tx.run_over(LOOK, looks).await?;
        Ok(())
    }
}

/// The nodes that a statement returned.
fn nodes(rows: Vec<(String,)>) -> Result<BTreeSet<NodeId>, StoreError> {
    let read = |(node,): &(String,)| cell("nodes", "node", node).parse(node);
    rows.iter().map(read).collect()
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
