//! The pull request that proposes the revert of what was taken back (DL-7): opened out of the outbox, and merged when a script
//! says so.

use super::forge::BRANCH;
use super::world::{Trouble, World};
use crate::edge::revert::former;
use crate::edge::store::act::REVERT;
use crate::pure::forge::revert::Revert;

/// Merges the pull request that proposes to revert a delivery, by its number.
pub(super) async fn merge(world: &mut World, delivery: usize) -> Result<Vec<String>, Trouble> {
    let none = || Trouble::Step(format!("no pull request proposes to revert {delivery}"));
    let commit = world.forge.numbered(delivery).ok_or_else(none)?.id;
    let store = world.store()?.clone();
    let mut rows = store.outbox_open().await?;
    rows.retain(|row| row.kind == REVERT && row.key == commit.as_str());
    let row = rows.first().ok_or_else(none)?;
    let revert: Revert = serde_json::from_str(&row.body).map_err(|e| Trouble::Step(e.to_string()))?;
    let before = former(&store, &commit).await?.ok_or_else(none)?;
    let files = world.forge.reverted(&commit, &before).map_err(Trouble::Step)?;
    let pull = revert.pull(BRANCH);
    let merged = world.forge.merge(&pull.title, None, Some(files), &[]);
    merged.map_err(Trouble::Step)?;
    store.outbox_done(&rows).await?;
    world.wake();
    let mut said = vec![format!("pull request: {}, from {}", pull.title, pull.from)];
    world.settle(&mut said).await?;
    Ok(said)
}
