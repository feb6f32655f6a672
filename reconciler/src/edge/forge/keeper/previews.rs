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
use crate::pure::decide::base_after;
use crate::pure::forge::check::{self, Of};
use crate::pure::forge::kept::{Kept, On, Previewed};
use crate::pure::forge::{CommitStatus, Said};
use crate::pure::identities::{Passed, Revoked};
use crate::pure::parts::Parts;
use crate::pure::preview::outcome::Outcome;

/// A composed tree, or why there is none.
type Made = Result<Arc<Composed>, TreeError>;

/// The branch as it was previewed against last.
#[derive(Clone)]
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
        let on = self.on(read_to).await?;
        let due: Vec<Kept> = self
            .store
            .pull_requests()
            .await?
            .into_iter()
            .filter(|kept| kept.preview_due(&self.branch, &on).is_some())
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
        // What was fetched may be newer than what the deliveries were read to.
        let on = self.on(tip).await?;
        let revoked = Arc::new(self.store.revoked().await?);
        let mut trouble = None;
        for kept in due {
            let Some(wanted) = kept.preview_due(&self.branch, &on) else {
                continue;
            };
            // What a component's repository has is not for whoever can open a pull request from elsewhere.
            let beside = self.beside(&on).filter(|_| !kept.fork);
            let base = self.base(memory, &on.base, beside.as_ref()).await?;
            let passed = self.passed(memory, &on, beside.as_ref()).await?;
            let (head, of) = (wanted.head.clone(), on.base.clone());
            let (branch, beside, revoked) = (self.branch.clone(), beside.clone(), Arc::clone(&revoked));
            let seen = self
                .blocking(move |mirror, expected| {
                    let into = MergedInto {
                        branch: &branch,
                        made: &base,
                        passed: &passed,
                        revoked: &revoked,
                    };
                    let merged = locked(mirror).read_merge(&of, &head, with(beside.as_ref()));
                    see(expected, merged, &into)
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

    /// What merges into this commit of the branch are previewed on.
    async fn on(&self, base: CommitId) -> Result<On, StoreError> {
        let passed = self.let_through(&base).await?;
        // What a merge brings is delivered with components as the newest delivery has them.
        let newest = match &self.components {
            Some(_) => self.store.deliveries(1).await?.pop(),
            None => None,
        };
        Ok(On {
            base,
            passed: Some(passed),
            components: newest.map_or_else(Vec::new, |newest| newest.parts_after().components),
        })
    }

    fn beside(&self, on: &On) -> Option<Beside> {
        let of = self.components.clone()?;
        let parts = Parts {
            fleet: on.base.clone(),
            components: on.components.clone(),
        };
        Some(Beside { of, parts })
    }

    /// The branch at a commit, composed once.
    async fn base(
        &self,
        memory: &mut Memory,
        commit: &CommitId,
        beside: Option<&Beside>,
    ) -> Result<Arc<Made>, TurnError> {
        let base = self.composed(memory.base.as_ref(), commit, beside).await?;
        let gone = || TurnError::Preview(format!("the branch's commit {} is not here", commit.short()));
        let base = base.ok_or_else(gone)?;
        let made = Arc::clone(&base.made);
        memory.base = Some(base);
        Ok(made)
    }

    /// The newest tree that was let through before what would be merged into this commit: what that was refused for is no
    /// excuse, and what mends it is none of its faults (FR-5). One that no branch has any more may not be here: the tip then.
    async fn passed(
        &self,
        memory: &mut Memory,
        on: &On,
        beside: Option<&Beside>,
    ) -> Result<Arc<Made>, TurnError> {
        let passed = on.passed.as_ref().unwrap_or(&on.base);
        let known = [memory.passed.as_ref(), memory.base.as_ref()];
        let known = known.into_iter().flatten().find(|base| base.commit == *passed);
        let Some(passed) = self.composed(known, passed, beside).await? else {
            return self.base(memory, &on.base, beside).await;
        };
        let made = Arc::clone(&passed.made);
        memory.passed = Some(passed);
        Ok(made)
    }

    /// The fleet's newest commit up to this one that was let through; itself where no delivery is known of it.
    async fn let_through(&self, tip: &CommitId) -> Result<CommitId, StoreError> {
        let Some(delivery) = self.store.delivery(tip).await? else {
            return Ok(tip.clone());
        };
        let mut passed = base_after(&delivery);
        if passed.as_ref() != Some(tip)
            && let Some(previous) = &delivery.previous
            && let Some(previous) = self.store.delivery(previous).await?
        {
            passed = base_after(&previous);
        }
        let Some(passed) = passed else {
            return Ok(tip.clone());
        };
        // It may be a component's commit: the records are those of the fleet beside it.
        let of = self.store.delivery(&passed).await?;
        Ok(of.map_or(passed, |of| of.parts_after().fleet))
    }

    /// The tree of a commit, composed where it is not the known one; none where the commit is not here.
    async fn composed(
        &self,
        known: Option<&Base>,
        commit: &CommitId,
        beside: Option<&Beside>,
    ) -> Result<Option<Base>, TurnError> {
        let of_this = |base: &&Base| base.commit == *commit && base.beside.as_ref() == beside;
        if let Some(base) = known.filter(of_this) {
            return Ok(Some(base.clone()));
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
            Err(MirrorError::NoCommit { .. }) => return Ok(None),
            Err(error) => return Err(TurnError::Preview(error.to_string())),
        };
        Ok(Some(Base {
            commit: commit.clone(),
            beside: beside.cloned(),
            made,
        }))
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
            base: &wanted.on.base,
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

/// What a pull request would be merged into.
struct MergedInto<'p> {
    /// The branch.
    branch: &'p str,
    /// Its tree, composed.
    made: &'p Made,
    /// The newest tree that was let through.
    passed: &'p Made,
    /// What ever left the fleet.
    revoked: &'p Revoked,
}

fn see(
    expected: &Expected,
    merged: Result<MergedTree, MirrorError>,
    into: &MergedInto<'_>,
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
    let before = into.made.as_deref();
    let passed = Passed {
        tree: into.passed.as_deref().ok(),
        revoked: into.revoked,
    };
    let outcome = Outcome::of(into.branch, before, after.as_deref(), passed);
    let outcome = outcome.unwrap_or_else(|e| Outcome::Refused {
        what: "the merge cannot be compared".to_owned(),
        findings: vec![Finding::of_file("", e.to_string())],
    });
    Ok(Seen {
        outcome,
        after: after.ok(),
    })
}
