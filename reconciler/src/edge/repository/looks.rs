//! Looks at the remotes: the fleet's branch and those of components, fetched beside the passes, and what follows of what was
//! found.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

use jiff::{SignedDuration, Timestamp};
use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::State;
use tokio::sync::oneshot;

use super::{News, Repository};
use crate::edge::health::Health;
use crate::edge::mirror::{CommitInfo, FetchError, Mirror, MirrorError};
use crate::edge::store::{Store, StoreError};
use crate::pure::decide::{NewCommit, base_after};
use crate::pure::delivery::Delivery;
use crate::pure::news::{self, Found, Judged, Known, Line};
use crate::pure::parts::{Branch, Left, Parts, may_leave};

/// After a look that failed the next one comes after so many seconds, or the poll interval when that is less.
const RETRY_SECS: i64 = 5;

/// A look under way.
pub(super) struct Looking {
    pub(super) result: oneshot::Receiver<Result<Looked, LookError>>,
    pub(super) hints: Vec<String>,
    cursors: Cursors,
}

/// How far branches were read: the fleet's, and those of components.
#[derive(Debug, Clone, Default)]
pub(super) struct Cursors {
    pub(super) fleet: Option<CommitId>,
    pub(super) components: BTreeMap<Branch, Option<CommitId>>,
    /// By branch, none for the fleet's, the commits that wait, or are in what waits.
    pub(super) waiting: BTreeMap<Option<Branch>, BTreeSet<CommitId>>,
}

/// What a look found of the fleet's branch, and of components; a component that could not be looked at hinders nothing else.
pub(super) struct Looked {
    fleet: Found,
    components: BTreeMap<Branch, Result<Found, LookError>>,
    left: Vec<Left>,
}

/// Why a look brought nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum LookError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    #[error(
        "this reconciler knows of no delivery, and the repository has {0} blocks of an earlier one's journal: to sign now \
         would use its numbers a second time. Stop it, run `meshplan recover`, which rebuilds the database from that record, and \
         start it again; or bring the database back from a backup (`meshplan.db` in the state folder)"
    )]
    NumbersLost(usize),
}

impl Repository {
    pub(super) fn begin(&mut self, hints: Vec<String>, cursors: Cursors) {
        let (mirror, wake, known) = (Arc::clone(&self.mirror), self.wake.clone(), cursors.clone());
        let components = Arc::clone(&self.components);
        let (done, result) = oneshot::channel();
        tokio::task::spawn_blocking(move || {
            let of_fleet = {
                let mut mirror = mirror.lock().unwrap_or_else(PoisonError::into_inner);
                fetch(&mut mirror, known.fleet.as_ref()).and_then(|fleet| Ok((fleet, mirror.beside()?)))
            };
            let looked = of_fleet.and_then(|(fleet, beside)| {
                let of = |(of, cursor): (Branch, Option<CommitId>)| {
                    let found = match components.get(&of) {
                        // The mirror is free meanwhile: one that is slow holds up nothing but this look.
                        Some(remote) => beside
                            .fetch(&of, remote)
                            .map_err(LookError::from)
                            .and_then(|head| {
                                let mirror = mirror.lock().unwrap_or_else(PoisonError::into_inner);
                                head.map_or(Ok(Found::Gone), |head| line(&mirror, cursor.as_ref(), &head))
                            }),
                        None => Ok(Found::Gone),
                    };
                    (of, found)
                };
                let components: BTreeMap<_, _> = known.components.into_iter().map(of).collect();
                let mut left = Vec::new();
                let mirror = mirror.lock().unwrap_or_else(PoisonError::into_inner);
                for (of, waiting) in &known.waiting {
                    let found = match of {
                        None => Some(&fleet),
                        Some(of) => components.get(of).and_then(|found| found.as_ref().ok()),
                    };
                    left.extend(left_of(&mirror, of.as_ref(), found, waiting)?);
                }
                Ok(Looked {
                    fleet,
                    components,
                    left,
                })
            });
            // Nobody waits for it any more when the service stops.
            let _ = done.send(looked);
            wake.wake();
        });
        self.looking = Some(Looking {
            result,
            hints,
            cursors,
        });
    }

