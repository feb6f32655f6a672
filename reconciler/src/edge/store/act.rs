//! What a pass decided, stored in one transaction: numbers and bytes before anything is published (SG-8).

use std::collections::BTreeMap;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::CommitId;
use meshplan_schemas::timestamp::BlockMark;

use super::cell::{int, json};
use super::db::{OverRows, Tx, args};
use super::journal::{self, SignedBlock};
use super::orders::{self, SignedOrder};
use super::{Store, StoreError, events, inbox, kept, queue, recovery, rollouts};
use crate::pure::act::{Act, Order};
use crate::pure::delivery::{Delivery, Transition};
use crate::pure::identities::Revoked;
use crate::pure::snapshot::{Counters, StandingEpoch};

/// What the signer made of an act's orders and blocks.
#[derive(Debug, Clone, Default)]
pub struct Signed {
    /// The orders, signed.
    pub orders: Vec<SignedOrder>,
    /// The blocks, signed, in order.
    pub blocks: Vec<SignedBlock>,
    /// The values that its contents name and the store lacks, encrypted to the reconciler itself.
    pub values: BTreeMap<Digest, Vec<u8>>,
    /// The epochs that stand from here on, newest first; empty: as before.
    pub epochs_standing: Vec<StandingEpoch>,
}

/// A branch that was read up to a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The repository, as the configuration names it.
    pub repo: String,
    /// The branch.
    pub branch: String,
    /// Up to where.
    pub commit: CommitId,
}

/// How often an assignment was ever changed, before an act was stored and after; none where nobody counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Changed {
    /// Before.
    pub before: Option<i64>,
    /// After.
    pub after: Option<i64>,
}

/// The kind of outbox rows that propose the revert of a commit; their key is the commit.
pub const REVERT: &str = "revert";
/// Under this and its commit `meta` lists each delivery that is final and has machines to serve yet (DL-2).
const OUTSTANDING: &str = "outstanding:";
/// Under this and its digest `meta` has each uuid and key that left the fleet (FR-5).
const REVOKED: &str = "revoked:";

/// The records of this many newest heads are kept.
const KEPT_REVISIONS: i64 = 4;

impl Store {
    /// The number and digest of the newest block of the journal.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn newest_block(&self) -> Result<Option<BlockMark>, StoreError> {
        let mut tx = self.db().begin_read().await?;
        let block = counters(&mut tx).await?.block;
        tx.commit().await?;
        Ok(block)
    }

    /// Stores all that a pass decided, or nothing: deliveries, transitions, signed orders and blocks, content,
    /// assignments, counters, branches' cursors, the webhooks that it looked at, and the outbox rows.
    ///
    /// # Errors
    /// [`StoreError::Moved`] when the numbers are not those of `act.counters_before`: decide again.
    /// [`StoreError::NumberReused`] when a number was used with other bytes. Others as they come; nothing is stored
    /// in any of these cases.
    pub async fn commit(
        &self,
        act: &Act,
        signed: &Signed,
        cursors: &[Cursor],
        inbox_handled: &[String],
    ) -> Result<Changed, StoreError> {
        let now = self.now().as_microsecond();
        let mut tx = self.db().begin_write().await?;
        let before = kept::changes(&mut tx).await?;
        compare(&counters(&mut tx).await?, &act.counters_before)?;
        put_contents(&mut tx, act).await?;
        put_values(&mut tx, signed).await?;
        let mut written = Vec::with_capacity(act.deliveries.len());
        for delivery in &act.deliveries {
            written.push((delivery, self.inner.walking.put(&mut tx, delivery).await?));
            list_outstanding(&mut tx, delivery).await?;
        }
        for transition in &act.transitions {
            put_transition(&mut tx, transition).await?;
        }
        orders::put(&mut tx, &signed.orders).await?;
        for order in &act.orders {
            if let Order::Epoch { epoch } = order {
                rollouts::put_epoch(&mut tx, epoch).await?;
            }
        }
        events::put(&mut tx, &act.events).await?;
        put_leaves(&mut tx, act).await?;
        put_standing(&mut tx, &signed.epochs_standing).await?;
        put_state(&mut tx, act).await?;
        for block in &signed.blocks {
            journal::put(&mut tx, block, now).await?;
        }
        for revert in &act.reverts {
            queue::put(&mut tx, REVERT, revert.commit.as_str(), &json(revert)?, now).await?;
        }
        for (id, answer) in &act.answers {
            const SQL: &str = "UPDATE requests SET answer = $2 WHERE id = $1 AND answer IS NULL";
            tx.run(SQL, args![id.as_str(), answer.as_str()]).await?;
        }
        put_counters(&mut tx, &act.counters).await?;
        for cursor in cursors {
            inbox::move_cursor(&mut tx, &cursor.repo, &cursor.branch, &cursor.commit).await?;
        }
        inbox::handled(&mut tx, inbox_handled, now).await?;
        let after = kept::changes(&mut tx).await?;
        let taken = self.inner.kept.take();
        fail::fail_point!("store-before-commit");
        tx.commit().await?;
        self.inner.kept.changed(taken, before, after, &act.assignments);
        for (delivery, changes) in written {
            self.inner.walking.keep(delivery, changes);
        }
        fail::fail_point!("store-after-commit");
        if !act.answers.is_empty() {
            self.inner.answered.send_modify(|n| *n += 1);
        }
        if !act.events.is_empty() {
            self.inner.happened.send_modify(|n| *n += 1);
        }
        Ok(Changed { before, after })
    }
}

