//! The forge as the rest uses it: a small set of verbs, each one or a few requests (FG-1).
//!
//! Which requests and how answers are read is the [`Dialect`]'s of each kind of forge; that they are made within bounds is
//! [`client`]'s. What is to be said waits in the outbox, and [`carrier`] says it; [`keeper`] sees what is due.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use meshplan_schemas::ident::CommitId;
use tokio::sync::OnceCell;
use url::Url;
use zeroize::Zeroizing;

use super::clock::Clock;
use crate::config::{Forge as Config, ForgeKind};
use crate::pure::forge::answer::Unreadable;
use crate::pure::forge::dialect::{self, Dialect};
use crate::pure::forge::request::{Call, Manners, Page, Read, next};
use crate::pure::forge::{Comment, CommitStatus, NewPull, Pull, Review, Said, StatusState, User, placed};
use crate::pure::snapshot::{Checked, Verdict};
use client::Api;
pub use client::{ClientError, ForgeError};
use teams::Teams;

pub mod carrier;
mod client;
pub mod keeper;
mod teams;

/// The most pages of a list that are read.
const PAGES: u32 = 200;
/// The most bytes of all pages of a list.
const LIST_BYTES: usize = 256 << 20;

/// A forge with an API, and the token for it.
#[derive(Debug)]
pub struct Forge {
    api: Api,
    says: Box<dyn Dialect>,
    kind: ForgeKind,
    me: OnceCell<User>,
    teams: Teams,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The token cannot be read.
    #[error("cannot read forge.token_file {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// There is none in it.
    #[error("{0} is empty: it holds a token of the forge, see docs/forges")]
    Empty(PathBuf),
    /// A repository's name is two words.
    #[error(
        "`forge.repo` is `{0}`: with `forge.token_file` it is `owner/name`, as the forge calls the repository"
    )]
    Repo(String),
    /// A bare repository has no API.
    #[error("`forge.token_file` is for a forge with pull requests, and `forge.kind` is `bare`")]
    Bare,
    /// The API's address does not follow from the repository's.
    #[error(
        "cannot tell where the API is from `forge.url` {0}, which does not end with `forge.repo`: say `forge.api_url`"
    )]
    Address(String),
    /// No client.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl Forge {
    /// The forge of a configuration; none where it names no token.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(config: &Config, clock: Clock) -> Result<Option<Self>, OpenError> {
        let Some(path) = &config.token_file else {
            return Ok(None);
        };
        if config.kind == ForgeKind::Bare {
            return Err(OpenError::Bare);
        }
        let text = std::fs::read_to_string(path).map(Zeroizing::new);
        let text = text.map_err(|source| OpenError::Read {
            path: path.clone(),
            source,
        })?;
        let token = Zeroizing::new(text.trim().to_owned());
        if token.is_empty() {
            return Err(OpenError::Empty(path.clone()));
        }
        let says =
            dialect::of(config.kind, &config.repo).ok_or_else(|| OpenError::Repo(config.repo.clone()))?;
        let base = match &config.api_url {
            Some(url) => url.clone(),
            None => beside(says.manners(), &config.url, &config.repo)
                .ok_or_else(|| OpenError::Address(super::git_transport::shown(&config.url)))?,
        };
        Ok(Some(Self {
            api: Api::new(says.manners(), &base, token, clock)?,
            says,
            kind: config.kind,
            me: OnceCell::new(),
            teams: Teams::default(),
        }))
    }

    /// What is said of another repository of the same forge.
    fn of_component(&self, repo: &str) -> Result<Box<dyn Dialect>, ForgeError> {
        let says = dialect::of(self.kind, repo);
        says.ok_or_else(|| {
            let why = format!("the component `{repo}` is not named as this forge names repositories");
            self.api.odd("a component", why)
        })
    }

    /// How it wants to be asked.
    #[must_use]
    pub fn manners(&self) -> &'static Manners {
        self.says.manners()
    }

    /// The ref at which a pull request's head is found.
    #[must_use]
    pub fn head_ref(&self, number: u64) -> String {
        self.says.head_ref(number)
    }

    /// Who the token is; asked once.
    ///
    /// # Errors
    /// [`ForgeError`].
    pub async fn me(&self) -> Result<&User, ForgeError> {
        let ask = || async {
            let answer = self.api.ask(&self.says.me(), "who the token is").await?;
            Ok(self.says.read_me(&answer.body)?)
        };
        self.me.get_or_try_init(ask).await
    }

    /// A list, page by page to its end.
    async fn list<T>(
        &self,
        first: Call,
        what: &'static str,
        read: impl Fn(&[u8]) -> Result<Page<T>, Unreadable>,
    ) -> Result<Vec<T>, ForgeError> {
        let (mut all, mut seen, mut bytes) = (Vec::new(), 0, 0);
        let mut call = Some(first);
        for _ in 0..PAGES {
            let Some(of_page) = call else { return Ok(all) };
            let answer = self.api.ask(&of_page, what).await?;
            bytes += answer.body.len();
            if bytes > LIST_BYTES {
                return Err(self.api.odd(what, format!("more than {LIST_BYTES} bytes in all")));
            }
            let page = read(&answer.body)?;
            if page.unread > 0 {
                let unread = page.unread;
                tracing::warn!(what, unread, "some cannot be read and are left out");
            }
            seen += page.count;
            let total = page.total.or_else(|| answer.number("x-total-count"));
            let so_far = Read {
                link: answer.header("link"),
                total,
                read: seen,
                page: page.count,
            };
            call = next(&of_page, &so_far);
            all.extend(page.items);
        }
        // Whatever is beyond them would be missing in silence.
        Err(self.api.odd(what, format!("more than {PAGES} pages")))
    }

    /// Every open pull request.
    ///
    /// # Errors
    /// [`ForgeError`].
    pub async fn open_pulls(&self) -> Result<Vec<Pull>, ForgeError> {
        let read = |body: &[u8]| self.says.read_pulls(body);
        self.list(self.says.open_pulls(), "the open pull requests", read)
            .await
    }

    /// One pull request; none where there is none of that number.
    ///
    /// # Errors
    /// [`ForgeError`].
    pub async fn pull_request(&self, number: u64) -> Result<Option<Pull>, ForgeError> {
        let asked = self.api.ask(&self.says.pull(number), "a pull request").await;
        there(asked)?
            .map(|answer| Ok(self.says.read_pull(&answer.body)?))
            .transpose()
    }

    /// The pull request whose merge made a commit; none where none did.
    ///
    /// # Errors
    /// [`ForgeError`].
    pub async fn find_by_commit(&self, commit: &CommitId) -> Result<Option<Pull>, ForgeError> {
        let call = self.says.pulls_of_commit(commit);
        let asked = self.api.ask(&call, "a commit's pull request").await;
        let Some(answer) = there(asked)? else {
            return Ok(None);
        };
        // Believed only where it says itself that just this commit is its merge.
        let made = |pull: &Pull| {
            pull.merged
                .as_ref()
                .is_some_and(|merged| merged.commit == *commit)
        };
        let pulls = self.says.read_pulls_of_commit(&answer.body)?;
        Ok(pulls.into_iter().find(made))
    }

    /// The comments of a pull request, oldest first: all, or at least those that were written or changed since a time.
    ///
    /// # Errors
    /// [`ForgeError`].
    pub async fn comments(&self, number: u64, since: Option<Timestamp>) -> Result<Vec<Comment>, ForgeError> {
        let read = |body: &[u8]| self.says.read_comments(body);
        let call = self.says.comments(number, since);
        self.list(call, "the comments of a pull request", read).await
    }

    /// Sets a commit's status.
    ///
    /// # Errors
    /// [`ForgeError`].
    pub async fn set_status(&self, status: &CommitStatus) -> Result<(), ForgeError> {
        let what = "a commit's status";
        let repo = status.repo.as_deref();
        let other = repo.map(|repo| self.of_component(repo)).transpose()?;
        let says = other.as_ref().unwrap_or(&self.says);
        match self.api.ask(&says.set_status(status), what).await {
            // One that says it already is not set again: so it is as it shall be, or somebody else has moved it on.
            Err(ForgeError::There { .. }) => {
                let named = [status.context.clone()];
                let wanted = match status.state {
                    StatusState::Pending => Verdict::Running,
                    StatusState::Success => Verdict::Passed,
                    StatusState::Failure | StatusState::Error => Verdict::Failed,
                };
                let there = self.checks(repo, &status.commit, &named).await?;
                match there.iter().any(|check| check.verdict == wanted) {
                    true => Ok(()),
                    false => Err(self.api.odd(what, "that it cannot become that".to_owned())),
                }
            }
            done => done.map(drop),
        }
    }

    /// Makes a comment of ours stand as it is said, and gives its id: the one that is `known`, else the first of ours with
    /// its marker, else a new one (also in place of one that a person deleted). One that stands so already is left alone.
    ///
    /// # Errors
    /// [`ForgeError`].
    pub async fn upsert_comment(&self, said: &Said, known: Option<u64>) -> Result<u64, ForgeError> {
        let mut at = known;
        if at.is_none() {
            let me = self.me().await?.id;
            let ours = |comment: &&Comment| {
                comment.author.as_ref().is_some_and(|author| author.id == me)
                    && comment.body.starts_with(&said.marker)
            };
            let comments = self.comments(said.number, None).await?;
            if let Some(comment) = comments.iter().find(ours) {
                if comment.body == said.body {
                    return Ok(comment.id);
                }
                at = Some(comment.id);
            }
        }
        if let Some(id) = at {
            match self
                .api
                .ask(
                    &self.says.edit_comment(said.number, id, &said.body),
                    "an edit of a comment",
                )
                .await
            {
                Ok(answer) if answer.status.as_u16() == 204 => {
                    return Err(self.api.odd(
                        "an edit of a comment",
                        "that it is of a kind that is not edited".to_owned(),
                    ));
                }
                Ok(_) => return Ok(id),
                Err(ForgeError::Missing { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let answer = self
            .api
            .ask(&self.says.comment(said.number, &said.body), "a comment")
            .await?;
        Ok(self.says.read_comment(&answer.body)?.id)
    }

    /// Opens a pull request; one from the same branch that stands open already is left as it is.
    ///
    /// # Errors
    /// [`ForgeError`].
    pub async fn open_pull_request(&self, new: &NewPull) -> Result<(), ForgeError> {
        match self
            .api
            .ask(&self.says.open_pull(new), "a pull request of ours")
            .await
        {
            Ok(_) | Err(ForgeError::There { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// All reviews of a pull request, oldest first.
    ///
    /// # Errors
    /// [`ForgeError`].
    pub async fn reviews(&self, number: u64) -> Result<Vec<Review>, ForgeError> {
        let read = |body: &[u8]| self.says.read_reviews(body);
        let what = "the reviews of a pull request";
        let reviews = self.list(self.says.reviews(number), what, read).await?;
        let Some(versions) = self.says.versions(number) else {
            return Ok(reviews);
        };
        let read = |body: &[u8]| self.says.read_versions(body);
        let versions = self
            .list(versions, "the versions of a pull request", read)
            .await?;
        Ok(placed(reviews, &versions))
    }

    /// What the checks of a commit that are named say; a name may stand there twice. `repo`: the component that it is of.
    ///
    /// # Errors
    /// [`ForgeError`].
    pub async fn checks(
        &self,
        repo: Option<&str>,
        commit: &CommitId,
        named: &[String],
    ) -> Result<Vec<Checked>, ForgeError> {
        let mut checks: Vec<Checked> = Vec::new();
        let mut refused = None;
        let other = repo.map(|repo| self.of_component(repo)).transpose()?;
        let says = other.as_ref().unwrap_or(&self.says);
        for (call, read) in says.checks(commit) {
            match self.list(call, "the checks of a commit", read).await {
                Ok(of) => checks.extend(of.into_iter().filter(|check| named.contains(&check.name))),
                // Where the token may read but one of the places, that is enough as long as all stand there.
                Err(error @ ForgeError::Refused { .. }) => refused = Some(error),
                Err(ForgeError::Missing { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let all = named
            .iter()
            .all(|name| checks.iter().any(|check| check.name == *name));
        match refused {
            Some(error) if !all => Err(error),
            _ => Ok(checks),
        }
    }

    /// Whether the forge confirms that somebody may write to the repository.
    ///
    /// # Errors
    /// [`ForgeError`].
    pub async fn may_write(&self, user: &User) -> Result<bool, ForgeError> {
        let asked = self
            .api
            .ask(&self.says.permission(user), "what a person may do")
            .await;
        match there(asked)? {
            Some(answer) => Ok(self.says.read_may_write(user, &answer.body)?),
            None => Ok(false),
        }
    }
}

impl ForgeError {
    /// Not before so long, as the forge asked.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Later { after, .. } => *after,
            _ => None,
        }
    }

    /// Whether whatever is asked next would fail alike: the forge as a whole does not answer.
    #[must_use]
    pub fn is_later(&self) -> bool {
        matches!(self, Self::Later { .. })
    }
}

/// What is not there is no error.
fn there(asked: Result<client::Answer, ForgeError>) -> Result<Option<client::Answer>, ForgeError> {
    match asked {
        Ok(answer) => Ok(Some(answer)),
        Err(ForgeError::Missing { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The API's address beside a repository's: `https://host/api/v1` of `https://host/owner/name.git`.
fn beside(manners: &Manners, url: &str, repo: &str) -> Option<String> {
    let mut url = Url::parse(url).ok()?;
    if !matches!(url.scheme(), "http" | "https") {
        return None;
    }
    let path = url.path().trim_end_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path);
    let root = path.strip_suffix(&format!("/{repo}"))?.to_owned();
    let (below, elsewhere) = manners.api;
    if let Some((_, api)) = elsewhere.iter().find(|(host, _)| url.host_str() == Some(host)) {
        return Some((*api).to_owned());
    }
    url.set_username("").ok()?;
    url.set_password(None).ok()?;
    url.set_query(None);
    url.set_path(&format!("{root}/{below}"));
    Some(url.to_string())
}

#[cfg(test)]
mod tests;
