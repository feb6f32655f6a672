//! Changes of epochs on nodes, taken down as reports come in (RO-5): what is said twice is no change.
//!
//! It stands alone because reports are many and changes few: what each node said last is kept in memory by the one writer,
//! so that a heartbeat costs a look into a map and no statement.

use std::collections::HashMap;

use jiff::Timestamp;
use meshplan_schemas::ident::NodeId;
use meshplan_schemas::lifecycle::epoch::EpochState;
use meshplan_schemas::report::EpochStatus;

use super::StoreError;
use super::cell::{cell, int};
use super::db::{Tx, args};
use crate::pure::decide::look::cut;
use crate::pure::rollout::push::state_word;

type Mark = (u64, EpochState);

/// What each node said last of an epoch.
#[derive(Debug, Default)]
pub(super) struct Marks {
    known: HashMap<NodeId, Mark>,
    /// Of the transaction that is open.
    new: HashMap<NodeId, Mark>,
}

impl Marks {
    /// Takes down what a node's newest report says, where it is another thing than before.
    pub(super) async fn take(
        &mut self,
        tx: &mut Tx,
        node: NodeId,
        status: &EpochStatus,
        now: i64,
    ) -> Result<(), StoreError> {
        const MARK: &str = "INSERT INTO epoch_marks (node, epoch, state) VALUES ($1, $2, $3) \
            ON CONFLICT (node) DO UPDATE SET epoch = excluded.epoch, state = excluded.state";
        let said = (status.state_epoch, status.state);
        let former = match self.new.get(&node).or_else(|| self.known.get(&node)) {
            Some(mark) => Some(*mark),
            None => stored(tx, node).await?,
        };
        self.new.insert(node, said);
        // An epoch that nobody can number is no order of ours.
        let Ok(epoch) = int(status.state_epoch) else {
            return Ok(());
        };
        if former == Some(said) {
            return Ok(());
        }
        let id = node.to_string();
        tx.run(MARK, args![id, epoch, state_word(status.state)]).await?;
        let arrived = former.is_none_or(|(epoch, _)| epoch != status.state_epoch);
        if arrived || status.state == EpochState::Received {
            let at = Timestamp::from_second(status.received_at).map_or(now, |at| at.as_microsecond());
            put(tx, node, status, EpochState::Received, at).await?;
        }
        if status.state != EpochState::Received {
            put(tx, node, status, status.state, now).await?;
        }
        Ok(())
    }

    /// The transaction is on the disk.
    pub(super) fn committed(&mut self) {
        self.known.extend(self.new.drain());
    }

    /// It has not happened.
    pub(super) fn dropped(&mut self) {
        self.new.clear();
    }
}

async fn stored(tx: &mut Tx, node: NodeId) -> Result<Option<Mark>, StoreError> {
    const MARK: &str = "SELECT epoch, state FROM epoch_marks WHERE node = $1";
    let row: Option<(i64, String)> = tx.row(MARK, args![node.to_string()]).await?;
    let Some((epoch, state)) = row else {
        return Ok(None);
    };
    let place = cell("epoch_marks", "state", &node);
    let found = EpochState::ALL.into_iter().find(|s| state_word(*s) == state);
    let state = found.ok_or_else(|| place.corrupt(format!("`{state}` is no state of an epoch")))?;
    Ok(Some((cell("epoch_marks", "epoch", &node).number(epoch)?, state)))
}

async fn put(
    tx: &mut Tx,
    node: NodeId,
    status: &EpochStatus,
    state: EpochState,
    at: i64,
) -> Result<(), StoreError> {
    const EVENT: &str = "INSERT INTO epoch_events (epoch, node, state, via, at) VALUES ($1, $2, $3, $4, $5)";
    let args = args![
        int(status.state_epoch)?,
        node.to_string(),
        state_word(state),
        cut(&status.received_via),
        at,
    ];
    tx.run(EVENT, args).await?;
    Ok(())
}
