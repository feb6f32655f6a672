//! What one scope changes, node by node: for nodes that are walked, and for nodes that are left behind (UC-1).
//!
//! It stands alone because the two are compared with different things: a walked node with what it runs and has proven, a
//! node that is left behind with what was accepted for it last. So what is new for it is asked of the plan once, with all
//! others, and a later commit that does not touch it changes nothing although the node still lags.

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::digest::Digest;
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::NodeId;

use crate::pure::compose::ComposedNode;
use crate::pure::delivery::NodeChange;
use crate::pure::guard::{Guard, stands};
use crate::pure::scope::Scope;
use crate::pure::snapshot::{ContentRef, Snapshot};

/// The changes of one scope.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Of nodes that are walked.
    pub(super) nodes: BTreeMap<NodeId, NodeChange>,
    /// Of nodes that are left behind: what is new for them.
    pub(super) behind: BTreeMap<NodeId, NodeChange>,
    /// Nodes that are left behind and run something else, new or not.
    pub(super) lagging: BTreeSet<NodeId>,
}

impl Changes {
    /// Whether nothing is new for anybody.
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.behind.is_empty()
    }

    /// Takes down what the scope is on a node after the commit; none is "not there".
    pub(super) fn add(
        &mut self,
        snapshot: &Snapshot,
        node: &ComposedNode,
        scope: &Scope,
        after: Option<Digest>,
    ) {
        let assignment = snapshot.assignments.get(&(node.id, scope.clone()));
        let digest = |content: Option<&ContentRef>| content.map(|c| c.digest);
        let assigned = digest(assignment.and_then(|a| a.assigned.as_ref()));
        let proven = digest(assignment.and_then(|a| a.proven.as_ref()));
        let differs = after != assigned || after != proven;
        let change = NodeChange {
            before: proven,
            after,
        };
        if node.update_class != UpdateClass::LeftBehind || !stands(Guard::LeftBehind) {
            if differs {
                self.nodes.insert(node.id, change);
            }
            return;
        }
        if differs {
            self.lagging.insert(node.id);
        }
        let held_back = assignment.and_then(|a| a.held_back.as_ref());
        let news = match held_back {
            Some(held) => after != digest(held.content.as_ref()),
            None => differs,
        };
        if news {
            self.behind.insert(node.id, change);
        }
    }
}
