//! A database that is lost and rebuilt (DL-12): what git has of the record is kept, everything else of the disk is gone.
//!
//! It stands alone because the rest of the world does not know of it: hosts keep what they have, and hear a reconciler
//! again that has to ask them.

use super::forge::Repo;
use super::world::{Trouble, World};
use crate::edge::recover::{Sources, rebuild};
use crate::edge::store::recovery::Left;
use crate::edge::vault::Vault;
use crate::pure::note;

/// The reconciler dies, and its database with it. What it had stored of the record was pushed.
pub(super) async fn lose(world: &mut World) -> Result<(), Trouble> {
    for (commit, block) in world.store()?.left().await?.blocks {
        let text = world.notes.entry(commit).or_default();
        if let Some(longer) = note::append(text, &block) {
            *text = longer;
        }
    }
    let used = world.store()?.used().await?;
    world.spent.extend(
        used.into_iter()
            .map(|(kind, number, node, digest)| ((kind, number, node), digest)),
    );
    world.end().await;
    let folder = world.folder.path();
    for name in ["meshplan.db", "meshplan.db-wal", "meshplan.db-shm"] {
        match std::fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Trouble::Step(format!("{name}: {error}")));
            }
            _ => {}
        }
    }
    // What was signed and is not on a host is nowhere any more.
    world.declarations.clear();
    world.epochs.clear();
    world.newest_epoch = None;
    world.open().await?;
    Ok(())
}

/// Says so where a number was used a second time with other bytes (SG-8).
pub(super) async fn used_twice(world: &World) -> Result<Option<String>, Trouble> {
    for (kind, number, node, digest) in world.store()?.used().await? {
        let before = world.spent.get(&(kind.clone(), number, node.clone()));
        if before.is_some_and(|before| *before != digest) {
            return Ok(Some(format!("{kind} {number} {node} WAS USED TWICE")));
        }
    }
    Ok(None)
}

/// Rebuilds it, and starts the reconciler.
pub(super) async fn recover(world: &mut World, force: bool) -> Result<Vec<String>, Trouble> {
    let Some((settings, author)) = world.settings.clone() else {
        return Err(Trouble::Step("there is no fleet yet".to_owned()));
    };
    world.end().await;
    world.open().await?;
    let store = world.store()?.clone();
    let mut repository = Repo::new(world.forge.clone());
    let sources = Sources {
        notes: world.notes.clone(),
        commits: world.forge.commits(),
        keys: vec![(author, world.author_key().map_err(Trouble::Step)?)],
        left: Left::default(),
        settings: &settings,
        vault: &Vault::of_stand_ins(),
        forced: force.then(|| "dana".to_owned()),
        now: world.now(),
    };
    let mut said = match rebuild(sources, &store, &mut repository).await {
        Ok(rebuilt) => {
            let mut said = vec![format!(
                "rebuilt from {} blocks: {} deliveries, {} nodes; {}",
                rebuilt.blocks, rebuilt.deliveries, rebuilt.nodes, rebuilt.waits
            )];
            said.extend(rebuilt.walks.into_iter().map(|walk| format!("goes on: {walk}")));
            said
        }
        Err(error) => return Err(Trouble::Step(error.to_string())),
    };
    world.serve()?;
    world.settle(&mut said).await?;
    Ok(said)
}