/// The counters as they are stored.
pub(super) async fn counters(tx: &mut Tx) -> Result<Counters, StoreError> {
    const SQL: &str = "SELECT name, value, digest FROM counters";
    let rows: Vec<(String, i64, Option<String>)> = tx.rows(SQL, args![]).await?;
    let mut counters = Counters::default();
    for (name, value, digest) in rows {
        let value = super::cell::cell("counters", "value", &name).number(value)?;
        let place = super::cell::cell("counters", "digest", &name);
        match name.as_str() {
            "epoch" => counters.epoch = value,
            "revision" => counters.revision = value,
            "sequence" => counters.sequence = value,
            "order" => counters.order = value,
            "look" => counters.look = value,
            "block" => {
                let digest = digest.ok_or_else(|| place.corrupt("it is missing"))?;
                counters.block = Some(BlockMark {
                    number: value,
                    digest: place.parse(&digest)?,
                });
            }
            // a counter of a later page
            _ => {}
        }
    }
    Ok(counters)
}

fn numbers(counters: &Counters) -> [(&'static str, u64); 5] {
    [
        ("epoch", counters.epoch),
        ("revision", counters.revision),
        ("sequence", counters.sequence),
        ("order", counters.order),
        ("look", counters.look),
    ]
}

fn compare(stored: &Counters, expected: &Counters) -> Result<(), StoreError> {
    for ((name, stored), (_, expected)) in numbers(stored).into_iter().zip(numbers(expected)) {
        if stored != expected {
            return Err(StoreError::Moved {
                counter: name,
                stored: stored.to_string(),
                expected: expected.to_string(),
            });
        }
    }
    if stored.block != expected.block {
        let show = |c: &Counters| {
            c.block
                .as_ref()
                .map_or("none".to_owned(), |b| format!("{} {}", b.number, b.digest))
        };
        return Err(StoreError::Moved {
            counter: "block",
            stored: show(stored),
            expected: show(expected),
        });
    }
    Ok(())
}

pub(super) async fn put_counters(tx: &mut Tx, counters: &Counters) -> Result<(), StoreError> {
    const SQL: &str = "INSERT INTO counters (name, value, digest) VALUES ($1, $2, $3) \
        ON CONFLICT (name) DO UPDATE SET value = excluded.value, digest = excluded.digest";
    for (name, value) in numbers(counters) {
        tx.run(SQL, args![name, int(value)?, None::<String>]).await?;
    }
    if let Some(block) = &counters.block {
        let args = args!["block", int(block.number)?, Some(block.digest.to_string())];
        tx.run(SQL, args).await?;
    }
    Ok(())
}

async fn put_contents(tx: &mut Tx, act: &Act) -> Result<(), StoreError> {
    const SQL: OverRows = OverRows {
        before: "INSERT INTO contents (digest, body)",
        after: "ON CONFLICT DO NOTHING",
    };
    let contents = act.contents.iter();
    let rows = contents.map(|(digest, body)| args![digest.to_string(), body.as_slice()]);
    tx.run_over(SQL, rows.collect()).await?;
    Ok(())
}

async fn put_values(tx: &mut Tx, signed: &Signed) -> Result<(), StoreError> {
    const SQL: &str = "INSERT INTO secret_values (digest, file) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    for (digest, file) in &signed.values {
        tx.run(SQL, args![digest.to_string(), file.as_slice()]).await?;
    }
    Ok(())
}

async fn list_outstanding(tx: &mut Tx, delivery: &Delivery) -> Result<(), StoreError> {
    const LIST: &str = "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    const UNLIST: &str = "DELETE FROM meta WHERE key = $1";
    let key = format!("{OUTSTANDING}{}", delivery.commit);
    if delivery.owes() {
        tx.run(LIST, args![key, ""]).await?;
    } else {
        tx.run(UNLIST, args![key]).await?;
    }
    Ok(())
}

async fn put_transition(tx: &mut Tx, transition: &Transition) -> Result<(), StoreError> {
    const SQL: &str = "INSERT INTO transitions (commit_id, seq, doc) VALUES ($1, $2, $3)";
    let args = args![
        transition.commit.as_str(),
        i64::from(transition.seq),
        json(transition)?
    ];
    tx.run(SQL, args).await?;
    Ok(())
}

