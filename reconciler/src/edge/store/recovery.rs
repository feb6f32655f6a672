//! A database that is rebuilt from the record (DL-12): all of it in one transaction, so that a recovery that was killed is
//! one that has not happened, and then the mark that nothing is signed yet (SG-8).

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::digest::Digest;
use meshplan_schemas::fleet_list::Leaf;
use meshplan_schemas::ident::CommitId;
use meshplan_schemas::timestamp::BlockMark;

use super::act::{self, Cursor};
use super::cell::{cell, int, json as text};
use super::db::{OverRows, Tx, args};
use super::journal::{self, SignedBlock};
use super::{Store, StoreError};
use crate::pure::recover::Record;
use crate::pure::recover::fill::Filled;
use crate::pure::recover::waiting::Recovering;
use crate::pure::snapshot::Counters;

/// What is left of a database.
#[derive(Debug, Clone, Default)]
pub struct Left {
    /// Its numbers.
    pub counters: Counters,
    /// Its blocks, those too that stand in no note.
    pub blocks: Vec<(CommitId, String)>,
    /// How many deliveries it knows.
    pub deliveries: u64,
}

/// A number that was used: kind, number, node, digest.
pub type Used = (String, i64, String, String);

/// What a database is rebuilt of.
#[derive(Debug)]
pub struct Rebuilt<'a> {
    /// What the record says.
    pub record: &'a Record,
    /// What that comes to.
    pub filled: &'a Filled,
    /// Values of secrets that it names, encrypted to the reconciler itself.
    pub values: &'a BTreeMap<Digest, Vec<u8>>,
    /// How far the branch was read.
    pub cursors: Vec<Cursor>,
    /// Blocks that stand in no note yet, by number.
    pub unwritten: &'a BTreeSet<u64>,
    /// What is waited for now.
    pub recovering: &'a Recovering,
}

/// The recovery under way.
pub(super) async fn recovering(tx: &mut Tx) -> Result<Option<Recovering>, StoreError> {
    const SQL: &str = "SELECT value FROM meta WHERE key = 'recovering'";
    let row: Option<(String,)> = tx.row(SQL, args![]).await?;
    row.map(|(doc,)| cell("meta", "value", &"recovering").json(&doc))
        .transpose()
}

/// Nothing is waited for any more.
pub(super) async fn over(tx: &mut Tx) -> Result<(), StoreError> {
    tx.run("DELETE FROM meta WHERE key = 'recovering'", args![])
        .await?;
    Ok(())
}

async fn put_recovering(tx: &mut Tx, recovering: &Recovering) -> Result<(), StoreError> {
    const SQL: &str = "INSERT INTO meta (key, value) VALUES ('recovering', $1) \
        ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    tx.run(SQL, args![text(recovering)?]).await?;
    Ok(())
}

impl Store {
    /// The recovery that is under way, none as a rule.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn recovering(&self) -> Result<Option<Recovering>, StoreError> {
        recovering(&mut self.db().begin_read().await?).await
    }

    /// Says that a recovery under way waits for nobody any more, on a person's word; whether there is one.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn force_recovery(&self, actor: &str) -> Result<bool, StoreError> {
        let mut tx = self.db().begin_write().await?;
        let Some(mut under_way) = recovering(&mut tx).await? else {
            return Ok(false);
        };
        under_way.forced = Some(actor.to_owned());
        put_recovering(&mut tx, &under_way).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// What this database knows of numbers, blocks and deliveries.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn left(&self) -> Result<Left, StoreError> {
        const BLOCKS: &str = "SELECT commit_id, text FROM blocks ORDER BY number";
        const HIGHEST: &str = "SELECT kind, MAX(number) FROM orders GROUP BY kind";
        let mut tx = self.db().begin_read().await?;
        let mut counters = act::counters(&mut tx).await?;
        let highest: Vec<(String, i64)> = tx.rows(HIGHEST, args![]).await?;
        for (kind, number) in highest {
            let number = cell("orders", "number", &kind).number(number)?;
            let slot = match kind.as_str() {
                "epoch" => &mut counters.epoch,
                "fleet-list" => &mut counters.revision,
                "declaration" => &mut counters.sequence,
                _ => continue,
            };
            *slot = (*slot).max(number);
        }
        let blocks: Vec<(String, String)> = tx.rows(BLOCKS, args![]).await?;
        let read = |(commit, text): (String, String)| {
            Ok::<_, StoreError>((cell("blocks", "commit_id", &commit).parse(&commit)?, text))
        };
        let deliveries: Option<(i64,)> = tx.row("SELECT COUNT(*) FROM deliveries", args![]).await?;
        Ok(Left {
            counters,
            blocks: blocks.into_iter().map(read).collect::<Result<_, _>>()?,
            deliveries: deliveries.map_or(0, |(n,)| u64::try_from(n).unwrap_or(0)),
        })
    }

    /// Every number that was used: kind, number, node (empty for orders to the fleet), digest of the payload.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn used(&self) -> Result<Vec<Used>, StoreError> {
        const SQL: &str = "SELECT kind, number, node, digest FROM orders WHERE kind <> 'timestamp'";
        self.db().rows(SQL, args![]).await
    }

    /// Puts what was rebuilt in the place of all that the record tells of: all of it, or nothing.
    ///
    /// Reports, people's invitations, webhooks and rollouts that are there stay.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn rebuild(&self, rebuilt: &Rebuilt<'_>) -> Result<(), StoreError> {
        let now = self.now().as_microsecond();
        let mut tx = self.db().begin_write().await?;
        empty(&mut tx).await?;
        cut("recover-emptied");
        put_deliveries(&mut tx, rebuilt.record).await?;
        cut("recover-deliveries");
        put_blocks(&mut tx, rebuilt, now).await?;
        put_heads(&mut tx, rebuilt.record).await?;
        put_leaves(
            &mut tx,
            &rebuilt.filled.leaves,
            rebuilt.recovering.numbers.revision.max(1),
        )
        .await?;
        put_state(&mut tx, rebuilt).await?;
        act::put_counters(&mut tx, &counters(rebuilt)).await?;
        for cursor in &rebuilt.cursors {
            super::inbox::move_cursor(&mut tx, &cursor.repo, &cursor.branch, &cursor.commit).await?;
        }
        put_recovering(&mut tx, rebuilt.recovering).await?;
        cut("recover-before-commit");
        tx.commit().await?;
        cut("recover-after-commit");
        Ok(())
    }
}

