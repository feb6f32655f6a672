//! The fleet repo as the pass sees it: looks when it is due, reads and composes trees, writes notes.
//!
//! The mirror is used on blocking threads, one at a time; composed trees are kept while a delivery needs them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use meshplan_schemas::ident::{CommitId, ModuleName};

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::activation::Waker;
use super::health::Health;
use super::mirror::{CommitInfo, FetchError, Mirror, MirrorError};
use super::store::act::Cursor;
use super::store::{Store, StoreError};
use super::tree_reader::{TreeReader, source_tree};
use crate::pure::compose::Expected;
use crate::pure::compose::former::{Former, former};
use crate::pure::decide::{NewCommit, Tree};
use crate::pure::diff::proven::Wanted;
use crate::pure::news::{self, Found, Judged, Line};
use crate::pure::secrets::{OpensSecrets, Unopened};
use crate::pure::signatures::Brought;

/// After a look that failed the next one comes after so many seconds, or the poll interval when that is less.
const RETRY_SECS: i64 = 5;

/// What a look brought.
#[derive(Debug, Default)]
pub struct News {
    /// The webhooks that this look answers: those that were there when it began.
    pub handled: Vec<String>,
    /// New commits, oldest first.
    pub commits: Vec<NewCommit>,
    /// Where the branch is read to, once the commits are stored.
    pub cursor: Option<Cursor>,
}

impl News {
    /// Whether nothing is to be stored of it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.commits.is_empty() && self.cursor.is_none() && self.handled.is_empty()
    }
}

/// Says that the remote is worth a look now: we ourselves have pushed to its branch, or somebody asks again. Never data.
#[derive(Debug, Clone, Default)]
pub struct LookNow(Arc<AtomicBool>);

impl LookNow {
    /// The next pass looks.
    pub fn say(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_said(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Whether it was said since the last time.
    pub(super) fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }
}

/// The fleet repo as a pass needs it: the forge's seam, real or simulated.
pub trait FleetRepo: Send {
    /// Takes what a look has brought, and begins one when it is due.
    ///
    /// # Errors
    /// The store cannot say how far the branch was read.
    fn look(
        &mut self,
        hints: &[String],
        store: &Store,
        health: &Health,
        now: Timestamp,
    ) -> impl Future<Output = Result<News, StoreError>> + Send;
    /// What a look had brought may be lost: the next pass looks again.
    fn look_again(&self);
    /// When the remote is looked at next.
    fn next_look(&self) -> Option<Timestamp>;
    /// Blocks wait to be written into notes.
    fn notes_are_due(&self);
    /// A commit's tree, composed; none when it cannot be read now.
    fn tree(&mut self, commit: &CommitId, health: &Health) -> impl Future<Output = Option<Tree>> + Send;
    /// A module as it was last accepted, on nodes of a commit that lack it (DL-3); none when it cannot be read now.
    fn former(
        &mut self,
        commit: &CommitId,
        module: &ModuleName,
        wanted: &Wanted,
        health: &Health,
    ) -> impl Future<Output = Option<Former>> + Send;
    /// What a commit brings that is not behind its base, and how that is signed; none when it cannot be read now.
    fn brought(
        &mut self,
        base: &CommitId,
        commit: &CommitId,
        health: &Health,
    ) -> impl Future<Output = Option<Brought>> + Send;
    /// Forgets composed trees that no delivery needs.
    fn forget_but(&mut self, needed: &BTreeSet<&CommitId>);
}

/// The fleet repo.
pub struct Repository {
    mirror: Arc<Mutex<Mirror>>,
    name: String,
    branch: String,
    opener: Arc<dyn OpensSecrets>,
    poll: SignedDuration,
    next_look: Option<Timestamp>,
    reader: Arc<Mutex<TreeReader>>,
    trees: BTreeMap<CommitId, Tree>,
    formers: BTreeMap<(CommitId, ModuleName), (Wanted, Former)>,
    /// By base and commit.
    brought: BTreeMap<(CommitId, CommitId), Brought>,
    notes: Waker,
    views: Option<Waker>,
    wake: Waker,
    look_now: LookNow,
    looking: Option<Looking>,
    failed: bool,
}

/// A look under way.
struct Looking {
    result: oneshot::Receiver<Result<Found, LookError>>,
    hints: Vec<String>,
    cursor: Option<CommitId>,
}

impl std::fmt::Debug for Repository {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Repository({} {})", self.name, self.branch)
    }
}

