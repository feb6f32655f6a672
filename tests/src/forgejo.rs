//! A double of Forgejo: its API as far as it is used, its webhooks with their headers, real git over smart HTTP behind it.
//!
//! It is stateful and strict: a wrong token, a scope that is missing, a field that the real one does not know or a text
//! that is too long is refused; lists come in pages; what a person does here sends the webhooks that it sends there, at
//! most once, in no promised order. It can be down, and lose or double what it sends.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::routing::any;
use meshplan_reconciler::edge::clock::Clock;
use meshplan_reconciler::edge::git_server;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

mod api;
mod git;
mod hooks;
mod shapes;

/// The owner of the fleet's repository.
pub const OWNER: &str = "acme";
/// Its name.
pub const NAME: &str = "fleet";
/// Whose token the reconciler has.
pub const BOT: &str = "mesh-bot";
/// The password of everybody.
const PASSWORD: &str = "s3cr3t-of-all";

/// How a pull request is merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// A commit with two parents.
    Merge,
    /// One commit of all.
    Squash,
    /// Each commit once more.
    Rebase,
    /// The branch moves to the head.
    FastForward,
}

/// What becomes of webhooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Posting {
    /// Each is sent once.
    #[default]
    Once,
    /// None is sent.
    Lost,
    /// Each is sent twice.
    Twice,
}

#[derive(Debug, Clone)]
struct Person {
    id: u64,
    /// Of the fleet's repository: `none`, `read`, `write`, `admin`.
    permission: String,
}

#[derive(Debug, Clone)]
struct Token {
    login: String,
    scopes: BTreeSet<String>,
}

#[derive(Debug, Clone)]
struct PullRow {
    number: u64,
    author: String,
    title: String,
    body: String,
    /// The branch that it comes from.
    from: String,
    /// The fork that it comes from.
    fork: Option<String>,
    head: String,
    /// Where it left the branch; it stays once it is merged.
    fork_point: String,
    open: bool,
    /// What its merge made, when, and by whom.
    merged: Option<(String, String, String)>,
}

#[derive(Debug, Clone)]
struct CommentRow {
    id: u64,
    number: u64,
    author: String,
    body: String,
    created: String,
    updated: String,
}

#[derive(Debug, Clone)]
struct ReviewRow {
    number: u64,
    by: String,
    /// `APPROVED`, `REQUEST_CHANGES`, `COMMENT`.
    says: String,
    commit: String,
    official: bool,
    dismissed: bool,
}

/// A status as it was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusRow {
    /// Of which commit.
    pub commit: String,
    /// Which.
    pub context: String,
    /// What it says.
    pub state: String,
    /// In words.
    pub description: String,
}

#[derive(Debug, Clone)]
struct Hook {
    url: String,
    secret: String,
    events: BTreeSet<String>,
}

struct State {
    root: PathBuf,
    address: SocketAddr,
    people: BTreeMap<String, Person>,
    tokens: BTreeMap<String, Token>,
    pulls: BTreeMap<u64, PullRow>,
    comments: BTreeMap<u64, CommentRow>,
    statuses: Vec<StatusRow>,
    reviews: Vec<ReviewRow>,
    hooks: Vec<Hook>,
    posting: Posting,
    down: bool,
    locked: BTreeSet<u64>,
    /// The most of a list on one page.
    page: usize,
    next_id: u64,
    calls: Vec<String>,
    posted: usize,
}

/// The double. Dropped, it is served no more.
pub struct Forgejo {
    state: Arc<Shared>,
    // Held for what runs on it.
    _runtime: Runtime,
}

impl std::fmt::Debug for Forgejo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Forgejo({})", self.locked().address)
    }
}

struct Shared {
    state: Mutex<State>,
    client: reqwest::Client,
    runtime: tokio::runtime::Handle,
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn repository(&self) -> PathBuf {
        self.root.join(OWNER).join(format!("{NAME}.git"))
    }

    fn person(&self, login: &str) -> Result<&Person> {
        self.people
            .get(login)
            .with_context(|| format!("{login} is nobody here"))
    }

    fn pull(&mut self, number: u64) -> Result<&mut PullRow> {
        self.pulls
            .get_mut(&number)
            .with_context(|| format!("there is no pull request {number}"))
    }
}

/// As the forge writes times: to the second.
fn now() -> String {
    Clock::default().now().strftime("%FT%TZ").to_string()
}

