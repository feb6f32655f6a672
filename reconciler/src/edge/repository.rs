//! The fleet repo as the pass sees it: looks when it is due, reads and composes trees, writes notes.
//!
//! The mirror is used on blocking threads, one at a time; composed trees are kept while a delivery needs them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use meshplan_schemas::ident::{CommitId, ModuleName};

use tokio::sync::oneshot::error::TryRecvError;

use super::activation::Waker;
use super::health::Health;
use super::mirror::{Mirror, MirrorError, Remote};
use super::store::act::Cursor;
use super::store::{Store, StoreError};
use super::tree_reader::{TreeReader, source_tree};
use crate::pure::compose::Expected;
use crate::pure::compose::former::{Former, former};
use crate::pure::decide::{NewCommit, Tree};
use crate::pure::diff::proven::Wanted;
use crate::pure::parts::{Branch, Left, Parts};
use crate::pure::secrets::{OpensSecrets, Unopened};
use crate::pure::signatures::Brought;

mod look_now;
mod looks;

pub use look_now::LookNow;
pub use looks::shown;
pub(in crate::edge) use looks::waiting;
use looks::{Cursors, Looking};

/// What a look brought.
#[derive(Debug, Default)]
pub struct News {
    /// The webhooks that this look answers: those that were there when it began.
    pub handled: Vec<String>,
    /// New commits, oldest first.
    pub commits: Vec<NewCommit>,
    /// Commits that wait and are not on their branch any more. Where a branch is read to moves with them.
    pub left: Vec<Left>,
    /// Where branches are read to, once the commits are stored.
    pub cursors: Vec<Cursor>,
}

impl News {
    fn read_to(&mut self, of: Branch, commit: CommitId) {
        self.cursors.push(Cursor {
            repo: of.repo,
            branch: of.branch,
            commit,
        });
    }

    /// Whether nothing is to be stored of it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.commits.is_empty() && self.cursors.is_empty() && self.handled.is_empty()
    }
}

/// A delivery's commit, and what its tree is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// The commit.
    pub commit: CommitId,
    /// What its tree is made of.
    pub parts: Parts,
    /// Whether it is still to become something: a component's commit that may not be carried is no order then. Later on
    /// its tree is what it is, without the module.
    pub is_open: bool,
}

/// Whether a tree that was composed before is what would be composed now. One that composed while it was open had no fault of
/// its own commit's: it is the same when it is over.
fn holds(made: &Made, tree: &Tree, of: &Made) -> bool {
    let same_way = made.is_open == of.is_open || made.is_open && matches!(tree, Tree::Composed(_));
    made.parts == of.parts && same_way
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
    fn look_again(&mut self);
    /// What a look had brought is stored, and decided as far as it can be.
    fn stored(&mut self);
    /// When the remote is looked at next.
    fn next_look(&self) -> Option<Timestamp>;
    /// Blocks wait to be written into notes.
    fn notes_are_due(&self);
    /// A delivery's tree, composed; none when it cannot be read now.
    fn tree(&mut self, of: &Made, health: &Health) -> impl Future<Output = Option<Tree>> + Send;
    /// A module as it was last accepted (`then`), on nodes of a delivery's tree that lack it (DL-3); none when it cannot be
    /// read now.
    fn former(
        &mut self,
        of: (&Made, &Made),
        module: &ModuleName,
        wanted: &Wanted,
        health: &Health,
    ) -> impl Future<Output = Option<Former>> + Send;
    /// What a delivery brings of each repository that is not behind its base, and how that is signed; none when it cannot be
    /// read now.
    fn brought(
        &mut self,
        base: &Made,
        of: &Made,
        health: &Health,
    ) -> impl Future<Output = Option<Vec<Brought>>> + Send;
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
    /// With what each was composed of: a commit's parts may be others later.
    trees: BTreeMap<CommitId, (Made, Tree)>,
    formers: BTreeMap<(CommitId, ModuleName), ([Parts; 2], Wanted, Former)>,
    /// By base and commit, with what both are made of.
    brought: BTreeMap<(CommitId, CommitId), ([Parts; 2], Vec<Brought>)>,
    /// Components that may be fetched.
    components: Arc<BTreeMap<Branch, Remote>>,
    allowed: Arc<BTreeSet<Branch>>,
    notes: Waker,
    views: Option<Waker>,
    wake: Waker,
    look_now: LookNow,
    looking: Option<Looking>,
    /// The number of a look that went well, while what it brought is not stored.
    looked: Option<u64>,
    failed: bool,
}

