//! The assignments in memory, so that a pass does not read tens of thousands of rows of which one has changed.
//!
//! Invariant: what is kept is what the database had at the number of changes that stands beside it. Triggers count the
//! changes, whoever makes them, and every read asks for the number in its own transaction: another number, another read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use meshplan_schemas::ident::NodeId;

use super::StoreError;
use super::cell::cell;
use super::db::{Tx, args};
use crate::pure::scope::Scope;
use crate::pure::snapshot::{Assignment, Assignments};

/// What is kept.
#[derive(Debug, Default)]
pub(super) struct Kept(Mutex<Option<(i64, Arc<Assignments>)>>);

/// What an act changes of the assignments.
type Changes = BTreeMap<(NodeId, Scope), Option<Assignment>>;

impl Kept {
    /// The assignments as the transaction sees them, and how often they were changed by then.
    pub(super) async fn read(&self, tx: &mut Tx) -> Result<(Arc<Assignments>, Option<i64>), StoreError> {
        let changes = changes(tx).await?;
        if let Some(known) = self.at(changes) {
            return Ok((known, changes));
        }
        let all = Arc::new(all(tx).await?);
        if let Some(changes) = changes {
            self.put(changes, Arc::clone(&all));
        }
        Ok((all, changes))
    }

    fn at(&self, changes: Option<i64>) -> Option<Arc<Assignments>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, known) = kept.as_ref()?;
        (Some(*at) == changes).then(|| Arc::clone(known))
    }

    fn put(&self, changes: i64, known: Arc<Assignments>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((changes, known));
    }

    /// Takes what is kept away while it is changed: a change that does not come to its end leaves nothing behind.
    pub(super) fn take(&self) -> Option<(i64, Arc<Assignments>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Puts back what was taken, changed as the database was from `before` to `after`; nothing where it was not of
    /// `before`.
    pub(super) fn changed(
        &self,
        taken: Option<(i64, Arc<Assignments>)>,
        before: Option<i64>,
        after: Option<i64>,
        changes: &Changes,
    ) {
        let (Some((at, mut known)), Some(before), Some(after)) = (taken, before, after) else {
            return;
        };
        if at != before {
            return;
        }
        // In place: no snapshot holds it any more when its act is stored.
        let all = Arc::make_mut(&mut known);
        for (key, assignment) in changes {
            match assignment {
                Some(assignment) => all.insert(key.clone(), assignment.clone()),
                None => all.remove(key),
            };
        }
        self.put(after, known);
    }
}

/// How often an assignment was changed; none where nobody counts.
pub(super) async fn changes(tx: &mut Tx) -> Result<Option<i64>, StoreError> {
    const SQL: &str = "SELECT value FROM counters WHERE name = 'assignments'";
    let row: Option<(i64,)> = tx.row(SQL, args![]).await?;
    Ok(row.map(|(value,)| value))
}

async fn all(tx: &mut Tx) -> Result<Assignments, StoreError> {
    const SQL: &str = "SELECT node, scope, doc FROM assignments";
    let rows: Vec<(String, String, String)> = tx.rows(SQL, args![]).await?;
    rows.into_iter().map(one).collect()
}

fn one((node, scope, doc): (String, String, String)) -> Result<((NodeId, Scope), Assignment), StoreError> {
    let key = (
        cell("assignments", "node", &node).parse(&node)?,
        cell("assignments", "scope", &node).parse(&scope)?,
    );
    Ok((key, cell("assignments", "doc", &node).json(&doc)?))
}