/// Why a look brought nothing.
#[derive(Debug, thiserror::Error)]
enum LookError {
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
    /// The repository behind a mirror, of the branch that is expected. `notes` wakes whoever writes notes, `wake` the pass when a look is over.
    #[must_use]
    pub fn new(
        mirror: Arc<Mutex<Mirror>>,
        name: &str,
        expected: Expected,
        poll_secs: u32,
        notes: Waker,
        wake: Waker,
    ) -> Self {
        Self {
            mirror,
            name: name.to_owned(),
            branch: expected.branch.clone().unwrap_or_default(),
            opener: expected.opener.clone().unwrap_or_else(|| Arc::new(Unopened)),
            poll: SignedDuration::from_secs(i64::from(poll_secs.max(1))),
            next_look: None,
            reader: Arc::new(Mutex::new(TreeReader::new(expected))),
            trees: BTreeMap::new(),
            formers: BTreeMap::new(),
            brought: BTreeMap::new(),
            notes,
            views: None,
            wake,
            look_now: LookNow::default(),
            looking: None,
            failed: false,
        }
    }

    /// Wakes whoever tells of deliveries elsewhere, with each that moves.
    #[must_use]
    pub fn telling(mut self, views: Option<Waker>) -> Self {
        self.views = views;
        self
    }

    /// By which others of this process say that the remote is worth a look.
    #[must_use]
    pub fn look_now(&self) -> LookNow {
        self.look_now.clone()
    }
}

impl FleetRepo for Repository {
    /// Takes what a look has brought, and begins one when a webhook came, when the poll is due, and at the start.
    ///
    /// The look runs beside the passes: a forge that is slow delays news, never a walk (FG-4). It wakes the pass when
    /// it is over.
    ///
    /// # Errors
    /// The store cannot say how far the branch was read. A remote that cannot be reached is no error: it is said in
    /// `health`, and looked at again.
    async fn look(
        &mut self,
        hints: &[String],
        store: &Store,
        health: &Health,
        now: Timestamp,
    ) -> Result<News, StoreError> {
        let news = match self.looking.take() {
            None => News::default(),
            Some(mut looking) => match looking.result.try_recv() {
                Err(TryRecvError::Empty) => {
                    self.looking = Some(looking);
                    News::default()
                }
                Err(TryRecvError::Closed) => self.over(None, looking, store, health, now).await?,
                Ok(looked) => self.over(Some(looked), looking, store, health, now).await?,
            },
        };
        let hinted = hints.iter().any(|id| !news.handled.contains(id));
        let due = self.next_look.is_none_or(|due| due <= now);
        // After a failure a hint waits like everybody: who rings at a shut door does not open it.
        let wanted = if self.failed {
            due
        } else {
            due || hinted || self.look_now.is_said()
        };
        if self.looking.is_none() && wanted {
            self.look_now.take();
            self.begin(hints.to_vec(), store.cursor(&self.name, &self.branch).await?);
        }
        Ok(news)
    }

    fn look_again(&self) {
        self.look_now.say();
    }

    /// When the remote is looked at next.
    fn next_look(&self) -> Option<Timestamp> {
        // One under way wakes the pass by itself.
        self.next_look.filter(|_| self.looking.is_none())
    }

    /// Blocks wait to be written into notes.
    fn notes_are_due(&self) {
        self.notes.wake();
        if let Some(views) = &self.views {
            views.wake();
        }
    }