async fn put_leaves(tx: &mut Tx, act: &Act) -> Result<(), StoreError> {
    const INSERT: OverRows = OverRows {
        before: "INSERT INTO leaves (revision, place, node, transport_key, next_transport_key, leaf)",
        after: "ON CONFLICT DO NOTHING",
    };
    const TRIM: &str = "DELETE FROM leaves WHERE revision <= $1";
    for order in &act.orders {
        let Order::Head { head, leaves } = order else {
            continue;
        };
        let revision = int(head.revision)?;
        let mut rows = Vec::with_capacity(leaves.len());
        for (place, leaf) in (0_i64..).zip(leaves) {
            let text = String::from_utf8(leaf.bytes()?)
                .map_err(|_| StoreError::Json(serde::ser::Error::custom("canonical bytes are not UTF-8")))?;
            rows.push(args![
                revision,
                place,
                leaf.id.to_string(),
                leaf.transport_key.to_string(),
                leaf.next_transport_key.as_ref().map(ToString::to_string),
                text,
            ]);
        }
        tx.run_over(INSERT, rows).await?;
        tx.run(TRIM, args![revision - KEPT_REVISIONS]).await?;
    }
    Ok(())
}

/// Takes down who left the fleet. What was taken down stays: nobody leaves twice.
pub(super) async fn put_revoked(tx: &mut Tx, revoked: &Revoked) -> Result<(), StoreError> {
    const SQL: OverRows = OverRows {
        before: "INSERT INTO meta (key, value)",
        after: "ON CONFLICT DO NOTHING",
    };
    let mut rows = Vec::with_capacity(revoked.len());
    for (digest, left) in revoked {
        rows.push(args![format!("{REVOKED}{digest}"), json(left)?]);
    }
    tx.run_over(SQL, rows).await?;
    Ok(())
}

async fn put_standing(tx: &mut Tx, standing: &[StandingEpoch]) -> Result<(), StoreError> {
    const INSERT: &str = "INSERT INTO standing_epochs (epoch, doc) VALUES ($1, $2)";
    if standing.is_empty() {
        return Ok(());
    }
    tx.run("DELETE FROM standing_epochs", args![]).await?;
    for epoch in standing {
        tx.run(INSERT, args![int(epoch.epoch)?, json(epoch)?]).await?;
    }
    Ok(())
}

async fn put_state(tx: &mut Tx, act: &Act) -> Result<(), StoreError> {
    const ASSIGN: OverRows = OverRows {
        before: "INSERT INTO assignments (node, scope, doc)",
        after: "ON CONFLICT (node, scope) DO UPDATE SET doc = excluded.doc",
    };
    const UNASSIGN: &str = "DELETE FROM assignments WHERE node = $1 AND scope = $2";
    const ACCEPT: &str = "INSERT INTO accepted (scope, doc) VALUES ($1, $2) \
        ON CONFLICT (scope) DO UPDATE SET doc = excluded.doc";
    const BAD: &str = "INSERT INTO known_bad (scope, digest, doc) VALUES ($1, $2, $3) \
        ON CONFLICT (scope, digest) DO UPDATE SET doc = excluded.doc";
    const LIFT: &str = "DELETE FROM known_bad WHERE scope = $1 AND digest = $2";
    let mut assigned = Vec::new();
    for ((node, scope), assignment) in &act.assignments {
        let (node, scope) = (node.to_string(), scope.to_string());
        match assignment {
            Some(assignment) => assigned.push(args![node, scope, json(assignment)?]),
            None => {
                tx.run(UNASSIGN, args![node, scope]).await?;
            }
        }
    }
    tx.run_over(ASSIGN, assigned).await?;
    for (node, sequence) in &act.repeated {
        const REPEATED: &str = "UPDATE nodes SET repeated = $2 WHERE node = $1";
        tx.run(REPEATED, args![node.to_string(), int(*sequence)?]).await?;
    }
    for (node, epoch) in &act.repeated_epochs {
        const REPEATED: &str = "UPDATE nodes SET epoch_repeated = $2 WHERE node = $1";
        tx.run(REPEATED, args![node.to_string(), int(*epoch)?]).await?;
    }
    if let Some(freeze) = &act.freeze {
        // none is stored as such: it was lifted
        const FREEZE: &str = "INSERT INTO meta (key, value) VALUES ('freeze', $1) \
            ON CONFLICT (key) DO UPDATE SET value = excluded.value";
        tx.run(FREEZE, args![json(freeze)?]).await?;
    }
    put_revoked(tx, &act.revoked).await?;
    if act.recovered {
        recovery::over(tx).await?;
    }
    for (scope, content) in &act.accepted {
        tx.run(ACCEPT, args![scope.to_string(), json(content)?]).await?;
    }
    for ((scope, digest), bad) in &act.known_bad {
        let (scope, digest) = (scope.to_string(), digest.to_string());
        match bad {
            Some(bad) => tx.run(BAD, args![scope, digest, json(bad)?]).await?,
            None => tx.run(LIFT, args![scope, digest]).await?,
        };
    }
    Ok(())
}
