//! Proposes the revert of what was taken back: a branch of its own, and the pull request for it (DL-7, FG-4).
//!
//! Carried out of the outbox. Done twice it changes nothing: the branch is left as it stands, and so is its pull request.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::State;

use super::clock::Clock;
use super::forge::{Forge, ForgeError};
use super::health::Health;
use super::mirror::{MergeError, Mirror, Person, Reversal};
use super::outbox::{Carried, Carrier, Trouble};
use super::store::{Store, StoreError};
use crate::pure::forge::revert::Revert;

/// The place of troubles.
const PLACE: &str = "revert";

/// Who proposes reverts.
#[derive(Debug, Clone)]
pub struct Reverts {
    /// Where deliveries are kept.
    pub store: Store,
    /// Whose branch is reverted.
    pub mirror: Arc<Mutex<Mirror>>,
    /// The forge; without one it is a branch alone.
    pub forge: Option<Arc<Forge>>,
    /// The branch whose merges are orders.
    pub branch: String,
    /// Where trouble is said.
    pub health: Arc<Health>,
    /// The time.
    pub clock: Clock,
}

/// Why a revert is not proposed.
#[derive(Debug, thiserror::Error)]
enum RevertError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Merge(#[from] MergeError),
    #[error(transparent)]
    Forge(#[from] ForgeError),
    #[error("{0}")]
    Internal(String),
    /// Trying again would change nothing.
    #[error("{0}")]
    Never(String),
}

impl Reverts {
    /// The carrier of outbox rows that propose a revert.
    #[must_use]
    pub fn carrier(&self) -> Carrier {
        let reverts = self.clone();
        Arc::new(move |rows| {
            let reverts = reverts.clone();
            async move {
                let mut carried = Carried::default();
                let mut by_hand = None;
                for row in rows {
                    match reverts.propose(&row.body).await {
                        Ok(()) => carried.done.push(row.id),
                        Err(RevertError::Never(why)) => {
                            tracing::warn!(commit = row.key, why, "no revert is proposed");
                            by_hand = Some(format!("revert {} by hand: {why}", row.key));
                            carried.done.push(row.id);
                        }
                        Err(error) => {
                            let retry_after = match &error {
                                RevertError::Forge(error) => error.retry_after(),
                                _ => None,
                            };
                            carried.trouble = Some(Trouble {
                                why: error.to_string(),
                                retry_after,
                            });
                        }
                    }
                }
                let waits = carried.trouble.as_ref();
                let waits = waits.map(|trouble| format!("a revert is not proposed yet: {}", trouble.why));
                match waits.or(by_hand) {
                    None => reverts.health.clear(PLACE),
                    // What is to be done by hand is said until the next one is proposed.
                    Some(text) => reverts.health.set(PLACE, text),
                }
                carried
            }
            .boxed()
        })
    }

    async fn propose(&self, body: &str) -> Result<(), RevertError> {
        let revert: Revert = serde_json::from_str(body)
            .map_err(|e| RevertError::Never(format!("its text cannot be read: {e}")))?;
        let Some(former) = former(&self.store, &revert.commit).await? else {
            return Err(RevertError::Never("nothing was delivered before it".to_owned()));
        };
        let (mirror, at) = (Arc::clone(&self.mirror), self.clock.now());
        let pull = revert.pull(&self.branch);
        let proposed = tokio::task::spawn_blocking(move || {
            let mut mirror = mirror.lock().unwrap_or_else(PoisonError::into_inner);
            mirror.propose_revert(&Reversal {
                branch: &revert.branch(),
                commit: &revert.commit,
                former: &former,
                message: &revert.message(&former),
                author: &Person::us(),
                at,
            })
        });
        let proposed = proposed.await.map_err(|e| RevertError::Internal(e.to_string()))?;
        match proposed {
            Ok(true) => {}
            // Somebody was faster.
            Ok(false) => return Ok(()),
            Err(error @ MergeError::Conflict { .. }) => return Err(RevertError::Never(error.to_string())),
            Err(error) => return Err(error.into()),
        }
        if let Some(forge) = &self.forge {
            forge.open_pull_request(&pull).await?;
        }
        Ok(())
    }
}

/// What stood before a commit: the newest one before it whose place it did not take.
pub(crate) async fn former(store: &Store, commit: &CommitId) -> Result<Option<CommitId>, StoreError> {
    let delivery = store.delivery(commit).await?;
    let mut previous = delivery.and_then(|delivery| delivery.previous);
    while let Some(commit) = previous {
        match store.delivery(&commit).await? {
            // What never was on machines is nothing to go back to.
            Some(before) if matches!(before.state, State::Superseded | State::Failed | State::Withdrawn) => {
                previous = before.previous;
            }
            _ => return Ok(Some(commit)),
        }
    }
    Ok(None)
}