    /// A commit's tree, composed; none when the mirror cannot give it now.
    async fn tree(&mut self, commit: &CommitId, health: &Health) -> Option<Tree> {
        if let Some(tree) = self.trees.get(commit) {
            return Some(tree.clone());
        }
        let (mirror, reader) = (Arc::clone(&self.mirror), Arc::clone(&self.reader));
        let wanted = commit.clone();
        let read = tokio::task::spawn_blocking(move || {
            let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
            let mut mirror = mirror.lock().unwrap_or_else(PoisonError::into_inner);
            let entries = reader.read(&mut mirror, &wanted)?;
            // The commit is an order from here on: no garbage collection may take it.
            mirror.keep(&wanted)?;
            drop(mirror);
            Ok::<_, MirrorError>(reader.compose(&wanted, entries))
        })
        .await;
        match read {
            Ok(Ok(tree)) => {
                health.clear("tree");
                self.trees.insert(commit.clone(), tree.clone());
                Some(tree)
            }
            Ok(Err(MirrorError::Tree { why, .. })) => {
                self.trees.insert(commit.clone(), Tree::Invalid(why.clone()));
                Some(Tree::Invalid(why))
            }
            Ok(Err(error)) => {
                tracing::error!(error = %error, commit = commit.short(), "a tree cannot be read");
                health.set("tree", error.to_string());
                None
            }
            Err(_) => None,
        }
    }

    /// A module as it was last accepted, on nodes of a commit that lack it (DL-3); none when the mirror cannot give it
    /// now.
    async fn former(
        &mut self,
        commit: &CommitId,
        module: &ModuleName,
        wanted: &Wanted,
        health: &Health,
    ) -> Option<Former> {
        let key = (commit.clone(), module.clone());
        if let Some((_, former)) = self.formers.get(&key).filter(|(of, _)| of == wanted) {
            return Some(former.clone());
        }
        let (mirror, opener) = (Arc::clone(&self.mirror), Arc::clone(&self.opener));
        let (now, module, asked) = (commit.clone(), module.clone(), wanted.clone());
        let read = tokio::task::spawn_blocking(move || {
            let mut mirror = mirror.lock().unwrap_or_else(PoisonError::into_inner);
            let now = mirror.read_tree(&now)?;
            let then = mirror.read_tree(&asked.commit);
            drop(mirror);
            let made = match then {
                Ok(then) => {
                    let (now, then) = (source_tree(now).0, source_tree(then).0);
                    former(&now, &then, (&module, &asked.nodes), &opener)
                }
                Err(MirrorError::NoCommit { .. } | MirrorError::Tree { .. }) => {
                    let why = "the repository has that commit no more".to_owned();
                    asked.nodes.iter().map(|id| (*id, Err(why.clone()))).collect()
                }
                Err(error) => return Err(error),
            };
            Ok(made
                .into_iter()
                .map(|(id, made)| ((module.clone(), id), made))
                .collect::<Former>())
        });
        match read.await {
            Ok(Ok(former)) => {
                self.formers.insert(key, (wanted.clone(), former.clone()));
                Some(former)
            }
            Ok(Err(error)) => {
                tracing::error!(error = %error, commit = wanted.commit.short(), "a tree cannot be read");
                health.set("tree", error.to_string());
                None
            }
            Err(_) => None,
        }
    }

    async fn brought(&mut self, base: &CommitId, commit: &CommitId, health: &Health) -> Option<Brought> {
        let key = (base.clone(), commit.clone());
        if let Some(brought) = self.brought.get(&key) {
            return Some(brought.clone());
        }
        let (mirror, (from, to)) = (Arc::clone(&self.mirror), key.clone());
        let read = tokio::task::spawn_blocking(move || {
            let mirror = mirror.lock().unwrap_or_else(PoisonError::into_inner);
            mirror.brought(&from, &to)
        });
        match read.await {
            Ok(Ok(brought)) => {
                self.brought.insert(key, brought.clone());
                Some(brought)
            }
            Ok(Err(error)) => {
                tracing::error!(error = %error, commit = commit.short(), "signatures cannot be read");
                health.set("tree", error.to_string());
                None
            }
            Err(_) => None,
        }
    }