impl Forgejo {
    /// Serves `root`, which is made, on a free port of loopback: the empty repository `acme/fleet`, `dana` and `ravi` who
    /// may write, `mallory` who may not, and the bot.
    ///
    /// # Errors
    /// No port, no folder, no git.
    pub fn start(root: &Path) -> Result<Self> {
        std::fs::create_dir_all(root).context("the forge's folder can be made")?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .tls_certs_only([])
            // DELIVER_TIMEOUT
            .timeout(std::time::Duration::from_secs(5))
            .build()?;
        let people = [
            (BOT, 77, "admin"),
            ("dana", 41, "write"),
            ("ravi", 42, "write"),
            ("mallory", 66, "read"),
        ];
        let people = people.map(|(login, id, permission)| {
            let permission = permission.to_owned();
            (login.to_owned(), Person { id, permission })
        });
        let state = State {
            root: root.to_owned(),
            address: listener.local_addr()?,
            people: people.into(),
            tokens: BTreeMap::new(),
            pulls: BTreeMap::new(),
            comments: BTreeMap::new(),
            statuses: Vec::new(),
            reviews: Vec::new(),
            hooks: Vec::new(),
            posting: Posting::Once,
            down: false,
            locked: BTreeSet::new(),
            page: 50,
            next_id: 5500,
            calls: Vec::new(),
            posted: 0,
        };
        git::create(&state.repository())?;
        let state = Arc::new(Shared {
            state: Mutex::new(state),
            client,
            runtime: runtime.handle().clone(),
        });
        let git = git_server::router(root.to_owned(), git_server::Options::default());
        let git = git.layer(axum::middleware::from_fn_with_state(
            Arc::clone(&state),
            git::gate,
        ));
        let app = Router::new()
            .route("/api/v1/{*path}", any(api::answer))
            .with_state(Arc::clone(&state))
            .merge(git);
        runtime.spawn(async move { axum::serve(listener, app).await });
        Ok(Self {
            state,
            _runtime: runtime,
        })
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    // --- what an administrator does -------------------------------------------------------------------------------

    /// The address of the fleet's repository, as its page shows it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/{OWNER}/{NAME}.git", self.locked().address)
    }

    /// The same with somebody's name and password in it, for git's own client.
    #[must_use]
    pub fn url_of(&self, login: &str) -> String {
        format!(
            "http://{login}:{PASSWORD}@{}/{OWNER}/{NAME}.git",
            self.locked().address
        )
    }

    /// A token of somebody with these scopes.
    pub fn token(&self, login: &str, scopes: &[&str]) -> String {
        let mut state = self.locked();
        let token = format!("t0ken-{login}-{}", state.id());
        let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        let login = login.to_owned();
        state.tokens.insert(token.clone(), Token { login, scopes });
        token
    }

    /// What somebody may do from now on: `none`, `read`, `write`, `admin`.
    ///
    /// # Errors
    /// There is nobody of that name.
    pub fn permit(&self, login: &str, permission: &str) -> Result<()> {
        let mut state = self.locked();
        let person = state.people.get_mut(login).context("nobody of that name")?;
        permission.clone_into(&mut person.permission);
        Ok(())
    }

    /// Makes a webhook, as its page does.
    pub fn hook(&self, url: &str, secret: &str, events: &[&str]) {
        self.locked().hooks.push(Hook {
            url: url.to_owned(),
            secret: secret.to_owned(),
            events: events.iter().map(|event| (*event).to_owned()).collect(),
        });
    }

    /// What becomes of webhooks from now on.
    pub fn posts(&self, posting: Posting) {
        self.locked().posting = posting;
    }

    /// Whether API and git answer.
    pub fn set_down(&self, down: bool) {
        self.locked().down = down;
    }

    /// A page of a list has at most so many.
    pub fn page(&self, page: usize) {
        self.locked().page = page;
    }

    /// Locks a pull request's conversation to who may not write.
    pub fn lock(&self, number: u64) {
        self.locked().locked.insert(number);
    }

    // --- what a person does ---------------------------------------------------------------------------------------

    /// Opens a pull request of a branch that was pushed.
    ///
    /// # Errors
    /// There is no such branch, or nobody of that name.
    pub fn open_pull(&self, login: &str, branch: &str, title: &str) -> Result<u64> {
        let head = git::resolve(&self.locked().repository(), &format!("refs/heads/{branch}"))?;
        self.opened(login, branch, None, head, title)
    }

    /// Opens a pull request of a branch of a fork, whose commits come from `clone`.
    ///
    /// # Errors
    /// There is nobody of that name, or git says no.
    pub fn open_pull_from_fork(&self, login: &str, clone: &Path, branch: &str, title: &str) -> Result<u64> {
        let repository = self.locked().repository();
        let head = git::resolve(clone, &format!("refs/heads/{branch}"))?;
        git::fetch(&repository, clone, &head)?;
        self.opened(login, branch, Some(format!("{login}/{NAME}")), head, title)
    }

    fn opened(
        &self,
        login: &str,
        branch: &str,
        fork: Option<String>,
        head: String,
        title: &str,
    ) -> Result<u64> {
        let mut state = self.locked();
        state.person(login)?;
        let number = state.pulls.keys().next_back().map_or(1, |last| last + 1);
        git::set(&state.repository(), &format!("refs/pull/{number}/head"), &head)?;
        let pull = PullRow {
            number,
            author: login.to_owned(),
            title: title.to_owned(),
            body: String::new(),
            from: branch.to_owned(),
            fork,
            fork_point: git::fork_point(&state.repository(), &head)?,
            head,
            open: true,
            merged: None,
        };
        state.pulls.insert(number, pull);
        hooks::pull(&self.state, &mut state, number, "opened", "pull_request", login);
        Ok(number)
    }

