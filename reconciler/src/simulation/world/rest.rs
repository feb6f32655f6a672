//! The end of a script: whoever looks again finds nothing to do.

use super::{Trouble, World};
use crate::edge::store::{Store, StoreError};
use crate::simulation::recover;

impl World {
    /// What is true at the end of every script: a further pass over the same world decides nothing.
    pub(in crate::simulation) async fn rest(&mut self) -> Result<String, Trouble> {
        let store = self.store()?.clone();
        if let Some(twice) = recover::used_twice(self).await? {
            return Ok(twice);
        }
        let Some(engine) = &mut self.engine else {
            return Ok("at the end nobody serves".to_owned());
        };
        let before = decided(&store).await?;
        engine.pass().await;
        let after = decided(&store).await?;
        Ok(if before == after {
            "at the end another pass gives no order and no transition".to_owned()
        } else {
            format!("AT THE END ANOTHER PASS STILL DECIDES: {before:?}, then {after:?}")
        })
    }
}

/// The highest numbers of orders, and how many transitions there were.
async fn decided(store: &Store) -> Result<[u64; 4], StoreError> {
    let snapshot = store.snapshot().await?;
    let transitions = snapshot
        .deliveries
        .values()
        .map(|d| u64::from(d.transitions))
        .sum();
    let counters = snapshot.counters;
    Ok([counters.sequence, counters.epoch, counters.revision, transitions])
}
