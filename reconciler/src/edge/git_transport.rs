//! How libgit2 speaks to a remote: the smart HTTP protocol of git over our own reqwest and rustls.
//!
//! libgit2 can be built with OpenSSL only; with this it needs no TLS of its own, and fetch and push have one set of
//! CAs, one proxy policy and one set of bounds with everything else. It stands alone because it is the workspace's
//! only unsafe code. Invariant: credentials leave for the host that they were given for and for no other.
//!
//! Everything here blocks and must be called from a blocking thread (`spawn_blocking`), never from an async one: the
//! requests run on a small runtime of this module's own, so that a runtime that ends takes no connection with it.

mod credentials;
mod exchange;

use std::cell::RefCell;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use git2::transport::{Service, SmartSubtransport, SmartSubtransportStream, Transport};
use url::Url;

pub use credentials::{Credentials, shown};
use exchange::Exchange;
pub(crate) use exchange::chain;

/// What one conversation with a remote may cost.
pub(crate) struct Limits {
    /// To open a connection.
    connect: Duration,
    /// Without a byte.
    idle: Duration,
    /// One request, from its first byte to the last of its answer.
    whole: Duration,
    /// Bytes of one answer.
    answer_bytes: u64,
    /// Bytes of one question: a push's pack is kept in memory until it is sent with its length.
    question_bytes: usize,
    /// Redirects of `info/refs`.
    redirects: usize,
}

pub(crate) const LIMITS: Limits = Limits {
    connect: Duration::from_secs(10),
    idle: Duration::from_secs(30),
    whole: Duration::from_secs(600),
    answer_bytes: 4 << 30,
    question_bytes: 512 << 20,
    redirects: 5,
};

/// What went wrong on the way, as the transport saw it: libgit2 carries a text only.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// No answer, or one that says "later" (5xx, 429): try again.
    #[error("{0}")]
    Unreachable(String),
    /// 401 or 403: another try needs other credentials.
    #[error("{0}")]
    Refused(String),
    /// Something answered, and it is no git repository.
    #[error("{0}")]
    NotARepository(String),
    /// An answer that breaks the protocol or a bound.
    #[error("{0}")]
    Protocol(String),
}

/// A call that failed: libgit2's word, and ours where the transport saw the cause.
#[derive(Debug, thiserror::Error)]
#[error("{}", failure.as_ref().map_or_else(|| git.message().to_owned(), ToString::to_string))]
pub struct CallError {
    /// What the transport saw.
    pub failure: Option<Failure>,
    /// What libgit2 made of it.
    pub git: git2::Error,
}

#[derive(Default)]
struct Call {
    credentials: Option<Credentials>,
    failure: Option<Failure>,
}

thread_local! {
    // libgit2 runs a remote's callbacks on the thread that called it; it has no room for our error type.
    static CALL: RefCell<Call> = RefCell::default();
}

/// Runs `work`, in which git2 may talk to one remote, with these credentials.
///
/// # Errors
/// What `work` gave, with the transport's own word beside it.
pub fn call<T>(
    credentials: Option<&Credentials>,
    work: impl FnOnce() -> Result<T, git2::Error>,
) -> Result<T, CallError> {
    install().map_err(|git| CallError { failure: None, git })?;
    CALL.with_borrow_mut(|call| {
        *call = Call {
            credentials: credentials.cloned(),
            failure: None,
        };
    });
    let result = work();
    let failure = CALL.take().failure;
    result.map_err(|git| CallError { failure, git })
}

fn failed(failure: Failure) {
    CALL.with_borrow_mut(|call| call.failure.get_or_insert(failure).clone());
}

/// Makes libgit2 use this transport for `http` and `https`, once a process. Every door of this crate that opens a
/// repository calls it; calling it again does nothing.
///
/// # Errors
/// libgit2 refused the registration.
pub fn install() -> Result<(), git2::Error> {
    static DONE: Mutex<bool> = Mutex::new(false);
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !*done {
        register()?;
        // What we refer to we have just written or read; libgit2 would read every object back from disk to be sure.
        git2::opts::strict_object_creation(false);
        *done = true;
    }
    Ok(())
}