    /// Writes a comment; gives its id.
    ///
    /// # Errors
    /// There is no such pull request, or nobody of that name.
    pub fn comment(&self, login: &str, number: u64, body: &str) -> Result<u64> {
        let mut state = self.locked();
        state.person(login)?;
        state.pull(number)?;
        Ok(api::write_comment(&self.state, &mut state, login, number, body).id)
    }

    /// Changes a comment, of anybody.
    ///
    /// # Errors
    /// There is none.
    pub fn edit_comment(&self, login: &str, id: u64, body: &str) -> Result<()> {
        let mut state = self.locked();
        let comment = state.comments.get_mut(&id).context("no such comment")?;
        body.clone_into(&mut comment.body);
        // Later than it was written, also where that was within this second.
        comment.updated = format!("{}.5Z", now().trim_end_matches('Z'));
        hooks::comment(&self.state, &mut state, id, "edited", login);
        Ok(())
    }

    /// Takes a comment away.
    pub fn delete_comment(&self, id: u64) {
        self.locked().comments.remove(&id);
    }

    /// Reviews a pull request as it stands: `APPROVED`, `REQUEST_CHANGES` or `COMMENT`.
    ///
    /// # Errors
    /// There is none, nobody of that name, or it is one's own.
    pub fn review(&self, login: &str, number: u64, says: &str) -> Result<()> {
        let mut state = self.locked();
        let official = matches!(state.person(login)?.permission.as_str(), "write" | "admin");
        let pull = state.pull(number)?.clone();
        ensure!(
            pull.author != login || says == "COMMENT",
            "approve your own pull is not allowed"
        );
        state.reviews.push(ReviewRow {
            number,
            by: login.to_owned(),
            says: says.to_owned(),
            commit: pull.head,
            official,
            dismissed: false,
        });
        let kind = match says {
            "APPROVED" => "pull_request_review_approved",
            "REQUEST_CHANGES" => "pull_request_review_rejected",
            _ => "pull_request_review_comment",
        };
        hooks::pull(&self.state, &mut state, number, "reviewed", kind, login);
        Ok(())
    }

    /// Sets a status, as a CI of somebody else does.
    pub fn set_status(&self, commit: &str, context: &str, says: &str) {
        self.locked().statuses.push(StatusRow {
            commit: commit.to_owned(),
            context: context.to_owned(),
            state: says.to_owned(),
            description: String::new(),
        });
    }

    /// Merges a pull request; gives what the branch is at then.
    ///
    /// # Errors
    /// It is not open, there are conflicts, or the person may not.
    pub fn merge(&self, login: &str, number: u64, way: Way) -> Result<String> {
        let mut state = self.locked();
        ensure!(
            matches!(state.person(login)?.permission.as_str(), "write" | "admin"),
            "{login} may not merge"
        );
        let pull = state.pull(number)?.clone();
        ensure!(pull.open, "{number} is closed");
        let repository = state.repository();
        let before = git::resolve(&repository, "refs/heads/main")?;
        let after = git::merge(&repository, &before, &pull.head, way, &pull.title)?;
        git::set(&repository, "refs/heads/main", &after)?;
        let row = state.pull(number)?;
        row.open = false;
        row.merged = Some((after.clone(), now(), login.to_owned()));
        hooks::push(&self.state, &mut state, "refs/heads/main", &before, &after, login);
        hooks::pull(&self.state, &mut state, number, "closed", "pull_request", login);
        Ok(after)
    }

    // --- what can be seen -----------------------------------------------------------------------------------------

    /// The comments of a pull request by somebody, oldest first: id and text.
    #[must_use]
    pub fn comments_by(&self, login: &str, number: u64) -> Vec<(u64, String)> {
        let state = self.locked();
        let of = state
            .comments
            .values()
            .filter(|c| c.number == number && c.author == login);
        of.map(|c| (c.id, c.body.clone())).collect()
    }

    /// The statuses of a commit, as they were set, oldest first.
    #[must_use]
    pub fn statuses(&self, commit: &str) -> Vec<StatusRow> {
        let state = self.locked();
        state
            .statuses
            .iter()
            .filter(|s| s.commit == commit)
            .cloned()
            .collect()
    }

    /// The newest status of a context on a commit.
    #[must_use]
    pub fn status(&self, commit: &str, context: &str) -> Option<StatusRow> {
        self.statuses(commit)
            .into_iter()
            .rfind(|status| status.context == context)
    }

    /// The requests to the API since the last time, as method, path and answer.
    #[must_use]
    pub fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut self.locked().calls)
    }

    /// How many webhooks were sent.
    #[must_use]
    pub fn posted(&self) -> usize {
        self.locked().posted
    }

    /// The head of a pull request.
    ///
    /// # Errors
    /// There is none.
    pub fn head(&self, number: u64) -> Result<String> {
        Ok(self.locked().pull(number)?.head.clone())
    }

    /// The numbers of pull requests whose title begins so.
    #[must_use]
    pub fn pulls_called(&self, title: &str) -> Vec<u64> {
        let state = self.locked();
        let called = state.pulls.values().filter(|pull| pull.title.starts_with(title));
        called.map(|pull| pull.number).collect()
    }
}
