//! Rollouts in the database: their epochs as they are signed, their timelines, their archives (RO-5).
//!
//! An archive is one packed text in a row; `form` names how it is packed, so that one that is encrypted at rest (page 10)
//! is another form beside this one.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use meshplan_schemas::epoch::{Epoch, Phase};
use meshplan_schemas::ident::{CommitId, NodeId};

use super::cell::{cell, int, json};
use super::db::{Tx, args};
use super::{Store, StoreError};
use crate::pure::rollout::TimelineEvent;
use crate::pure::rollout::archive::{Archive, Summary};
use crate::pure::rollout::run::{Run, SignedEpoch};

/// How archives are packed: JSON through zlib.
const FORM: &str = "json+zlib";

/// A rollout, by its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RolloutRow {
    /// Its first epoch, never another's.
    pub first_epoch: u64,
    /// The name of its delivery.
    pub rollout_id: String,
    /// The commit.
    pub commit: CommitId,
    /// It was put away.
    pub archived: bool,
}

/// What arrived after its rollout was put away.
#[derive(Debug, Default)]
pub struct Late {
    /// The rows that it stands in.
    ids: Vec<i64>,
    /// What happened.
    pub events: Vec<TimelineEvent>,
}

type Row = (i64, String, String, Option<i64>);

fn rollout((first, rollout_id, commit, archived_at): Row) -> Result<RolloutRow, StoreError> {
    Ok(RolloutRow {
        first_epoch: cell("rollouts", "first_epoch", &rollout_id).number(first)?,
        commit: cell("rollouts", "commit_id", &first).parse(&commit)?,
        rollout_id,
        archived: archived_at.is_some(),
    })
}

type EventRow = (i64, i64, String, String, String, i64);

fn event((id, epoch, node, state, via, at): EventRow) -> Result<(i64, TimelineEvent), StoreError> {
    let node: NodeId = cell("epoch_events", "node", &id).parse(&node)?;
    let event = TimelineEvent {
        at: cell("epoch_events", "at", &id).time(at)?,
        node_id_short: node.short().to_string(),
        state,
        via,
        epoch: cell("epoch_events", "epoch", &id).number(epoch)?,
    };
    Ok((id, event))
}

/// Takes down an epoch as it is signed: of the rollout of its commit, or the first of another.
pub(super) async fn put_epoch(tx: &mut Tx, epoch: &Epoch) -> Result<(), StoreError> {
    const NEWEST: &str = "SELECT r.first_epoch, e.doc FROM rollouts r JOIN rollout_epochs e \
        ON e.first_epoch = r.first_epoch WHERE r.rollout_id = $1 ORDER BY e.epoch DESC LIMIT 1";
    const BEGIN: &str = "INSERT INTO rollouts (first_epoch, rollout_id, commit_id) VALUES ($1, $2, $3)";
    const EPOCH: &str = "INSERT INTO rollout_epochs (epoch, first_epoch, doc) VALUES ($1, $2, $3) \
        ON CONFLICT DO NOTHING";
    let number = int(epoch.epoch)?;
    let newest: Option<(i64, String)> = tx.row(NEWEST, args![epoch.rollout_id.as_str()]).await?;
    let first = match newest {
        Some((first, doc)) => {
            let newest: SignedEpoch = cell("rollout_epochs", "doc", &first).json(&doc)?;
            // What was taken back is another rollout when it goes out again.
            let again = newest.phase == Phase::Abort && epoch.phase != Phase::Abort;
            (!again).then_some(first)
        }
        None => None,
    };
    let first = match first {
        Some(first) => first,
        None => {
            let row = args![number, epoch.rollout_id.as_str(), epoch.commit.as_str()];
            tx.run(BEGIN, row).await?;
            number
        }
    };
    tx.run(EPOCH, args![number, first, json(&SignedEpoch::from(epoch))?])
        .await?;
    Ok(())
}

fn pack(archive: &Archive) -> Result<Vec<u8>, StoreError> {
    let mut packer = ZlibEncoder::new(Vec::new(), Compression::default());
    let packed = packer
        .write_all(&serde_json::to_vec(archive)?)
        .and_then(|()| packer.finish());
    // Writing into memory does not fail.
    packed.map_err(|error| StoreError::Json(serde::ser::Error::custom(error)))
}

fn unpack(first_epoch: i64, form: &str, body: &[u8]) -> Result<Archive, StoreError> {
    let place = cell("rollouts", "body", &first_epoch);
    if form != FORM {
        return Err(place.corrupt(format!(
            "it is packed as `{form}`, which this build does not read"
        )));
    }
    let mut text = String::new();
    ZlibDecoder::new(body)
        .read_to_string(&mut text)
        .map_err(|error| place.corrupt(error))?;
    place.json(&text)
}