#[expect(
    unsafe_code,
    reason = "git2 marks process-wide settings as unsafe because they must not race; the caller holds the only lock"
)]
fn register() -> Result<(), git2::Error> {
    for scheme in ["http", "https"] {
        // SAFETY: called once, under the lock of `install`, before any repository of this process is opened.
        unsafe {
            git2::transport::register(scheme, |remote| {
                let credentials = CALL.with_borrow(|call| call.credentials.clone());
                Transport::smart(remote, true, Conversation::new(credentials))
            })?;
        }
    }
    for level in [
        git2::ConfigLevel::System,
        git2::ConfigLevel::Global,
        git2::ConfigLevel::XDG,
        git2::ConfigLevel::ProgramData,
    ] {
        // SAFETY: as above. A `url.insteadOf` in somebody's ~/.gitconfig must not lead a fetch elsewhere.
        unsafe { git2::opts::set_search_path(level, "/nonexistent")? };
    }
    // SAFETY: as above. Only objects and refs are read, and no setting of a repository can start a program in
    // libgit2, so an operator may look into the service's mirror.
    unsafe { git2::opts::set_verify_owner_validation(false) }
}

/// One remote, from `info/refs` to the last answer.
struct Conversation {
    credentials: Option<Credentials>,
    /// The configured address, and where `info/refs` was found after redirects.
    found: Mutex<Option<(Url, Url)>>,
}

impl Conversation {
    fn new(credentials: Option<Credentials>) -> Self {
        Self {
            credentials,
            found: Mutex::new(None),
        }
    }

    fn exchange(&self, url: &str, service: Service) -> Result<Exchange, Failure> {
        let (mut url, embedded) = credentials::split(url)?;
        if !url.path().ends_with('/') {
            url.set_path(&format!("{}/", url.path()));
        }
        let credentials = self.credentials.clone().or(embedded);
        let name = match service {
            Service::UploadPackLs | Service::UploadPack => "git-upload-pack",
            Service::ReceivePackLs | Service::ReceivePack => "git-receive-pack",
        };
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        match service {
            Service::UploadPackLs | Service::ReceivePackLs => {
                let (exchange, base) = Exchange::info_refs(&url, name, credentials.as_ref())?;
                *found = Some((url, base));
                Ok(exchange)
            }
            Service::UploadPack | Service::ReceivePack => {
                let base = match found.as_ref() {
                    Some((asked, base)) if *asked == url => base.clone(),
                    _ => url.clone(),
                };
                Exchange::post(&url, &base, name, credentials.as_ref())
            }
        }
    }
}

impl SmartSubtransport for Conversation {
    fn action(&self, url: &str, service: Service) -> Result<Box<dyn SmartSubtransportStream>, git2::Error> {
        match self.exchange(url, service) {
            Ok(exchange) => Ok(Box::new(exchange)),
            Err(failure) => {
                let code = match failure {
                    Failure::Refused(_) => git2::ErrorCode::Auth,
                    Failure::NotARepository(_) => git2::ErrorCode::NotFound,
                    Failure::Unreachable(_) | Failure::Protocol(_) => git2::ErrorCode::GenericError,
                };
                let error = git2::Error::new(code, git2::ErrorClass::Http, failure.to_string());
                failed(failure);
                Err(error)
            }
        }
    }

    fn close(&self) -> Result<(), git2::Error> {
        Ok(())
    }
}

/// The runtime of the requests, and the two clients.
struct Engine {
    runtime: tokio::runtime::Runtime,
    plain: OnceLock<Result<reqwest::Client, String>>,
    secure: OnceLock<Result<reqwest::Client, String>>,
}

fn engine() -> Result<&'static Engine, Failure> {
    static ENGINE: OnceLock<Result<Engine, String>> = OnceLock::new();
    let engine = ENGINE.get_or_init(|| {
        // `main` installs it; a test or a bench that has not would panic at the first client. The second install is
        // refused, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("git-http")
            .enable_all()
            .build()
            .map(|runtime| Engine {
                runtime,
                plain: OnceLock::new(),
                secure: OnceLock::new(),
            })
            .map_err(|e| format!("cannot start a thread for git's requests: {e}"))
    });
    engine.as_ref().map_err(|e| Failure::Protocol(e.clone()))
}

impl Engine {
    /// The client for a scheme. A plain one needs no CA store, so a machine without one can still use `http://`.
    fn client(&self, url: &Url) -> Result<&reqwest::Client, Failure> {
        let build = |builder: reqwest::ClientBuilder| {
            builder
                .user_agent(concat!("git/2.0 (meshplan ", env!("CARGO_PKG_VERSION"), ")"))
                .redirect(reqwest::redirect::Policy::none())
                .connect_timeout(LIMITS.connect)
                .read_timeout(LIMITS.idle)
                .build()
                .map_err(|e| exchange::chain(&e))
        };
        let client = match url.scheme() {
            "https" => self.secure.get_or_init(|| build(reqwest::Client::builder())),
            _ => self
                .plain
                .get_or_init(|| build(reqwest::Client::builder().tls_certs_only([]))),
        };
        client
            .as_ref()
            .map_err(|e| Failure::Protocol(format!("cannot make an HTTP client: {e}")))
    }
}