    /// Forgets composed trees that no delivery needs.
    fn forget_but(&mut self, needed: &BTreeSet<&CommitId>) {
        self.trees.retain(|commit, _| needed.contains(commit));
        self.brought.retain(|(_, commit), _| needed.contains(commit));
        self.formers.retain(|(commit, _), _| needed.contains(commit));
    }
}

impl Repository {
    fn begin(&mut self, hints: Vec<String>, cursor: Option<CommitId>) {
        let (mirror, wake, known) = (Arc::clone(&self.mirror), self.wake.clone(), cursor.clone());
        let (done, result) = oneshot::channel();
        tokio::task::spawn_blocking(move || {
            let mut mirror = mirror.lock().unwrap_or_else(PoisonError::into_inner);
            let looked = fetch(&mut mirror, known.as_ref());
            drop(mirror);
            // Nobody waits for it any more when the service stops.
            let _ = done.send(looked);
            wake.wake();
        });
        self.looking = Some(Looking {
            result,
            hints,
            cursor,
        });
    }

    async fn over(
        &mut self,
        looked: Option<Result<Found, LookError>>,
        over: Looking,
        store: &Store,
        health: &Health,
        now: Timestamp,
    ) -> Result<News, StoreError> {
        let Looking { hints, cursor, .. } = over;
        let found = match looked {
            Some(Ok(found)) => found,
            Some(Err(error)) => {
                tracing::warn!(error = %error, "the repository could not be looked at");
                health.set("repository", error.to_string());
                return Ok(self.failed_at(now));
            }
            None => return Ok(self.failed_at(now)),
        };
        self.failed = false;
        self.next_look = now.checked_add(self.poll).ok();
        health.clear("repository");
        let mut delivered = BTreeSet::new();
        for commit in news::candidates(&found) {
            if cursor.as_ref() != Some(commit) && store.delivery(commit).await?.is_some() {
                delivered.insert(commit.clone());
            }
        }
        let (commits, head) = match news::judge(found, cursor.as_ref(), &delivered) {
            Judged::Gone => {
                let sentence = format!(
                    "the branch {} is gone from {}: the fleet is frozen as it stands, nothing is removed; push the branch again",
                    self.branch, self.name
                );
                health.set("branch", sentence);
                (Vec::new(), None)
            }
            Judged::Nothing => {
                health.clear("branch");
                (Vec::new(), None)
            }
            Judged::SetBack(head) => {
                health.clear("branch");
                let sentence = format!(
                    "the branch {} was set back to {}, which was delivered before: nothing is undone by that; \
                     revert with a new commit",
                    self.branch,
                    head.short()
                );
                health.set("rewritten", sentence);
                (Vec::new(), Some(head))
            }
            Judged::New(commits, head) => {
                health.clear("branch");
                health.clear("rewritten");
                (commits, Some(head))
            }
        };
        let cursor = head.map(|commit| Cursor {
            repo: self.name.clone(),
            branch: self.branch.clone(),
            commit,
        });
        Ok(News {
            handled: hints,
            commits,
            cursor,
        })
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
    let lineage = mirror.first_parent_since(known, &head)?;
    Ok(Found::Branch(Line {
        tip: shown(lineage.head),
        since: lineage.commits.into_iter().map(shown).collect(),
        known: lineage.known,
    }))
}

/// A commit as a delivery shows it.
pub fn shown(commit: CommitInfo) -> news::Commit {
    news::Commit {
        id: commit.id,
        subject: commit.subject,
        author: commit.author,
        allows_removals: commit.allows_removals,
    }
}

/// How many blocks the repository's journal has.
fn journal_blocks(mirror: &Mirror) -> usize {
    let notes = super::notes::record_in(mirror.path()).unwrap_or_default();
    notes
        .values()
        .map(|text| crate::pure::note::blocks(text).len())
        .sum()
}
