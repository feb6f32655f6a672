//! Previews of pull requests: fetched, merged in memory, composed with nothing opened, compared, said (DL-8).

use std::sync::{Arc, Mutex, PoisonError};

use meshplan_schemas::finding::Finding;
use meshplan_schemas::ident::CommitId;

use super::{Components, Keeper, Memory, TurnError};
use crate::edge::forge::carrier::{COMMENT, STATUS};
use crate::edge::mirror::{MergedTree, Mirror, MirrorError, TreeEntry, With};
use crate::edge::store::StoreError;
use crate::edge::tree_reader::source_tree;
use crate::pure::compose::{Composed, Composer, Expected, TreeError};
use crate::pure::forge::check::{self, Of};
use crate::pure::forge::kept::{Kept, Previewed};
use crate::pure::forge::{CommitStatus, Said};
use crate::pure::parts::Parts;
use crate::pure::preview::outcome::Outcome;

/// A composed tree, or why there is none.
type Made = Result<Arc<Composed>, TreeError>;

/// The branch as it was previewed against last.
pub(super) struct Base {
    commit: CommitId,
    beside: Option<Beside>,
    made: Arc<Made>,
}

/// Components, as the newest delivery has them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Beside {
    of: Components,
    parts: Parts,
}

fn with(beside: Option<&Beside>) -> Option<With<'_>> {
    beside.map(|beside| With {
        objects: &beside.of.objects,
        parts: &beside.parts,
        allowed: &beside.of.allowed,
    })
}

/// What came of one preview, and the tree that the merge would make.
struct Seen {
    outcome: Outcome,
    after: Option<Arc<Composed>>,
}

impl Keeper {
    /// Previews every pull request whose head or branch is another than the last time.
    pub(super) async fn preview(&self, memory: &mut Memory) -> Result<(), TurnError> {
        let Some(read_to) = self.store.cursor(&self.repo, &self.branch).await? else {
            return Ok(());
        };
        let due: Vec<Kept> = self
            .store
            .pull_requests()
            .await?
            .into_iter()
            .filter(|kept| kept.preview_due(&self.branch, &read_to).is_some())
            .collect();
        if due.is_empty() {
            return Ok(());
        }
        let numbers = due.iter().map(|kept| kept.number);
        let heads: Vec<(u64, String)> = numbers.map(|n| (n, self.forge.head_ref(n))).collect();
        let Some(tip) = self
            .blocking(move |mirror, _| locked(mirror).fetch_pulls(&heads))
            .await??
        else {
            // The branch is gone: the fleet stands still, and there is nothing to merge into.
            return Ok(());
        };
        let beside = self.beside().await?;
        let mut trouble = None;
        for kept in due {
            // What was fetched may be newer than what the deliveries were read to.
            let Some(wanted) = kept.preview_due(&self.branch, &tip) else {
                continue;
            };
            let base = self.base(memory, &wanted.base, beside.as_ref()).await?;
            let (head, of) = (wanted.head.clone(), wanted.base.clone());
            let (branch, beside) = (self.branch.clone(), beside.clone());
            let seen = self
                .blocking(move |mirror, expected| {
                    let merged = locked(mirror).read_merge(&of, &head, with(beside.as_ref()));
                    see(expected, merged, &base, &branch)
                })
                .await?;
            match seen {
                Ok(seen) => self.say(kept, wanted, &seen).await?,
                // It has moved on since the forge told us of it; it will say so.
                Err(MirrorError::NoCommit { .. }) => {
                    tracing::info!(number = kept.number, "the head of a pull request has moved");
                }
                // The others are previewed all the same.
                Err(error) => trouble = Some(TurnError::Preview(format!("#{}: {error}", kept.number))),
            }
        }
        trouble.map_or(Ok(()), Err)
    }

    /// Components as the newest delivery has them: what a merge brings is delivered with these.
    async fn beside(&self) -> Result<Option<Beside>, StoreError> {
        let Some(of) = &self.components else {
            return Ok(None);
        };
        let newest = self.store.deliveries(1).await?;
        Ok(newest.first().map(|newest| Beside {
            of: of.clone(),
            parts: newest.parts_after(),
        }))
    }

