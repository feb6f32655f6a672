//! What is heard of each node in memory, so that a pass reads the reports that came since the last one, not ten thousand.
//!
//! Invariant: what is kept is what the database had at the change that stands beside it. The one writer of these rows
//! ([`super::reports`]) counts a change for each of its transactions and writes the count into each row.

use std::sync::{Arc, Mutex, PoisonError};

use meshplan_schemas::ident::NodeId;

use super::StoreError;
use super::cell::cell;
use super::db::{Tx, args};
use crate::pure::snapshot::{NodeState, Nodes};

/// What is kept: the change, and what was heard by then.
#[derive(Debug, Default)]
pub(super) struct Heard(Mutex<Option<(i64, Arc<Nodes>)>>);

/// What is heard of nodes, and of whom something new.
#[derive(Debug)]
pub struct Since {
    /// All that is heard.
    pub nodes: Arc<Nodes>,
    /// As of which change.
    pub change: i64,
    /// The nodes that were heard from since.
    pub changed: Vec<NodeId>,
}

impl Heard {
    /// What is heard of each node, as the transaction sees it.
    pub(super) async fn read(&self, tx: &mut Tx) -> Result<Arc<Nodes>, StoreError> {
        Ok(self.read_at(tx).await?.1)
    }

    /// The same, with who was heard from after this change; none: everybody.
    pub(super) async fn since(&self, tx: &mut Tx, at: Option<i64>) -> Result<Since, StoreError> {
        const CHANGED: &str = "SELECT node FROM nodes WHERE change > $1";
        let (change, nodes) = self.read_at(tx).await?;
        let changed = match at {
            Some(at) if at >= change => Vec::new(),
            Some(at) => {
                let rows: Vec<(String,)> = tx.rows(CHANGED, args![at]).await?;
                let ids = rows.iter().map(|(node,)| cell("nodes", "node", node).parse(node));
                ids.collect::<Result<_, _>>()?
            }
            None => nodes.keys().copied().collect(),
        };
        Ok(Since {
            nodes,
            change,
            changed,
        })
    }

    async fn read_at(&self, tx: &mut Tx) -> Result<(i64, Arc<Nodes>), StoreError> {
        const CHANGE: &str = "SELECT value FROM counters WHERE name = 'nodes'";
        const SINCE: &str = "SELECT node, report, heard_at, look, look_at FROM nodes WHERE change > $1";
        let newest: Option<(i64,)> = tx.row(CHANGE, args![]).await?;
        let newest = counted(newest)?;
        // Taken away while it is changed: a read that does not come to its end leaves nothing behind. What another
        // reader has kept of a later moment than this transaction's is no use to it.
        let kept = self.take().filter(|(at, _)| *at <= newest);
        let (at, mut nodes) = kept.unwrap_or((-1, Arc::default()));
        if at < newest {
            let rows: Vec<NodeRow> = tx.rows(SINCE, args![at]).await?;
            // In place: a pass has let go of its snapshot before the next is read.
            let all = Arc::make_mut(&mut nodes);
            for row in rows {
                let (id, state) = node(row)?;
                all.insert(id, state);
            }
        }
        self.keep(newest, &nodes);
        Ok((newest, nodes))
    }

    fn take(&self) -> Option<(i64, Arc<Nodes>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn keep(&self, at: i64, nodes: &Arc<Nodes>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((at, Arc::clone(nodes)));
    }
}

/// The change that a transaction makes of what is heard.
pub(super) async fn change(tx: &mut Tx) -> Result<i64, StoreError> {
    const NEXT: &str = "UPDATE counters SET value = value + 1 WHERE name = 'nodes' RETURNING value";
    let row: Option<(i64,)> = tx.row(NEXT, args![]).await?;
    counted(row)
}

/// The count, which the schema puts there and nobody takes away.
fn counted(row: Option<(i64,)>) -> Result<i64, StoreError> {
    let lost = || cell("counters", "name", &"nodes").corrupt("the row is not there");
    row.map(|(value,)| value).ok_or_else(lost)
}

type NodeRow = (String, String, i64, Option<String>, Option<i64>);

fn node((node, report, heard_at, look, look_at): NodeRow) -> Result<(NodeId, NodeState), StoreError> {
    let state = NodeState {
        heard_at: Some(cell("nodes", "heard_at", &node).time(heard_at)?),
        report: Some(cell("nodes", "report", &node).json(&report)?),
        look: look
            .map(|look| cell("nodes", "look", &node).json(&look))
            .transpose()?,
        look_at: look_at
            .map(|at| cell("nodes", "look_at", &node).time(at))
            .transpose()?,
    };
    Ok((cell("nodes", "node", &node).parse(&node)?, state))
}
