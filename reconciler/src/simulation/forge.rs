//! A repository whose commits are files in memory, behind a forge that can be down.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::{CommitId, ModuleName};

use super::script::Edit;
use crate::edge::health::Health;
use crate::edge::repository::{FleetRepo, Made, News};
use crate::edge::store::act::Cursor;
use crate::edge::store::{Store, StoreError};
use crate::pure::compose::compose_tree;
use crate::pure::compose::former::{Former, former};
use crate::pure::decide::Tree;
use crate::pure::diff::proven::Wanted;
use crate::pure::news::{self, Commit, Found, Judged, Known, Line};
use crate::pure::parts::Left;
use crate::pure::secrets::{OpensSecrets, Unopened};
use crate::pure::signatures::{Brought, BroughtCommit, Proof};
use crate::pure::source_tree::{EntryKind, SourceTree};

/// The files of a tree.
pub(super) type Files = BTreeMap<String, Arc<[u8]>>;

/// Files as the tree of a commit.
pub(super) fn source_tree(files: &Files) -> SourceTree {
    let raw = files
        .iter()
        .map(|(path, bytes)| (path.clone().into_bytes(), EntryKind::Blob, Arc::clone(bytes)));
    SourceTree::from_entries(raw.collect()).0
}

/// As deliveries call the repository.
pub(super) const REPO: &str = "fleet";
/// The branch.
pub(super) const BRANCH: &str = "main";
/// Seconds between looks, and after one that failed.
const POLL_SECS: i64 = 60;

/// One commit.
#[derive(Debug, Clone)]
pub(super) struct Merged {
    pub(super) commit: Commit,
    pub(super) files: Arc<Files>,
    /// The place of the commit before it.
    parent: Option<usize>,
}

/// What the forge has.
#[derive(Debug, Default)]
struct State {
    commits: Vec<Merged>,
    /// The places of those that the branch has, oldest first.
    line: Vec<usize>,
    down: bool,
}

impl State {
    /// The newest commit of the branch.
    fn tip(&self) -> Option<&Merged> {
        self.commits.get(*self.line.last()?)
    }

    /// The place of a commit.
    fn place(&self, commit: &CommitId) -> Option<usize> {
        self.commits.iter().position(|made| made.commit.id == *commit)
    }

    /// The places of all that a commit has in its history, itself too.
    fn history(&self, place: usize) -> BTreeSet<usize> {
        let parent = |at: &usize| self.commits.get(*at)?.parent;
        std::iter::successors(Some(place), parent).collect()
    }
}

/// The forge; all clones are one.
#[derive(Debug, Clone, Default)]
pub(super) struct Forge {
    state: Arc<Mutex<State>>,
}

impl Forge {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_down(&self, down: bool) {
        self.state().down = down;
    }

    pub(super) fn is_down(&self) -> bool {
        self.state().down
    }

    /// The commit of this number, the first is 1.
    pub(super) fn numbered(&self, number: usize) -> Option<Commit> {
        let state = self.state();
        Some(state.commits.get(number.checked_sub(1)?)?.commit.clone())
    }

    /// The number of a commit.
    pub(super) fn number_of(&self, commit: &CommitId) -> Option<usize> {
        Some(self.state().place(commit)? + 1)
    }

    /// All commits.
    pub(super) fn commits(&self) -> BTreeMap<CommitId, Commit> {
        let state = self.state();
        let all = state.commits.iter().map(|made| made.commit.clone());
        all.map(|commit| (commit.id.clone(), commit)).collect()
    }

    fn files(&self, commit: &CommitId) -> Option<Arc<Files>> {
        let state = self.state();
        let made = state.commits.iter().find(|made| made.commit.id == *commit)?;
        Some(Arc::clone(&made.files))
    }

    /// The files of the branch without what a commit changed against `former`; why not, where they have gone on since.
    pub(super) fn reverted(&self, commit: &CommitId, former: &CommitId) -> Result<Files, String> {
        let files = |of: &CommitId| self.files(of).ok_or_else(|| format!("there is no commit {of}"));
        let (theirs, before) = (files(commit)?, files(former)?);
        let last = self.state().tip().map(|made| Arc::clone(&made.files));
        let mut now = last.map(|files| (*files).clone()).unwrap_or_default();
        let paths: BTreeSet<&String> = theirs.keys().chain(before.keys()).collect();
        for path in paths {
            if theirs.get(path) == before.get(path) {
                continue;
            }
            if now.get(path) != theirs.get(path) {
                return Err(format!("{path} has gone on since {commit}: revert it by hand"));
            }
            match before.get(path) {
                Some(bytes) => drop(now.insert(path.clone(), Arc::clone(bytes))),
                None => drop(now.remove(path)),
            }
        }
        Ok(now)
    }