    pub(super) async fn over(
        &mut self,
        looked: Option<Result<Looked, LookError>>,
        over: Looking,
        store: &Store,
        health: &Health,
        now: Timestamp,
    ) -> Result<News, StoreError> {
        let Looking { hints, cursors, .. } = over;
        let looked = match looked {
            Some(Ok(looked)) => looked,
            Some(Err(error)) => {
                tracing::warn!(error = %error, "the repository could not be looked at");
                health.set("repository", error.to_string());
                return Ok(self.failed_at(now));
            }
            None => return Ok(self.failed_at(now)),
        };
        self.failed = false;
        self.looked = Some(self.look_now.begun());
        self.next_look = now.checked_add(self.poll).ok();
        health.clear("repository");
        let fleet = Branch {
            repo: self.name.clone(),
            branch: self.branch.clone(),
        };
        let delivered = delivered(store, &looked.fleet, cursors.fleet.as_ref()).await?;
        let is_new = news::candidates(&looked.fleet).any(|commit| cursors.fleet.as_ref() != Some(commit));
        let pulls = if is_new {
            store.pull_requests().await?
        } else {
            Vec::new()
        };
        let judged = news::judge(looked.fleet, cursors.fleet.as_ref(), &delivered, &pulls);
        let mut news = News {
            handled: hints,
            left: looked.left,
            ..News::default()
        };
        match judged {
            Judged::Gone => {
                let sentence = format!(
                    "the branch {} is gone from {}: the fleet is frozen as it stands, nothing is removed; push the branch again",
                    self.branch, self.name
                );
                health.set("branch", sentence);
            }
            Judged::Nothing => health.clear("branch"),
            Judged::SetBack(head) => {
                health.clear("branch");
                let sentence = format!(
                    "the branch {} was set back to {}, which was delivered before: nothing is undone by that; \
                     revert with a new commit",
                    self.branch,
                    head.short()
                );
                health.set("rewritten", sentence);
                news.read_to(fleet, head);
            }
            Judged::New(commits, head) => {
                health.clear("branch");
                health.clear("rewritten");
                news.commits = commits;
                news.read_to(fleet, head);
            }
        }
        // What a component brings has its place in a fleet's tree only.
        if cursors.fleet.is_none() && news.commits.is_empty() {
            return Ok(news);
        }
        for (of, found) in looked.components {
            let known = cursors.components.get(&of).and_then(Option::as_ref);
            self.take_component(&mut news, (of, known), found, store, health)
                .await?;
        }
        Ok(news)
    }

    /// Takes what a look found of a component; what is wrong with it hinders nobody else.
    async fn take_component(
        &self,
        news: &mut News,
        (of, known): (Branch, Option<&CommitId>),
        found: Result<Found, LookError>,
        store: &Store,
        health: &Health,
    ) -> Result<(), StoreError> {
        let about = format!("component {} {}", of.repo, of.branch);
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(error = %error, repo = of.repo, "a component could not be looked at");
                health.set(about, error.to_string());
                return Ok(());
            }
        };
        let delivered = delivered(store, &found, known).await?;
        // The forge tells of the pull requests of the fleet repo alone.
        match news::judge(found, known, &delivered, &[]) {
            Judged::Gone => {
                let sentence = format!(
                    "the component {} has no branch {}: what it brought stays as it is; push the branch again",
                    of.repo, of.branch
                );
                health.set(about, sentence);
            }
            Judged::Nothing => health.clear(&about),
            Judged::SetBack(head) => {
                let sentence = format!(
                    "the branch {} of the component {} was set back to {}, which was delivered before: nothing is undone by \
                     that; revert with a new commit",
                    of.branch,
                    of.repo,
                    head.short()
                );
                health.set(about, sentence);
                news.read_to(of, head);
            }
            Judged::New(commits, head) => {
                health.clear(&about);
                news.commits.extend(commits.into_iter().map(|commit| NewCommit {
                    component: Some(of.clone()),
                    ..commit
                }));
                news.read_to(of, head);
            }
        }
        Ok(())
    }

    fn failed_at(&mut self, now: Timestamp) -> News {
        self.failed = true;
        self.next_look = now
            .checked_add(self.poll.min(SignedDuration::from_secs(RETRY_SECS)))
            .ok();
        News::default()
    }
}