    /// The branch at a commit, composed once.
    async fn base(
        &self,
        memory: &mut Memory,
        commit: &CommitId,
        beside: Option<&Beside>,
    ) -> Result<Arc<Made>, TurnError> {
        let known = memory.base.as_ref();
        if let Some(base) = known.filter(|base| base.commit == *commit && base.beside.as_ref() == beside) {
            return Ok(Arc::clone(&base.made));
        }
        let (wanted, of) = (commit.clone(), beside.cloned());
        let made = self
            .blocking(move |mirror, expected| {
                let entries = locked(mirror).read_base(&wanted, with(of.as_ref()));
                entries.map(|entries| compose(expected, entries))
            })
            .await?;
        let made = match made {
            Ok(made) => Arc::new(made),
            Err(MirrorError::Tree { why, .. }) => Arc::new(Err(beyond(why))),
            Err(error) => return Err(TurnError::Preview(error.to_string())),
        };
        memory.base = Some(Base {
            commit: commit.clone(),
            beside: beside.cloned(),
            made: Arc::clone(&made),
        });
        Ok(made)
    }

    async fn say(&self, mut kept: Kept, wanted: Previewed, seen: &Seen) -> Result<(), StoreError> {
        let (heard, now) = (self.store.nodes().await?, self.clock.now());
        let absent = match (&seen.outcome, &seen.after) {
            (Outcome::Preview(preview), Some(after)) => check::absent(preview, after, &heard, now),
            _ => Vec::new(),
        };
        let of = Of {
            number: kept.number,
            branch: &self.branch,
            base: &wanted.base,
            head: &wanted.head,
            absent: &absent,
        };
        let (status, comment) = (
            check::status(&of, &seen.outcome),
            check::comment(&of, &seen.outcome),
        );
        self.queue_status(&status).await?;
        self.queue_comment(&comment).await?;
        kept.previewed = Some(wanted);
        self.store.put_pull_request(&kept).await
    }

    /// Queues a status where it is another than the last.
    pub(super) async fn queue_status(&self, status: &CommitStatus) -> Result<(), StoreError> {
        self.queue(STATUS, &status.key(), serde_json::to_string(status))
            .await
    }

    /// Queues a comment where it is another than the last.
    pub(super) async fn queue_comment(&self, said: &Said) -> Result<(), StoreError> {
        self.queue(COMMENT, &said.key(), serde_json::to_string(said))
            .await
    }

    async fn queue(
        &self,
        kind: &str,
        key: &str,
        body: Result<String, serde_json::Error>,
    ) -> Result<(), StoreError> {
        // A struct of texts and numbers always is JSON.
        let Ok(body) = body else { return Ok(()) };
        if self.store.say(kind, key, &body).await? {
            self.outbox.wake();
        }
        Ok(())
    }

    /// Runs on a thread that may block, with the repository of pull requests.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Mutex<Mirror>, &Expected) -> T + Send + 'static,
    ) -> Result<T, TurnError> {
        let (mirror, expected) = (Arc::clone(&self.mirror), self.expected.clone());
        tokio::task::spawn_blocking(move || work(&mirror, &expected))
            .await
            .map_err(|e| TurnError::Preview(e.to_string()))
    }
}

fn locked(mirror: &Mutex<Mirror>) -> std::sync::MutexGuard<'_, Mirror> {
    mirror.lock().unwrap_or_else(PoisonError::into_inner)
}

fn compose(expected: &Expected, entries: Vec<TreeEntry>) -> Made {
    let (tree, findings) = source_tree(entries);
    Composer::new(expected.clone()).whole(tree, findings)
}

/// A tree beyond all bounds, as a tree that does not check.
fn beyond(why: String) -> TreeError {
    TreeError::Findings(vec![Finding::of_file("", why)])
}

fn see(
    expected: &Expected,
    merged: Result<MergedTree, MirrorError>,
    before: &Made,
    branch: &str,
) -> Result<Seen, MirrorError> {
    let after = match merged {
        Ok(MergedTree::Tree(entries)) => compose(expected, entries),
        Ok(MergedTree::Conflicts(paths)) => {
            return Ok(Seen {
                outcome: Outcome::Conflicts(paths),
                after: None,
            });
        }
        Err(MirrorError::Tree { why, .. }) => Err(beyond(why)),
        Err(error) => return Err(error),
    };
    let outcome =
        Outcome::of(branch, before.as_deref(), after.as_deref()).unwrap_or_else(|e| Outcome::Refused {
            what: "the merge cannot be compared".to_owned(),
            findings: vec![Finding::of_file("", e.to_string())],
        });
    Ok(Seen {
        outcome,
        after: after.ok(),
    })
}