    /// Sets the branch back to the commit of this number, by force; why not, where it does not have that one.
    pub(super) fn set_back(&self, number: usize) -> Result<(), String> {
        let mut state = self.state();
        let at = state.line.iter().position(|place| place + 1 == number);
        let at = at.ok_or_else(|| format!("the branch does not have commit {number}"))?;
        state.line.truncate(at + 1);
        Ok(())
    }

    /// Makes a commit; why not, where an edit fits nothing.
    pub(super) fn merge(
        &self,
        subject: &str,
        allows_removals: Option<&str>,
        first: Option<Files>,
        edits: &[Edit],
    ) -> Result<Commit, String> {
        let mut state = self.state();
        let mut files = match (first, state.tip()) {
            (Some(files), _) => files,
            (None, Some(last)) => (*last.files).clone(),
            (None, None) => return Err("there is no fleet yet: begin with `fleet of N machines`".to_owned()),
        };
        for edit in edits {
            apply(&mut files, edit)?;
        }
        // Deterministic, and another one for each place in history.
        let digest = Digest::of(format!("{} {subject}", state.commits.len()).as_bytes()).hex();
        let id = digest.get(..40).and_then(|hex| hex.parse().ok());
        let commit = Commit {
            id: id.ok_or("no commit id")?,
            subject: subject.to_owned(),
            author: "Dana".to_owned(),
            parents: state
                .line
                .last()
                .map(|at| state.commits[*at].commit.id.clone())
                .into_iter()
                .collect(),
            allows_removals: allows_removals.map(str::to_owned),
        };
        let parent = state.line.last().copied();
        let place = state.commits.len();
        state.commits.push(Merged {
            commit: commit.clone(),
            files: Arc::new(files),
            parent,
        });
        state.line.push(place);
        Ok(commit)
    }
}

fn apply(files: &mut Files, edit: &Edit) -> Result<(), String> {
    let text = |path: &str| {
        let bytes = files
            .get(path)
            .ok_or_else(|| format!("there is no file {path}"))?;
        Ok::<_, String>(String::from_utf8_lossy(bytes).into_owned())
    };
    match edit {
        Edit::Write(path, text) => {
            files.insert(path.clone(), Arc::from(text.as_bytes()));
        }
        Edit::Append(path, more) => {
            let whole = text(path)? + more;
            files.insert(path.clone(), Arc::from(whole.into_bytes()));
        }
        Edit::Replace(path, old, new) => {
            let before = text(path)?;
            if !before.contains(old.as_str()) {
                return Err(format!("{path} has no `{old}`"));
            }
            files.insert(
                path.clone(),
                Arc::from(before.replace(old.as_str(), new).into_bytes()),
            );
        }
        Edit::Remove(path) => {
            let before = files.len();
            match path.strip_suffix('/') {
                Some(_) => files.retain(|name, _| !name.starts_with(path.as_str())),
                None => drop(files.remove(path)),
            }
            if files.len() == before {
                return Err(format!("there is nothing at {path}"));
            }
        }
    }
    Ok(())
}

/// The fleet repo over it.
#[derive(Debug)]
pub(super) struct Repo {
    pub(super) forge: Forge,
    trees: BTreeMap<CommitId, Tree>,
    next_look: Option<Timestamp>,
}

impl Repo {
    pub(super) fn new(forge: Forge) -> Self {
        Self {
            forge,
            trees: BTreeMap::new(),
            next_look: None,
        }
    }

    fn source(&self, commit: &CommitId) -> Option<SourceTree> {
        let files = self.forge.files(commit)?;
        Some(source_tree(&files))
    }
}

