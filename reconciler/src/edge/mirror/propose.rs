//! Admission at a forge without pull requests (FG-5, `bare`): a branch that proposes a file, and merging it.

use git2::build::TreeUpdateBuilder;
use git2::{Oid, Repository, Signature, Time};
use jiff::Timestamp;
use meshplan_schemas::ident::CommitId;

use super::{FetchError, HEAD_REF, Mirror, Pushed, commit_id, push_ref, remote};

/// How often a merge is made again because the branch moved under it.
const TRIES: usize = 5;

/// In whose name a commit is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// Name.
    pub name: String,
    /// Address; may be empty.
    pub email: String,
}

impl Person {
    /// The reconciler itself.
    #[must_use]
    pub fn us() -> Self {
        Self {
            name: "meshplan".to_owned(),
            email: String::new(),
        }
    }
}

/// A commit that a branch takes back.
#[derive(Debug, Clone)]
pub struct Reversal<'r> {
    /// The branch, without `refs/heads/`.
    pub branch: &'r str,
    /// The commit.
    pub commit: &'r CommitId,
    /// What stood before it.
    pub former: &'r CommitId,
    /// The message of the commit that takes it back.
    pub message: &'r str,
    /// In whose name.
    pub author: &'r Person,
    /// When.
    pub at: Timestamp,
}

/// A file that a branch proposes.
#[derive(Debug, Clone)]
pub struct Proposal<'p> {
    /// The branch, without `refs/heads/`.
    pub branch: &'p str,
    /// Where the file goes.
    pub path: &'p str,
    /// What is in it.
    pub contents: &'p [u8],
    /// The commit's message.
    pub message: &'p str,
    /// In whose name.
    pub author: &'p Person,
    /// When.
    pub at: Timestamp,
}

/// Why a branch was not proposed or merged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// The remote could not be talked to.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// There is no such branch.
    #[error("{url} has no branch `{branch}`: see `git ls-remote` for those that it has")]
    NoBranch {
        /// Where.
        url: String,
        /// Which.
        branch: String,
    },
    /// It is no name for a branch, or the fleet branch itself.
    #[error("`{0}` cannot be the name of a branch for a proposal")]
    Name(String),
    /// Both sides changed the same lines.
    #[error("`{branch}` and the fleet branch both changed {}: merge them by hand in a clone and push", paths.join(", "))]
    Conflict {
        /// The branch.
        branch: String,
        /// The files.
        paths: Vec<String>,
    },
    /// The branch moved each time.
    #[error("the fleet branch at {url} moved {TRIES} times while `{branch}` was being merged: try again")]
    Moved {
        /// Where.
        url: String,
        /// Which.
        branch: String,
    },
    /// The remote does not take it.
    #[error(
        "{url} does not take the push to `{branch}`: {why}. Check that our user may push there (branch protection, hooks)"
    )]
    Refused {
        /// Where.
        url: String,
        /// Which branch.
        branch: String,
        /// Its words.
        why: String,
    },
    /// Git itself.
    #[error("git: {0}")]
    Git(String),
}

impl From<git2::Error> for MergeError {
    fn from(error: git2::Error) -> Self {
        Self::Git(error.message().to_owned())
    }
}

fn signature(person: &Person, at: Timestamp) -> Result<Signature<'static>, git2::Error> {
    let email = if person.email.is_empty() {
        "nobody@localhost"
    } else {
        &person.email
    };
    Signature::new(&person.name, email, &Time::new(at.as_second(), 0))
}

impl Mirror {
    /// Puts a file on a branch of its own, on top of the fleet branch (of itself, when it is there already), and
    /// pushes it. Proposing the same again changes nothing.
    ///
    /// # Errors
    /// [`MergeError`].
    pub fn propose_file(&mut self, proposal: &Proposal<'_>) -> Result<CommitId, MergeError> {
        let Proposal {
            branch,
            path,
            contents,
            message,
            author,
            at,
        } = *proposal;
        let name = self.side_ref(branch)?;
        let ours = format!("refs/meshplan/proposal/{branch}");
        for _ in 0..TRIES {
            let fleet = self.remote().branch_ref();
            let found = remote::bring(&self.repo, &self.remote, &[(&name, &ours), (&fleet, HEAD_REF)])?;
            let there = found.first().copied().flatten();
            let tip = there
                .or(found.get(1).copied().flatten())
                .ok_or_else(|| self.no_branch(None))?;
            let base = self.repo.find_commit(tip)?;
            let tree = base.tree()?;
            let blob = self.repo.blob(contents)?;
            let same = tree
                .get_path(std::path::Path::new(path))
                .is_ok_and(|entry| entry.id() == blob);
            if same && there.is_some() {
                return Ok(commit_id(tip));
            }
            let mut update = TreeUpdateBuilder::new();
            update.upsert(path, blob, git2::FileMode::Blob);
            let tree = update.create_updated(&self.repo, &tree)?;
            let by = signature(author, at)?;
            let commit = self
                .repo
                .commit(None, &by, &by, message, &self.repo.find_tree(tree)?, &[&base])?;
            match push_ref(&self.repo, &self.remote, commit, &name, there) {
                Pushed::Moved => {}
                done => return self.outcome(done, branch, commit),
            }
        }
        Err(self.moved(branch))
    }

