//! Doubles of forges: their APIs as far as they are used, their webhooks with their headers, real git over smart HTTP behind
//! them.
//!
//! A double is stateful and strict: a wrong token, a scope that is missing, a field that the real one does not know or a text
//! that is too long is refused; lists come in pages; what a person does here sends the webhooks that it sends there, at most
//! once, in no promised order. It can be down, and lose or double what it sends. What people do and see is the same for all;
//! what each forge is asked and answers stands in its own module.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use axum::Router;
use axum::routing::any;
use meshplan_reconciler::edge::clock::Clock;
use meshplan_reconciler::edge::git_server;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

mod api;
mod brand;
mod exchange;
mod forgejo;
mod git;
mod github;
mod gitlab;
mod people;
mod post;
mod seen;
mod teams;

pub use brand::Brand;
pub use exchange::Exchange;

/// The owner of the fleet's repository.
pub const OWNER: &str = "acme";
/// Its name.
pub const NAME: &str = "fleet";
/// Whose token the reconciler has.
pub const BOT: &str = "mesh-bot";
/// The password of everybody.
const PASSWORD: &str = "s3cr3t-of-all";

/// What a review says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    /// Yes.
    Approve,
    /// No.
    Refuse,
    /// Neither.
    Comment,
}

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
    /// Each is sent some seconds after it happened.
    Late,
}

/// How a part of the API is spoilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoilt {
    /// It answers with more than anybody reads.
    TooLong,
    /// It answers with what makes no sense.
    Nonsense,
    /// It answers that there is nothing.
    Gone,
    /// It does not answer.
    Down,
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

/// What a merge made, when, by whom, and how.
type Merged = (String, String, String, Way);

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
    /// Where the branch was when its head came.
    base: String,
    open: bool,
    /// What its heads were, and since when.
    heads: Vec<(String, String)>,
    /// Its merge.
    merged: Option<Merged>,
}

/// A pull request that is opened.
struct New<'a> {
    author: &'a str,
    title: &'a str,
    body: &'a str,
    from: &'a str,
    fork: Option<String>,
    head: String,
}

#[derive(Debug, Clone)]
struct CommentRow {
    // Of an edit by the reconciler, so that too fast a one is seen.
    edited_at: Option<Instant>,
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
    says: Says,
    commit: String,
    official: bool,
    dismissed: bool,
    at: String,
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
    /// Who set it.
    by: String,
    /// Whether it is a run of the forge's own CI, where that is something else.
    run: bool,
}

#[derive(Debug, Clone)]
struct Hook {
    url: String,
    secret: String,
    events: BTreeSet<String>,
}

struct State {
    brand: Brand,
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
    /// Who is in which team.
    teams: BTreeMap<String, BTreeSet<String>>,
    /// Parts of paths, and how what has them is spoilt.
    spoilt: BTreeMap<String, Spoilt>,
    /// The most of a list on one page.
    page: usize,
    next_id: u64,
    calls: Vec<String>,
    /// What was asked and answered in whole; none: it is not kept.
    exchanges: Option<Vec<Exchange>>,
    posted: usize,
    /// When something was written through the API last.
    written_at: Option<Instant>,
}

/// What somebody did.
enum Happening<'a> {
    /// A ref has moved.
    Pushed {
        name: &'a str,
        before: &'a str,
        after: &'a str,
        by: &'a str,
    },
    /// A branch is gone.
    Deleted {
        branch: &'a str,
        before: &'a str,
        by: &'a str,
    },
    /// Something of a pull request.
    Pull {
        number: u64,
        done: Done<'a>,
        by: &'a str,
    },
    /// A comment was written, or changed.
    Spoke { id: u64, edited: bool, by: &'a str },
}

/// What was done to a pull request.
#[derive(Clone, Copy)]
enum Done<'a> {
    Opened,
    /// Its head was this.
    Moved(&'a str),
    Merged,
    Reviewed(Says),
}

/// A webhook.
struct Post {
    /// What it is switched on by.
    switch: &'static str,
    headers: Vec<(String, String)>,
    text: String,
}

/// The double. Dropped, it is served no more.
pub struct Double {
    state: Arc<Shared>,
    // Held for what runs on it.
    _runtime: Runtime,
}