/// Stops a test build's process as a power cut would: nothing is unwound, nothing is flushed.
#[cfg_attr(
    not(feature = "failpoints"),
    expect(unused_variables, reason = "only test builds can be stopped")
)]
pub(super) fn cut(name: &str) {
    fail::fail_point!(name, |_| std::process::abort());
}

fn counters(rebuilt: &Rebuilt<'_>) -> Counters {
    let numbers = rebuilt.recovering.numbers;
    Counters {
        epoch: numbers.epoch,
        revision: numbers.revision,
        sequence: numbers.sequence,
        look: rebuilt.recovering.look,
        ..rebuilt.record.numbers.clone()
    }
}

async fn empty(tx: &mut Tx) -> Result<(), StoreError> {
    const ALL: [&str; 14] = [
        "DELETE FROM delivery_parts",
        "DELETE FROM transitions",
        "DELETE FROM deliveries",
        "DELETE FROM orders",
        "DELETE FROM leaves",
        "DELETE FROM standing_epochs",
        "DELETE FROM contents",
        "DELETE FROM secret_values",
        "DELETE FROM assignments",
        "DELETE FROM accepted",
        "DELETE FROM known_bad",
        "DELETE FROM blocks",
        "DELETE FROM outbox WHERE kind = 'notes' AND done_at IS NULL",
        "DELETE FROM meta WHERE key = 'freeze' OR (key >= 'outstanding:' AND key < 'outstanding;')",
    ];
    for statement in ALL {
        tx.run(statement, args![]).await?;
    }
    Ok(())
}

async fn put_deliveries(tx: &mut Tx, record: &Record) -> Result<(), StoreError> {
    const DELIVERIES: OverRows = OverRows {
        before: "INSERT INTO deliveries (commit_id, name, state, order_no, doc)",
        after: "",
    };
    const TRANSITIONS: OverRows = OverRows {
        before: "INSERT INTO transitions (commit_id, seq, doc)",
        after: "",
    };
    let mut rows = Vec::with_capacity(record.deliveries.len());
    for d in &record.deliveries {
        rows.push(args![
            d.commit.as_str(),
            d.name.to_string(),
            d.state.word(),
            int(d.order)?,
            text(d)?
        ]);
    }
    tx.run_over(DELIVERIES, rows).await?;
    let mut rows = Vec::with_capacity(record.transitions.len());
    for transition in &record.transitions {
        let seq = i64::from(transition.seq);
        rows.push(args![transition.commit.as_str(), seq, text(transition)?]);
    }
    tx.run_over(TRANSITIONS, rows).await?;
    Ok(())
}