    /// Puts a commit on a branch of its own, on top of the fleet branch, in which all that changed from `former` to `commit`
    /// is as it was, and pushes it; whether there is something to propose. A branch that is there already is left as it is.
    ///
    /// # Errors
    /// [`MergeError`]; [`MergeError::Conflict`] where the fleet branch has gone on changing the same.
    pub fn propose_revert(&mut self, reversal: &Reversal<'_>) -> Result<bool, MergeError> {
        let name = self.side_ref(reversal.branch)?;
        let ours = format!("refs/meshplan/proposal/{}", reversal.branch);
        let fleet = self.remote().branch_ref();
        let oid = |commit: &CommitId| Oid::from_str(commit.as_str());
        let (commit, former) = (oid(reversal.commit)?, oid(reversal.former)?);
        for _ in 0..TRIES {
            let found = remote::bring(&self.repo, &self.remote, &[(&name, &ours), (&fleet, HEAD_REF)])?;
            let tip = found
                .get(1)
                .copied()
                .flatten()
                .ok_or_else(|| self.no_branch(None))?;
            if let Some(there) = found.first().copied().flatten() {
                return Ok(!self.repo.graph_descendant_of(tip, there)? && tip != there);
            }
            let tree = |id: Oid| self.repo.find_commit(id)?.tree();
            let (onto, taken, before) = (tree(tip)?, tree(commit)?, tree(former)?);
            let mut index = self.repo.merge_trees(&taken, &onto, &before, None)?;
            if index.has_conflicts() {
                return Err(conflict(&index, reversal.branch)?);
            }
            let tree = index.write_tree_to(&self.repo)?;
            if tree == onto.id() {
                return Ok(false);
            }
            let by = signature(reversal.author, reversal.at)?;
            let parent = self.repo.find_commit(tip)?;
            let tree = self.repo.find_tree(tree)?;
            let made = self
                .repo
                .commit(None, &by, &by, reversal.message, &tree, &[&parent])?;
            match push_ref(&self.repo, &self.remote, made, &name, None) {
                Pushed::Moved => {}
                done => return self.outcome(done, reversal.branch, made).map(|_| true),
            }
        }
        Err(self.moved(reversal.branch))
    }

    /// Merges a branch of the remote into the fleet branch, as a merge commit of its own, and pushes it; when the
    /// fleet branch moves meanwhile, again on its new tip. Merging what is merged changes nothing, and gives the tip.
    ///
    /// # Errors
    /// [`MergeError`].
    pub fn merge_branch(
        &mut self,
        branch: &str,
        author: &Person,
        at: Timestamp,
    ) -> Result<CommitId, MergeError> {
        let name = self.side_ref(branch)?;
        let ours = format!("refs/meshplan/proposal/{branch}");
        let fleet = self.remote().branch_ref();
        for _ in 0..TRIES {
            let found = remote::bring(&self.repo, &self.remote, &[(&name, &ours), (&fleet, HEAD_REF)])?;
            let theirs = found
                .first()
                .copied()
                .flatten()
                .ok_or_else(|| self.no_branch(Some(branch)))?;
            let tip = found
                .get(1)
                .copied()
                .flatten()
                .ok_or_else(|| self.no_branch(None))?;
            if tip == theirs || self.repo.graph_descendant_of(tip, theirs)? {
                return Ok(commit_id(tip));
            }
            let commit = merge(&self.repo, (tip, theirs), branch, &signature(author, at)?)?;
            match push_ref(&self.repo, &self.remote, commit, &fleet, Some(tip)) {
                Pushed::Moved => {}
                done => return self.outcome(done, &self.remote.branch, commit),
            }
        }
        Err(self.moved(branch))
    }

    fn side_ref(&self, branch: &str) -> Result<String, MergeError> {
        let name = format!("refs/heads/{branch}");
        if branch == self.remote.branch || !git2::Reference::is_valid_name(&name) {
            return Err(MergeError::Name(branch.to_owned()));
        }
        Ok(name)
    }

    fn no_branch(&self, branch: Option<&str>) -> MergeError {
        MergeError::NoBranch {
            url: self.remote.shown(),
            branch: branch.unwrap_or(&self.remote.branch).to_owned(),
        }
    }

    fn moved(&self, branch: &str) -> MergeError {
        MergeError::Moved {
            url: self.remote.shown(),
            branch: branch.to_owned(),
        }
    }

    fn outcome(&self, pushed: Pushed, branch: &str, commit: Oid) -> Result<CommitId, MergeError> {
        match pushed {
            Pushed::Done => Ok(commit_id(commit)),
            Pushed::Moved => Err(self.moved(branch)),
            Pushed::Failed(e) => Err(e.into()),
            Pushed::Refused(why) => Err(MergeError::Refused {
                url: self.remote.shown(),
                branch: branch.to_owned(),
                why,
            }),
        }
    }
}

fn merge(
    repo: &Repository,
    (tip, theirs): (Oid, Oid),
    branch: &str,
    by: &Signature<'_>,
) -> Result<Oid, MergeError> {
    let (tip, theirs) = (repo.find_commit(tip)?, repo.find_commit(theirs)?);
    let mut index = repo.merge_commits(&tip, &theirs, None)?;
    if index.has_conflicts() {
        return Err(conflict(&index, branch)?);
    }
    let tree = repo.find_tree(index.write_tree_to(repo)?)?;
    let message = format!("Merge branch '{branch}'\n");
    Ok(repo.commit(None, by, by, &message, &tree, &[&tip, &theirs])?)
}

/// The files that both sides changed.
fn conflict(index: &git2::Index, branch: &str) -> Result<MergeError, git2::Error> {
    let mut paths = Vec::new();
    for conflict in index.conflicts()? {
        let conflict = conflict?;
        let side = conflict.our.or(conflict.their).or(conflict.ancestor);
        paths.extend(side.map(|entry| String::from_utf8_lossy(&entry.path).into_owned()));
    }
    Ok(MergeError::Conflict {
        branch: branch.to_owned(),
        paths,
    })
}