fn fetch(mirror: &mut Mirror, known: Option<&CommitId>) -> Result<Found, LookError> {
    let fetched = mirror.fetch()?;
    if known.is_none() && fetched.notes.is_some() {
        let blocks = journal_blocks(mirror);
        if blocks > 0 {
            return Err(LookError::NumbersLost(blocks));
        }
    }
    let Some(head) = fetched.head else {
        return Ok(Found::Gone);
    };
    line(mirror, known, &head)
}

fn line(mirror: &Mirror, known: Option<&CommitId>, head: &CommitId) -> Result<Found, LookError> {
    let lineage = mirror.first_parent_since(known, head)?;
    Ok(Found::Branch(Line {
        tip: shown(lineage.head),
        since: lineage.commits.into_iter().map(shown).collect(),
        known: lineage.known,
    }))
}

/// Those of the commits that wait which a branch that was set back or rewritten does not have any more.
fn left_of(
    mirror: &Mirror,
    of: Option<&Branch>,
    found: Option<&Found>,
    waiting: &BTreeSet<CommitId>,
) -> Result<Option<Left>, LookError> {
    // A branch that only went on has all that it had; one that is gone may come back with all of it.
    let Some(Found::Branch(Line { tip, known, .. })) = found else {
        return Ok(None);
    };
    if !matches!(known, Known::Aside | Known::Missing) {
        return Ok(None);
    }
    let commits = mirror.not_behind(waiting, &tip.id)?;
    Ok((!commits.is_empty()).then(|| Left {
        of: of.cloned(),
        head: tip.id.clone(),
        commits,
    }))
}

/// By branch, the commits of what waits, those whose place it took, and those of a newest delivery that was dropped: all that
/// nobody has walked, by itself or as a part of another.
pub(in crate::edge) async fn waiting(
    store: &Store,
) -> Result<BTreeMap<Option<Branch>, BTreeSet<CommitId>>, StoreError> {
    let mut all: BTreeMap<Option<Branch>, BTreeSet<CommitId>> = BTreeMap::new();
    let mut may_bring = store.waiting_deliveries().await?;
    // What comes next is made of what it has.
    let newest = store.deliveries(1).await?.into_iter();
    may_bring.extend(newest.filter(|newest| may_leave(newest) && !newest.waits()));
    for delivery in may_bring {
        let through = let_through(store, &delivery).await?;
        for (of, commit) in delivery.parts_after().each() {
            if through
                .iter()
                .any(|parts| parts.each().any(|part| part == (of, commit)))
            {
                continue;
            }
            let nobody_walked = |d: &Delivery| may_leave(d) || d.state == State::Superseded;
            if store.delivery(commit).await?.as_ref().is_some_and(nobody_walked) {
                all.entry(of.cloned()).or_default().insert(commit.clone());
            }
        }
    }
    Ok(all)
}

/// What the newest delivery before it is made of that was let through: what was in that has been walked.
async fn let_through(store: &Store, delivery: &Delivery) -> Result<Option<Parts>, StoreError> {
    let previous = match &delivery.previous {
        Some(previous) => store.delivery(previous).await?,
        None => None,
    };
    let base = previous.as_ref().and_then(base_after);
    match base.or_else(|| delivery.base.clone()) {
        Some(commit) => Ok(store.delivery(&commit).await?.map(|base| base.parts())),
        None => Ok(None),
    }
}

/// Those of what a look found that are deliveries already.
async fn delivered(
    store: &Store,
    found: &Found,
    cursor: Option<&CommitId>,
) -> Result<BTreeSet<CommitId>, StoreError> {
    let mut delivered = BTreeSet::new();
    for commit in news::candidates(found) {
        if cursor != Some(commit) && store.delivery(commit).await?.is_some() {
            delivered.insert(commit.clone());
        }
    }
    Ok(delivered)
}

/// A commit as a delivery shows it.
pub fn shown(commit: CommitInfo) -> news::Commit {
    news::Commit {
        id: commit.id,
        parents: commit.parents,
        subject: commit.subject,
        author: commit.author,
        allows_removals: commit.allows_removals,
    }
}

/// How many blocks the repository's journal has.
fn journal_blocks(mirror: &Mirror) -> usize {
    let notes = crate::edge::notes::record_in(mirror.path()).unwrap_or_default();
    notes
        .values()
        .map(|text| crate::pure::note::blocks(text).len())
        .sum()
}
