//! What every forge can be asked, and reads back: the seam between the verbs and a forge's own words (FG-1).
//!
//! A dialect makes [`Call`]s and reads answers. It talks to nobody, and knows of no other forge.

use std::fmt::Debug;

use jiff::Timestamp;
use meshplan_schemas::ident::CommitId;

use super::answer::Unreadable;
use super::request::{Call, Manners, Page, encoded};
use super::{Comment, CommitStatus, NewPull, Pull, Review, Team, User, Version};
use crate::config::ForgeKind;
use crate::pure::snapshot::Checked;

/// A forge's API, of one repository.
pub trait Dialect: Debug + Send + Sync {
    /// How it wants to be asked.
    fn manners(&self) -> &'static Manners;

    /// The ref of the base repository at which a pull request's head is found.
    fn head_ref(&self, number: u64) -> String {
        format!("refs/pull/{number}/head")
    }

    /// Who the token is.
    fn me(&self) -> Call {
        Call::get("user".to_owned())
    }

    /// Reads who the token is.
    ///
    /// # Errors
    /// [`Unreadable`].
    fn read_me(&self, body: &[u8]) -> Result<User, Unreadable>;

    /// The open pull requests, a list.
    fn open_pulls(&self) -> Call;

    /// Reads a page of pull requests. One that cannot be read is left out: it hides no other.
    ///
    /// # Errors
    /// [`Unreadable`]: no list.
    fn read_pulls(&self, body: &[u8]) -> Result<Page<Pull>, Unreadable>;

    /// One pull request.
    fn pull(&self, number: u64) -> Call;

    /// Reads one pull request.
    ///
    /// # Errors
    /// [`Unreadable`].
    fn read_pull(&self, body: &[u8]) -> Result<Pull, Unreadable>;

    /// The pull request whose merge made a commit, or those that have to do with it.
    fn pulls_of_commit(&self, commit: &CommitId) -> Call;

    /// Reads what [`Dialect::pulls_of_commit`] brings.
    ///
    /// # Errors
    /// [`Unreadable`].
    fn read_pulls_of_commit(&self, body: &[u8]) -> Result<Vec<Pull>, Unreadable> {
        Ok(self.read_pulls(body)?.items)
    }

    /// The comments of a pull request, a list: all, or at least those that were written or changed since a time. A page of
    /// it is small enough to be read whatever people write.
    fn comments(&self, number: u64, since: Option<Timestamp>) -> Call;

    /// Reads a page of comments.
    ///
    /// # Errors
    /// [`Unreadable`].
    fn read_comments(&self, body: &[u8]) -> Result<Page<Comment>, Unreadable>;

    /// Writes a comment.
    fn comment(&self, number: u64, body: &str) -> Call;

    /// Changes a comment.
    fn edit_comment(&self, number: u64, id: u64, body: &str) -> Call;

    /// Reads a comment that was just written.
    ///
    /// # Errors
    /// [`Unreadable`].
    fn read_comment(&self, body: &[u8]) -> Result<Comment, Unreadable>;

    /// Sets a status.
    fn set_status(&self, status: &CommitStatus) -> Call;

    /// Opens a pull request.
    fn open_pull(&self, new: &NewPull) -> Call;

    /// The reviews of a pull request, a list.
    fn reviews(&self, number: u64) -> Call;

    /// Reads a page of reviews, oldest first.
    ///
    /// # Errors
    /// [`Unreadable`].
    fn read_reviews(&self, body: &[u8]) -> Result<Page<Review>, Unreadable>;

    /// What a pull request's head was and since when, a list, of a forge whose reviews do not say of which head they are.
    fn versions(&self, _number: u64) -> Option<Call> {
        None
    }

    /// Reads a page of versions.
    ///
    /// # Errors
    /// [`Unreadable`].
    fn read_versions(&self, _body: &[u8]) -> Result<Page<Version>, Unreadable> {
        Ok(Page::of(Vec::new()))
    }

    /// The lists in which a commit's checks stand, each with how it is read.
    fn checks(&self, commit: &CommitId) -> Vec<(Call, ReadChecks)>;

    /// What a user may do here.
    fn permission(&self, user: &User) -> Call;

    /// Whether just this user, by number, may write: whoever took over the login of another is not he (B57).
    ///
    /// # Errors
    /// [`Unreadable`].
    fn read_may_write(&self, user: &User, body: &[u8]) -> Result<bool, Unreadable>;

    /// The teams beside the repository, a list, of a forge that asks for a team's members by its number.
    fn teams(&self) -> Option<Call> {
        None
    }

    /// Reads a page of teams.
    ///
    /// # Errors
    /// [`Unreadable`].
    fn read_teams(&self, _body: &[u8]) -> Result<Page<Team>, Unreadable> {
        Ok(Page::of(Vec::new()))
    }

    /// The members of a team, a list. The team is what plans call it; where there is a list of teams, its number in that.
    fn members(&self, team: &str) -> Call;

    /// Reads a page of members. One that cannot be read is left out, and so is in no team.
    ///
    /// # Errors
    /// [`Unreadable`].
    fn read_members(&self, body: &[u8]) -> Result<Page<User>, Unreadable>;
}

/// How a list of checks is read.
pub type ReadChecks = fn(&[u8]) -> Result<Page<Checked>, Unreadable>;

/// The dialect of a kind of forge, of the repository that is named so; none where that is no name there, or the kind has no
/// API.
#[must_use]
pub fn of(kind: ForgeKind, repo: &str) -> Option<Box<dyn Dialect>> {
    match kind {
        ForgeKind::Bare => None,
        ForgeKind::Forgejo => Some(Box::new(super::forgejo::Repo::parse(repo)?)),
        ForgeKind::Github => Some(Box::new(super::github::Repo::parse(repo)?)),
        ForgeKind::Gitlab => Some(Box::new(super::gitlab::Project::parse(repo)?)),
    }
}

/// A time, as queries take it: to the second, never later than it is.
pub(super) fn since_second(at: Timestamp) -> String {
    at.strftime("%FT%TZ").to_string()
}

/// Owner and name of a repository, encoded; none for what is not two words.
pub(super) fn owner_and_name(text: &str) -> Option<(String, String)> {
    let (owner, name) = text.split_once('/')?;
    if owner.is_empty() || name.is_empty() || name.contains('/') {
        return None;
    }
    Some((encoded(owner), encoded(name)))
}