impl std::fmt::Debug for Double {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.locked();
        write!(f, "{:?}({})", state.brand, state.address)
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

    /// What somebody may do: `none`, `read`, `write`, `admin`.
    fn permission(&self, login: &str) -> &str {
        self.people.get(login).map_or("none", |p| p.permission.as_str())
    }

    fn writes(&self, login: &str) -> bool {
        matches!(self.permission(login), "write" | "admin")
    }

    /// Whether a pull request from this branch stands open.
    fn stands_open(&self, from: &str) -> bool {
        self.pulls
            .values()
            .any(|pull| pull.open && pull.from == from && pull.fork.is_none())
    }

    fn main(&self) -> String {
        git::resolve(&self.repository(), "refs/heads/main").unwrap_or_default()
    }

    /// Puts a pull request of a head down, whose objects are there.
    fn add_pull(&mut self, shared: &Arc<Shared>, new: New<'_>) -> Result<u64> {
        let number = self.pulls.keys().next_back().map_or(1, |last| last + 1);
        let repository = self.repository();
        git::set(&repository, &self.brand.head_ref(number), &new.head)?;
        let pull = PullRow {
            number,
            author: new.author.to_owned(),
            title: new.title.to_owned(),
            body: new.body.to_owned(),
            from: new.from.to_owned(),
            fork: new.fork,
            fork_point: git::fork_point(&repository, &new.head)?,
            base: self.main(),
            heads: vec![(new.head.clone(), moment())],
            head: new.head,
            open: true,
            merged: None,
        };
        self.pulls.insert(number, pull);
        let done = Done::Opened;
        let by = new.author;
        post::tell(shared, self, &Happening::Pull { number, done, by });
        Ok(number)
    }

    fn add_comment(&mut self, shared: &Arc<Shared>, login: &str, number: u64, body: &str) -> CommentRow {
        let comment = CommentRow {
            id: self.id(),
            number,
            author: login.to_owned(),
            body: body.to_owned(),
            created: now(),
            updated: now(),
            edited_at: None,
        };
        self.comments.insert(comment.id, comment.clone());
        let (id, edited, by) = (comment.id, false, login);
        post::tell(shared, self, &Happening::Spoke { id, edited, by });
        comment
    }

    fn pull(&mut self, number: u64) -> Result<&mut PullRow> {
        self.pulls
            .get_mut(&number)
            .with_context(|| format!("there is no pull request {number}"))
    }
}

/// A time that can be told from the one before it.
fn moment() -> String {
    Clock::default().now().strftime("%FT%T%.6fZ").to_string()
}

/// As the forge writes times: to the second.
fn now() -> String {
    Clock::default().now().strftime("%FT%TZ").to_string()
}

impl Double {
    /// Serves `root`, which is made, on a free port of loopback: the empty repository `acme/fleet`, `dana` and `ravi` who
    /// may write, `mallory` who may not, and the bot.
    ///
    /// # Errors
    /// No port, no folder, no git.
    pub fn start(brand: Brand, root: &Path) -> Result<Self> {
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
            (BOT, 77, brand.of_bot()),
            ("dana", 41, "write"),
            ("ravi", 42, "write"),
            ("mallory", 66, "read"),
        ];
        let people = people.map(|(login, id, permission)| {
            let permission = permission.to_owned();
            (login.to_owned(), Person { id, permission })
        });
        let state = State {
            brand,
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
            teams: BTreeMap::new(),
            spoilt: BTreeMap::new(),
            page: 100,
            next_id: 5500,
            calls: Vec::new(),
            exchanges: None,
            posted: 0,
            written_at: None,
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
            .route(&format!("{}/{{*path}}", brand.api()), any(api::answer))
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

    /// Spoils what is read of the API under paths that have this in them.
    pub fn spoil(&self, path: &str, how: Spoilt) {
        self.locked().spoilt.insert(path.to_owned(), how);
    }

    /// Nothing is spoilt any more.
    pub fn mend(&self) {
        self.locked().spoilt.clear();
    }

    /// Locks a pull request's conversation to who may not write.
    pub fn lock(&self, number: u64) {
        self.locked().locked.insert(number);
    }
}