impl Store {
    /// Whether a rollout is not put away, or a change of status is in no archive.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn anything_to_put_away(&self) -> Result<bool, StoreError> {
        const LIVE: &str = "SELECT first_epoch FROM rollouts WHERE archived_at IS NULL LIMIT 1";
        const EVENT: &str = "SELECT id FROM epoch_events LIMIT 1";
        let live: Option<(i64,)> = self.db().row(LIVE, args![]).await?;
        if live.is_some() {
            return Ok(true);
        }
        let event: Option<(i64,)> = self.db().row(EVENT, args![]).await?;
        Ok(event.is_some())
    }

    /// The rollouts that are not put away, oldest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn live_rollouts(&self) -> Result<Vec<RolloutRow>, StoreError> {
        const SQL: &str = "SELECT first_epoch, rollout_id, commit_id, archived_at FROM rollouts \
            WHERE archived_at IS NULL ORDER BY first_epoch";
        let rows: Vec<Row> = self.db().rows(SQL, args![]).await?;
        rows.into_iter().map(rollout).collect()
    }

    /// The newest rollout, put away or not.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn newest_rollout(&self) -> Result<Option<RolloutRow>, StoreError> {
        const SQL: &str = "SELECT first_epoch, rollout_id, commit_id, archived_at FROM rollouts \
            ORDER BY first_epoch DESC LIMIT 1";
        let row: Option<Row> = self.db().row(SQL, args![]).await?;
        row.map(rollout).transpose()
    }

    /// The newest rollout of this id, or the one whose first epoch it names.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn find_rollout(&self, id: &str) -> Result<Option<RolloutRow>, StoreError> {
        const BY_ID: &str = "SELECT first_epoch, rollout_id, commit_id, archived_at FROM rollouts \
            WHERE rollout_id = $1 ORDER BY first_epoch DESC LIMIT 1";
        const BY_EPOCH: &str = "SELECT first_epoch, rollout_id, commit_id, archived_at FROM rollouts \
            WHERE first_epoch = $1";
        let row: Option<Row> = match id.parse::<i64>() {
            Ok(epoch) => self.db().row(BY_EPOCH, args![epoch]).await?,
            Err(_) => self.db().row(BY_ID, args![id]).await?,
        };
        row.map(rollout).transpose()
    }

    /// The epochs of a rollout; none where there is no such rollout.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn run_of(&self, row: &RolloutRow) -> Result<Option<Run>, StoreError> {
        const EPOCHS: &str = "SELECT epoch, doc FROM rollout_epochs WHERE first_epoch = $1 ORDER BY epoch";
        const LATER: &str =
            "SELECT first_epoch FROM rollouts WHERE rollout_id = $1 AND first_epoch > $2 LIMIT 1";
        let first = int(row.first_epoch)?;
        let rows: Vec<(i64, String)> = self.db().rows(EPOCHS, args![first]).await?;
        let epochs: Result<Vec<SignedEpoch>, StoreError> = rows
            .into_iter()
            .map(|(epoch, doc)| cell("rollout_epochs", "doc", &epoch).json(&doc))
            .collect();
        let later: Option<(i64,)> = self
            .db()
            .row(LATER, args![row.rollout_id.as_str(), first])
            .await?;
        Ok(Run::of(row.commit.clone(), later.is_some(), epochs?))
    }

    /// The timeline of a rollout as far as no archive has it, oldest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn timeline_of(&self, row: &RolloutRow) -> Result<Vec<TimelineEvent>, StoreError> {
        const SQL: &str = "SELECT e.id, e.epoch, e.node, e.state, e.via, e.at FROM epoch_events e \
            JOIN rollout_epochs r ON r.epoch = e.epoch WHERE r.first_epoch = $1 ORDER BY e.at, e.id";
        let rows: Vec<EventRow> = self.db().rows(SQL, args![int(row.first_epoch)?]).await?;
        rows.into_iter()
            .map(|row| event(row).map(|(_, event)| event))
            .collect()
    }

    /// Puts a rollout away, with what its timeline has by then, and forgets all but the newest `kept` archives.
    ///
    /// # Errors
    /// [`StoreError`]; nothing has changed then.
    pub async fn put_away(&self, first_epoch: u64, archive: &Archive, kept: u32) -> Result<(), StoreError> {
        const PUT: &str = "UPDATE rollouts SET archived_at = $2, summary = $3, form = $4, body = $5 \
            WHERE first_epoch = $1";
        const EVENTS: &str = "SELECT e.id, e.epoch, e.node, e.state, e.via, e.at FROM epoch_events e \
            JOIN rollout_epochs r ON r.epoch = e.epoch WHERE r.first_epoch = $1";
        const CLEAR: &str = "DELETE FROM epoch_events WHERE epoch IN \
            (SELECT epoch FROM rollout_epochs WHERE first_epoch = $1)";
        const TRIM: &str = "DELETE FROM rollouts WHERE archived_at IS NOT NULL AND first_epoch <= \
            (SELECT first_epoch FROM rollouts WHERE archived_at IS NOT NULL \
            ORDER BY first_epoch DESC LIMIT 1 OFFSET $1)";
        let first = int(first_epoch)?;
        let mut tx = self.db().begin_write().await?;
        let rows: Vec<EventRow> = tx.rows(EVENTS, args![first]).await?;
        let mut archive = archive.clone();
        let events: Result<Vec<_>, _> = rows.into_iter().map(|row| event(row).map(|(_, e)| e)).collect();
        archive.append(events?);
        let row = args![
            first,
            archive.archived_at.as_microsecond(),
            json(&archive.summary())?,
            FORM,
            pack(&archive)?.as_slice(),
        ];
        tx.run(PUT, row).await?;
        tx.run(CLEAR, args![first]).await?;
        tx.run(TRIM, args![i64::from(kept.max(1))]).await?;
        tx.commit().await
    }

    /// What arrived for rollouts that were put away, by their first epoch.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn late_arrivals(&self) -> Result<BTreeMap<u64, Late>, StoreError> {
        const SQL: &str = "SELECT e.id, e.epoch, e.node, e.state, e.via, e.at, r.first_epoch \
            FROM epoch_events e JOIN rollout_epochs r ON r.epoch = e.epoch \
            JOIN rollouts a ON a.first_epoch = r.first_epoch WHERE a.archived_at IS NOT NULL ORDER BY e.id";
        type Found = (i64, i64, String, String, String, i64, i64);
        let rows: Vec<Found> = self.db().rows(SQL, args![]).await?;
        let mut late: BTreeMap<u64, Late> = BTreeMap::new();
        for (id, epoch, node, state, via, at, first) in rows {
            let first = cell("rollout_epochs", "first_epoch", &epoch).number(first)?;
            let (id, event) = event((id, epoch, node, state, via, at))?;
            let late = late.entry(first).or_default();
            late.ids.push(id);
            late.events.push(event);
        }
        Ok(late)
    }

    /// Appends what arrived late to the archive of its rollout.
    ///
    /// # Errors
    /// [`StoreError`]; nothing has changed then.
    pub async fn append_late(&self, first_epoch: u64, late: Late) -> Result<(), StoreError> {
        const PUT: &str = "UPDATE rollouts SET summary = $2, form = $3, body = $4 WHERE first_epoch = $1";
        const CLEAR: &str = "DELETE FROM epoch_events WHERE id = $1";
        let first = int(first_epoch)?;
        let mut tx = self.db().begin_write().await?;
        if let Some(mut archive) = body(&mut tx, first).await? {
            archive.append(late.events);
            let row = args![first, json(&archive.summary())?, FORM, pack(&archive)?.as_slice()];
            tx.run(PUT, row).await?;
        }
        for id in late.ids {
            tx.run(CLEAR, args![id]).await?;
        }
        tx.commit().await
    }

    /// Forgets changes of epochs of no rollout that is known: of one that was forgotten, or from before there were any.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn forget_strays(&self) -> Result<(), StoreError> {
        const ANY: &str =
            "SELECT id FROM epoch_events WHERE epoch NOT IN (SELECT epoch FROM rollout_epochs) LIMIT 1";
        const SQL: &str = "DELETE FROM epoch_events WHERE epoch NOT IN (SELECT epoch FROM rollout_epochs)";
        let any: Option<(i64,)> = self.db().row(ANY, args![]).await?;
        if any.is_some() {
            self.db().run(SQL, args![]).await?;
        }
        Ok(())
    }

    /// How many archives there are.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn count_archives(&self) -> Result<u64, StoreError> {
        const SQL: &str = "SELECT count(*) FROM rollouts WHERE archived_at IS NOT NULL";
        let row: Option<(i64,)> = self.db().row(SQL, args![]).await?;
        cell("rollouts", "archived_at", &"count").number(row.map_or(0, |(count,)| count))
    }

    /// Summaries of archives, newest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn archives(&self, skip: u64, limit: u32) -> Result<Vec<Summary>, StoreError> {
        const SQL: &str = "SELECT first_epoch, summary FROM rollouts WHERE archived_at IS NOT NULL \
            ORDER BY first_epoch DESC LIMIT $1 OFFSET $2";
        let rows: Vec<(i64, String)> = self.db().rows(SQL, args![i64::from(limit), int(skip)?]).await?;
        rows.into_iter()
            .map(|(first, summary)| cell("rollouts", "summary", &first).json(&summary))
            .collect()
    }

    /// The archive of a rollout; none where it is not put away.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn archive_of(&self, first_epoch: u64) -> Result<Option<Archive>, StoreError> {
        let mut tx = self.db().begin_read().await?;
        let archive = body(&mut tx, int(first_epoch)?).await?;
        tx.commit().await?;
        Ok(archive)
    }
}

async fn body(tx: &mut Tx, first_epoch: i64) -> Result<Option<Archive>, StoreError> {
    const SQL: &str = "SELECT form, body FROM rollouts WHERE first_epoch = $1 AND body IS NOT NULL";
    let row: Option<(String, Vec<u8>)> = tx.row(SQL, args![first_epoch]).await?;
    row.map(|(form, body)| unpack(first_epoch, &form, &body))
        .transpose()
}
