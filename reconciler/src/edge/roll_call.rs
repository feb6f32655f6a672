//! The roll call of the fleet ([`crate::pure::roll_call`]) kept up with tree, reports and sessions: whoever asks takes in
//! what has changed since somebody asked last.

use crate::edge::health::Health;
use crate::edge::mesh::Mesh;
use crate::edge::store::{Store, StoreError};
use crate::pure::roll_call::RollCall;
use crate::pure::snapshot::Nodes;

/// The roll call that everybody asks.
#[derive(Debug, Default)]
pub struct Kept(tokio::sync::Mutex<Taken>);

#[derive(Debug, Default)]
struct Taken {
    roll: RollCall,
    /// Up to which change of the store it was told what is heard.
    change: Option<i64>,
}

impl Kept {
    /// Asks it, as of now. `mesh` is always the same one: it says each coming and going of a session once.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn ask<A>(
        &self,
        (store, health, mesh): (&Store, &Health, &Mesh),
        question: impl FnOnce(&RollCall, &Nodes) -> A,
    ) -> Result<A, StoreError> {
        let mut taken = self.0.lock().await;
        let heard = store.heard_since(taken.change).await?;
        let Taken { roll, change } = &mut *taken;
        if let Some(tree) = health.roster() {
            roll.enter(&tree, &heard.nodes);
        }
        roll.moved(&mesh.moved(), &heard.nodes);
        roll.told(&heard.changed, &heard.nodes);
        *change = Some(heard.change);
        Ok(question(roll, &heard.nodes))
    }
}