impl FleetRepo for Repo {
    async fn look(
        &mut self,
        hints: &[String],
        store: &Store,
        health: &Health,
        now: Timestamp,
    ) -> Result<News, StoreError> {
        self.next_look = now.checked_add(SignedDuration::from_secs(POLL_SECS)).ok();
        if self.forge.is_down() {
            health.set("repository", "the forge is down".to_owned());
            return Ok(News::default());
        }
        health.clear("repository");
        let cursor = store.cursor(REPO, BRANCH).await?;
        let tip = self.forge.state().tip().map(|made| made.commit.id.clone());
        if cursor == tip {
            return Ok(News {
                handled: hints.to_vec(),
                ..News::default()
            });
        }
        let mut delivered = BTreeSet::new();
        let (found, left) = {
            let waiting = store.waiting_deliveries().await?;
            let all: Vec<CommitId> = self.forge.commits().into_keys().collect();
            for commit in all {
                if cursor.as_ref() != Some(&commit) && store.delivery(&commit).await?.is_some() {
                    delivered.insert(commit);
                }
            }
            let state = self.forge.state();
            let Some((tip, place)) = state.tip().zip(state.line.last()) else {
                return Ok(News::default());
            };
            let read = cursor.as_ref().map(|cursor| state.place(cursor));
            let history = state.history(*place);
            let before = read.flatten().map(|at| state.history(at)).unwrap_or_default();
            let known = match read {
                None => Known::None,
                Some(None) => Known::Missing,
                Some(Some(at)) if history.contains(&at) => Known::Behind,
                Some(Some(_)) => Known::Aside,
            };
            let since = history
                .difference(&before)
                .filter_map(|at| state.commits.get(*at));
            let has = |commit: &CommitId| state.place(commit).is_some_and(|at| history.contains(&at));
            let gone = waiting
                .into_iter()
                .map(|delivery| delivery.commit)
                .filter(|commit| !has(commit));
            let left = Left {
                of: None,
                head: tip.commit.id.clone(),
                commits: gone.collect(),
            };
            let line = Line {
                tip: tip.commit.clone(),
                since: since.map(|made| made.commit.clone()).collect(),
                known,
            };
            (Found::Branch(line), left)
        };
        let (commits, head) = match news::judge(found, cursor.as_ref(), &delivered, &[]) {
            Judged::New(commits, head) => (commits, Some(head)),
            Judged::SetBack(head) => (Vec::new(), Some(head)),
            Judged::Gone | Judged::Nothing => (Vec::new(), None),
        };
        Ok(News {
            handled: hints.to_vec(),
            commits,
            left: Vec::from_iter((!left.commits.is_empty()).then_some(left)),
            cursors: Vec::from_iter(head.map(|commit| Cursor {
                repo: REPO.to_owned(),
                branch: BRANCH.to_owned(),
                commit,
            })),
        })
    }

    fn look_again(&mut self) {}

    fn stored(&mut self) {}

    /// Simulated commits are not signed.
    async fn brought(&mut self, _base: &Made, of: &Made, _health: &Health) -> Option<Vec<Brought>> {
        let commit = BroughtCommit {
            id: of.commit.clone(),
            at: 0,
            proof: Proof::Unsigned,
            clean_merge: false,
        };
        Some(vec![Brought {
            commits: vec![commit],
            more: false,
        }])
    }

    fn next_look(&self) -> Option<Timestamp> {
        self.next_look
    }

    fn notes_are_due(&self) {}

    async fn tree(&mut self, of: &Made, _: &Health) -> Option<Tree> {
        let commit = &of.commit;
        if let Some(tree) = self.trees.get(commit) {
            return Some(tree.clone());
        }
        let composed = compose_tree(&self.source(commit)?, None, Some(BRANCH));
        let tree = Tree::of(composed.map(Arc::new));
        self.trees.insert(commit.clone(), tree.clone());
        Some(tree)
    }

    async fn former(
        &mut self,
        (now, then): (&Made, &Made),
        module: &ModuleName,
        wanted: &Wanted,
        _: &Health,
    ) -> Option<Former> {
        let (now, then) = (self.source(&now.commit)?, self.source(&then.commit)?);
        let opener: Arc<dyn OpensSecrets> = Arc::new(Unopened);
        let made = former(&now, &then, (module, &wanted.nodes), &opener).into_iter();
        Some(made.map(|(id, made)| ((module.clone(), id), made)).collect())
    }

    fn forget_but(&mut self, needed: &BTreeSet<&CommitId>) {
        self.trees.retain(|commit, _| needed.contains(commit));
    }
}