async fn put_blocks(tx: &mut Tx, rebuilt: &Rebuilt<'_>, now: i64) -> Result<(), StoreError> {
    const BLOCKS: OverRows = OverRows {
        before: "INSERT INTO blocks (number, commit_id, digest, text, written_at)",
        after: "",
    };
    let is_open = |mark: &BlockMark| rebuilt.unwritten.contains(&mark.number);
    let mut rows = Vec::with_capacity(rebuilt.record.blocks.len());
    for (mark, commit, text) in rebuilt.record.blocks.iter().filter(|(mark, ..)| !is_open(mark)) {
        rows.push(args![
            int(mark.number)?,
            commit.as_str(),
            mark.digest.to_string(),
            text.as_str(),
            now
        ]);
    }
    tx.run_over(BLOCKS, rows).await?;
    for (mark, commit, text) in rebuilt.record.blocks.iter().filter(|(mark, ..)| is_open(mark)) {
        let block = SignedBlock {
            mark: mark.clone(),
            commit: commit.clone(),
            text: text.clone(),
        };
        journal::put(tx, &block, now).await?;
    }
    Ok(())
}

/// The heads that the record holds whole: hosts walk the chain of those that changed who may sign (SG-12).
async fn put_heads(tx: &mut Tx, record: &Record) -> Result<(), StoreError> {
    const SQL: &str = "INSERT INTO orders (kind, number, node, digest, envelope, commit_id, issued_at) \
        VALUES ('fleet-list', $1, '', $2, $3, $4, $5) ON CONFLICT DO NOTHING";
    for (revision, head) in &record.heads {
        let row = args![
            int(*revision)?,
            head.digest.to_string(),
            head.envelope.as_str(),
            head.commit.as_str(),
            head.issued_at.saturating_mul(1_000_000)
        ];
        tx.run(SQL, row).await?;
    }
    Ok(())
}

async fn put_leaves(tx: &mut Tx, leaves: &[Leaf], revision: u64) -> Result<(), StoreError> {
    const SQL: OverRows = OverRows {
        before: "INSERT INTO leaves (revision, place, node, transport_key, next_transport_key, leaf)",
        after: "",
    };
    let mut rows = Vec::with_capacity(leaves.len());
    for (place, leaf) in (0_i64..).zip(leaves) {
        let bytes = leaf.bytes()?;
        rows.push(args![
            int(revision)?,
            place,
            leaf.id.to_string(),
            leaf.transport_key.to_string(),
            leaf.next_transport_key.as_ref().map(ToString::to_string),
            String::from_utf8_lossy(&bytes).into_owned(),
        ]);
    }
    tx.run_over(SQL, rows).await?;
    Ok(())
}

async fn put_state(tx: &mut Tx, rebuilt: &Rebuilt<'_>) -> Result<(), StoreError> {
    const ASSIGN: OverRows = OverRows {
        before: "INSERT INTO assignments (node, scope, doc)",
        after: "",
    };
    const ACCEPT: OverRows = OverRows {
        before: "INSERT INTO accepted (scope, doc)",
        after: "",
    };
    const BAD: OverRows = OverRows {
        before: "INSERT INTO known_bad (scope, digest, doc)",
        after: "",
    };
    const CONTENT: OverRows = OverRows {
        before: "INSERT INTO contents (digest, body)",
        after: "ON CONFLICT DO NOTHING",
    };
    const VALUE: &str = "INSERT INTO secret_values (digest, file) VALUES ($1, $2)";
    const FREEZE: &str = "INSERT INTO meta (key, value) VALUES ('freeze', $1)";
    let filled = rebuilt.filled;
    let mut rows = Vec::with_capacity(filled.assignments.len());
    for ((node, scope), assignment) in &filled.assignments {
        rows.push(args![node.to_string(), scope.to_string(), text(assignment)?]);
    }
    tx.run_over(ASSIGN, rows).await?;
    let mut rows = Vec::new();
    for (scope, content) in &filled.accepted {
        rows.push(args![scope.to_string(), text(content)?]);
    }
    tx.run_over(ACCEPT, rows).await?;
    let mut rows = Vec::new();
    for ((scope, digest), bad) in &filled.known_bad {
        rows.push(args![scope.to_string(), digest.to_string(), text(bad)?]);
    }
    tx.run_over(BAD, rows).await?;
    let contents = filled.contents.iter();
    let rows = contents.map(|(digest, body)| args![digest.to_string(), body.as_slice()]);
    tx.run_over(CONTENT, rows.collect()).await?;
    for (digest, file) in rebuilt.values {
        tx.run(VALUE, args![digest.to_string(), file.as_slice()]).await?;
    }
    act::put_revoked(tx, &rebuilt.record.revoked).await?;
    if let Some(freeze) = &rebuilt.record.freeze {
        tx.run(FREEZE, args![text(&Some(freeze))?]).await?;
    }
    Ok(())
}
