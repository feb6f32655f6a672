//! Says at the forge what waits in the outbox: statuses and comments, each the same again when it is tried again (FG-4).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde::de::DeserializeOwned;

use super::{Forge, ForgeError};
use crate::edge::health::Health;
use crate::edge::outbox::{Carried, Carrier, Trouble};
use crate::edge::store::Store;
use crate::edge::store::queue::OutboxRow;
use crate::pure::forge::{CommitStatus, Said};

/// The kind of outbox rows that set a status; their key is commit and context.
pub const STATUS: &str = "forge-status";
/// The kind of outbox rows that make a comment stand; their key is pull request and marker.
pub const COMMENT: &str = "forge-comment";
/// The place of troubles with what is said at the forge.
const PLACE: &str = "forge-outbox";

/// So many in a row without an answer, and the others are not tried.
const UNANSWERED: u32 = 3;
/// After so many attempts, about a week of them, something is never said.
const MOST_ATTEMPTS: u64 = 1_000;

/// What carriers work with.
#[derive(Debug, Clone)]
pub struct Speaker {
    /// The forge.
    pub forge: Arc<Forge>,
    /// Where ids of comments are kept.
    pub store: Store,
    /// Where trouble is said.
    pub health: Arc<Health>,
    /// When each comment was said last: it is not edited faster than the forge wants (DL-11).
    pub said_at: Arc<Mutex<BTreeMap<String, Timestamp>>>,
}

/// Why a row is not done.
enum NotSaid {
    Forge(ForgeError),
    /// It is tried again; nothing of the forge.
    Here(String),
    /// It can never be done: it is put away, and said.
    Never(String),
}

impl From<ForgeError> for NotSaid {
    fn from(error: ForgeError) -> Self {
        Self::Forge(error)
    }
}

impl Speaker {
    /// The carrier of statuses.
    #[must_use]
    pub fn statuses(&self) -> Carrier {
        self.carrier(|speaker, row| {
            async move {
                let status: CommitStatus = read(&row)?;
                match speaker.forge.set_status(&status).await {
                    // The commit went with a branch that was rewritten.
                    Err(error @ ForgeError::Missing { .. }) => Err(NotSaid::Never(error.to_string())),
                    done => Ok(done?),
                }
            }
            .boxed()
        })
    }

    /// The carrier of comments.
    #[must_use]
    pub fn comments(&self) -> Carrier {
        self.carrier(|speaker, row| {
            async move {
                let said: Said = read(&row)?;
                let here = |error: crate::edge::store::StoreError| NotSaid::Here(error.to_string());
                let known = speaker.store.said(COMMENT, &row.key).await.map_err(here)?;
                let id = match speaker.forge.upsert_comment(&said, known).await {
                    // The pull request itself is gone.
                    Err(error @ ForgeError::Missing { .. }) => return Err(NotSaid::Never(error.to_string())),
                    done => done?,
                };
                if known != Some(id) {
                    speaker.store.is_said(COMMENT, &row.key, id).await.map_err(here)?;
                }
                Ok(())
            }
            .boxed()
        })
    }

    fn carrier(&self, say: fn(Self, OutboxRow) -> BoxFuture<'static, Result<(), NotSaid>>) -> Carrier {
        let speaker = self.clone();
        Arc::new(move |rows| speaker.clone().carry(rows, say).boxed())
    }

    /// Until when a comment rests; none where it does not.
    fn too_early(&self, key: &str) -> Option<Timestamp> {
        let gap = SignedDuration::from_secs(i64::from(self.forge.manners().edit_gap_secs));
        let now = self.store.now();
        let mut said_at = self.said_at.lock().unwrap_or_else(PoisonError::into_inner);
        // Of a clock that was set back it says nothing.
        said_at.retain(|_, at| now.duration_since(*at).abs() < gap);
        said_at.get(key)?.checked_add(gap).ok()
    }

    fn is_said_now(&self, key: String) {
        let mut said_at = self.said_at.lock().unwrap_or_else(PoisonError::into_inner);
        said_at.insert(key, self.store.now());
    }

    async fn carry(
        self,
        rows: Vec<OutboxRow>,
        say: fn(Self, OutboxRow) -> BoxFuture<'static, Result<(), NotSaid>>,
    ) -> Carried {
        let mut carried = Carried::default();
        let mut unanswered = 0;
        for row in rows {
            let (id, key, attempts) = (row.id.clone(), row.key.clone(), row.attempts);
            let edits = row.kind == COMMENT;
            if let Some(until) = self.too_early(&key).filter(|_| edits) {
                carried.early.insert(id, until);
                continue;
            }
            let said = match say(self.clone(), row).await {
                Err(NotSaid::Forge(error)) if attempts >= MOST_ATTEMPTS => {
                    Err(NotSaid::Never(error.to_string()))
                }
                said => said,
            };
            let (why, retry_after, over) = match said {
                Ok(()) => {
                    if edits {
                        self.is_said_now(key);
                    }
                    carried.done.push(id);
                    unanswered = 0;
                    continue;
                }
                Err(NotSaid::Never(why)) => {
                    tracing::warn!(key, why, "not said at the forge, and never will be");
                    carried.done.push(id);
                    continue;
                }
                Err(NotSaid::Here(why)) => (why, None, true),
                // One that is refused says nothing of the others. Several without an answer do: the forge is down.
                Err(NotSaid::Forge(error)) => {
                    unanswered = if error.is_later() { unanswered + 1 } else { 0 };
                    let over = error.retry_after().is_some() || unanswered >= UNANSWERED;
                    (error.to_string(), error.retry_after(), over)
                }
            };
            carried.trouble = Some(Trouble { why, retry_after });
            if over {
                break;
            }
        }
        match &carried.trouble {
            None => self.health.clear(PLACE),
            Some(trouble) => self.health.set(
                PLACE,
                format!("statuses or comments wait, deliveries do not: {}", trouble.why),
            ),
        }
        carried
    }
}

/// A row that this build does not read was queued by another: nobody can say it any more.
fn read<T: DeserializeOwned>(row: &OutboxRow) -> Result<T, NotSaid> {
    serde_json::from_str(&row.body).map_err(|e| NotSaid::Never(format!("its text cannot be read: {e}")))
}