impl std::fmt::Debug for Repository {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Repository({} {})", self.name, self.branch)
    }
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
            components: Arc::default(),
            allowed: Arc::default(),
            notes,
            views: None,
            wake,
            look_now: LookNow::default(),
            looking: None,
            looked: None,
            failed: false,
        }
    }

    /// Wakes whoever tells of deliveries elsewhere, with each that moves.
    #[must_use]
    pub fn telling(mut self, views: Option<Waker>) -> Self {
        self.views = views;
        self
    }

    /// Takes commits of these components too.
    #[must_use]
    pub fn with_components(mut self, components: BTreeMap<Branch, Remote>) -> Self {
        self.allowed = Arc::new(components.keys().cloned().collect());
        self.components = Arc::new(components);
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
            self.look_now.begin();
            let mut cursors = Cursors {
                fleet: store.cursor(&self.name, &self.branch).await?,
                ..Cursors::default()
            };
            for of in self.components.keys() {
                let cursor = store.cursor(&of.repo, &of.branch).await?;
                cursors.components.insert(of.clone(), cursor);
            }
            cursors.waiting = waiting(store).await?;
            self.begin(hints.to_vec(), cursors);
        }
        Ok(news)
    }

    fn look_again(&mut self) {
        self.looked = None;
        self.look_now.say();
    }

    fn stored(&mut self) {
        if let Some(number) = self.looked.take() {
            self.look_now.stored(number);
        }
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

    /// A delivery's tree, composed; none when the mirror cannot give it now.
    async fn tree(&mut self, of: &Made, health: &Health) -> Option<Tree> {
        if let Some((_, tree)) = self
            .trees
            .get(&of.commit)
            .filter(|(made, tree)| holds(made, tree, of))
        {
            return Some(tree.clone());
        }
        let (mirror, reader, allowed) = (
            Arc::clone(&self.mirror),
            Arc::clone(&self.reader),
            Arc::clone(&self.allowed),
        );
        let wanted = of.clone();
        let read = tokio::task::spawn_blocking(move || {
            let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
            let mut mirror = mirror.lock().unwrap_or_else(PoisonError::into_inner);
            let joined = mirror.join(&wanted.parts, &allowed)?;
            // A component's own commit that may not be carried is no order; later ones go without the module (FR-8).
            let fault = joined.faults.get(&wanted.commit);
            if let Some(fault) = fault.filter(|_| wanted.is_open) {
                return Ok(Tree::Invalid(fault.clone()));
            }
            let entries = reader.read(&mut mirror, &joined.commit)?;
            // The commits are orders from here on: no garbage collection may take them.
            for commit in &joined.of {
                mirror.keep(commit)?;
            }
            drop(mirror);
            Ok::<_, MirrorError>(reader.compose(&joined.commit, entries))
        })
        .await;
        let commit = &of.commit;
        match read {
            Ok(Ok(tree)) => {
                health.clear("tree");
                self.trees.insert(commit.clone(), (of.clone(), tree.clone()));
                Some(tree)
            }
            Ok(Err(MirrorError::Tree { why, .. })) => {
                let tree = Tree::Invalid(why);
                self.trees.insert(commit.clone(), (of.clone(), tree.clone()));
                Some(tree)
            }
            Ok(Err(error)) => {
                tracing::error!(error = %error, commit = commit.short(), "a tree cannot be read");
                health.set("tree", error.to_string());
                None
            }
            Err(_) => None,
        }
    }

    /// A module as it was last accepted, on nodes of a delivery's tree that lack it (DL-3); none when the mirror cannot give
    /// it now.
    async fn former(
        &mut self,
        (now, then): (&Made, &Made),
        module: &ModuleName,
        wanted: &Wanted,
        health: &Health,
    ) -> Option<Former> {
        let key = (now.commit.clone(), module.clone());
        let parts = [now.parts.clone(), then.parts.clone()];
        let known = self.formers.get(&key);
        if let Some((.., former)) = known.filter(|(made, of, _)| *made == parts && of == wanted) {
            return Some(former.clone());
        }
        let (mirror, opener, allowed) = (
            Arc::clone(&self.mirror),
            Arc::clone(&self.opener),
            Arc::clone(&self.allowed),
        );
        let (now, then) = (now.parts.clone(), then.parts.clone());
        let (module, asked) = (module.clone(), wanted.clone());
        let read = tokio::task::spawn_blocking(move || {
            let mut mirror = mirror.lock().unwrap_or_else(PoisonError::into_inner);
            let mut whole = |parts: &Parts| {
                let joined = mirror.join(parts, &allowed)?;
                mirror.read_tree(&joined.commit)
            };
            let now = whole(&now)?;
            let then = whole(&then);
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
                self.formers.insert(key, (parts, wanted.clone(), former.clone()));
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

    async fn brought(&mut self, base: &Made, of: &Made, health: &Health) -> Option<Vec<Brought>> {
        let key = (base.commit.clone(), of.commit.clone());
        let parts = [base.parts.clone(), of.parts.clone()];
        if let Some((_, brought)) = self.brought.get(&key).filter(|(made, _)| *made == parts) {
            return Some(brought.clone());
        }
        let mirror = Arc::clone(&self.mirror);
        let [from, to] = parts.clone();
        let read = tokio::task::spawn_blocking(move || {
            let mirror = mirror.lock().unwrap_or_else(PoisonError::into_inner);
            let each = to
                .changed(&from)
                .map(|(base, commit)| mirror.brought(base, commit));
            each.collect::<Result<Vec<_>, _>>()
        });
        match read.await {
            Ok(Ok(brought)) => {
                self.brought.insert(key, (parts, brought.clone()));
                Some(brought)
            }
            Ok(Err(error)) => {
                tracing::error!(error = %error, commit = of.commit.short(), "signatures cannot be read");
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
