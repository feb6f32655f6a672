//! Requests to a forge's API over our own HTTP client: bounded in time and size, never redirected, and silent for as long
//! as the forge asks for.
//!
//! Invariant: the token leaves in one header to one address, and is in no message: whatever the forge answers is
//! cleaned of it by its value before anybody reads it (B53).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use jiff::Timestamp;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{RequestBuilder, StatusCode};
use url::Url;
use zeroize::Zeroizing;

use crate::edge::clock::Clock;
use crate::edge::git_transport::chain;
use crate::pure::forge::answer::{Meaning, Refusal, Unreadable, meaning, words};
use crate::pure::forge::request::{Call, Manners, Method};

/// To open a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// One request, from its first byte to the last of its answer.
const WHOLE: Duration = Duration::from_secs(30);
/// Bytes of one answer.
const ANSWER_BYTES: usize = 16 << 20;
/// For how long a forge may ask to be left alone.
const LONGEST_QUIET: Duration = Duration::from_secs(3600);
/// For how long it is left alone where it says "too many" and not until when.
const QUIET: Duration = Duration::from_secs(60);

/// Why a request brought nothing. What to do about it is part of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForgeError {
    /// No answer, or one that says "later": the same again, not before so long.
    #[error("the forge at {at} does not answer: {why}; tried again by itself")]
    Later {
        /// Where.
        at: String,
        /// What happened.
        why: String,
        /// As the forge asked; none: as the backoff says.
        after: Option<Duration>,
    },
    /// The token is not taken, or may not do this.
    #[error(
        "the forge at {at} refuses {what} ({status}{why}): check the token in `forge.token_file` and what it may do, see \
         docs/forges"
    )]
    Refused {
        /// Where.
        at: String,
        /// What was asked.
        what: String,
        /// Its number.
        status: u16,
        /// Its words.
        why: String,
    },
    /// It stands there already.
    #[error("the forge at {at} has {what} already")]
    There {
        /// Where.
        at: String,
        /// What was asked.
        what: String,
    },
    /// It is not there, or not for us.
    #[error("the forge at {at} has no {what}")]
    Missing {
        /// Where.
        at: String,
        /// What was asked.
        what: String,
    },
    /// An answer that is none of what the forge says to answer.
    #[error("the forge at {at} answers {what} with {why}")]
    Odd {
        /// Where.
        at: String,
        /// What was asked.
        what: String,
        /// What came.
        why: String,
    },
    /// An answer that cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// An answer that is yes.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
    headers: HeaderMap,
}

impl Answer {
    /// A header's text.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// A header's number.
    pub(super) fn number(&self, name: &str) -> Option<usize> {
        self.header(name)?.trim().parse().ok()
    }
}

/// The API of one forge.
pub(super) struct Api {
    manners: &'static Manners,
    base: Url,
    token: Zeroizing<String>,
    client: reqwest::Client,
    clock: Clock,
    quiet_until: Mutex<Option<Timestamp>>,
    /// When something was written last; held while the next one waits for its turn.
    written_at: tokio::sync::Mutex<Option<tokio::time::Instant>>,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Api({})", self.base)
    }
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Not an address.
    #[error("`{0}` is no address of an API: it begins with http:// or https:// and has no user in it")]
    Address(String),
    /// The HTTP client cannot be made.
    #[error("cannot make an HTTP client for the forge's API: {0}")]
    Client(String),
}

impl Api {
    /// The API below `base`, asked as the forge wants to be.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(super) fn new(
        manners: &'static Manners,
        base: &str,
        token: Zeroizing<String>,
        clock: Clock,
    ) -> Result<Self, ClientError> {
        let shown = crate::edge::git_transport::shown(base);
        let no = || ClientError::Address(shown.clone());
        let mut base = Url::parse(base).map_err(|_| no())?;
        let plain = base.username().is_empty() && base.password().is_none() && base.query().is_none();
        if !matches!(base.scheme(), "http" | "https") || !base.has_host() || !plain {
            return Err(no());
        }
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        // A test or a bench that has not installed one would panic; the second install is refused, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("meshplan/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT)
            .timeout(WHOLE);
        if base.scheme() == "http" {
            // Plain HTTP needs no CA store, and a machine without one can still use it.
            builder = builder.tls_certs_only([]);
        }
        let client = builder.build().map_err(|e| ClientError::Client(chain(&e)))?;
        Ok(Self {
            manners,
            base,
            token,
            client,
            clock,
            quiet_until: Mutex::default(),
            written_at: tokio::sync::Mutex::default(),
        })
    }

    /// Asks; gives an answer that is yes.
    pub(super) async fn ask(&self, call: &Call, what: &str) -> Result<Answer, ForgeError> {
        if let Some(left) = self.quiet() {
            return Err(self.later("it asked to be left alone for a while".to_owned(), Some(left)));
        }
        let request = self.request(call, what)?;
        if call.method != Method::Get {
            self.wait_to_write().await;
        }
        let mut response = request
            .send()
            .await
            .map_err(|e| self.later(chain(&e.without_url()), None))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let mut body = BytesMut::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|e| self.later(chain(&e.without_url()), None))?
        {
            if body.len() + chunk.len() > ANSWER_BYTES {
                return Err(self.odd(what, format!("more than {ANSWER_BYTES} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        let answer = Answer {
            status,
            body: body.to_vec(),
            headers,
        };
        self.judged(answer, what)
    }

    fn request(&self, call: &Call, what: &str) -> Result<RequestBuilder, ForgeError> {
        let target = self
            .base
            .join(&call.path)
            .map_err(|e| self.odd(what, format!("no address to ask: {e}")))?;
        let shown = Zeroizing::new(format!("{} {}", self.manners.authorization, *self.token));
        let mut token = HeaderValue::from_str(&shown)
            .map_err(|_| self.odd(what, "nothing: the token has characters that none has".to_owned()))?;
        token.set_sensitive(true);
        let request = match call.method {
            Method::Get => self.client.get(target),
            Method::Post => self.client.post(target),
            Method::Patch => self.client.patch(target),
            Method::Put => self.client.put(target),
        };
        let request = (self.manners.headers.iter())
            .fold(request.header(AUTHORIZATION, token), |request, (name, value)| {
                request.header(*name, *value)
            });
        Ok(match &call.body {
            Some(body) => request.json(body),
            None => request,
        })
    }

    fn judged(&self, answer: Answer, what: &str) -> Result<Answer, ForgeError> {
        let status = answer.status;
        if status.is_success() {
            return Ok(answer);
        }
        let now = self.clock.now();
        let number = |name: &str| answer.header(name)?.trim().parse::<i64>().ok();
        let left = self.manners.left.and_then(|(left, until)| {
            let until = Timestamp::from_second(number(until)?).ok()?;
            Some((u64::try_from(number(left)?).ok()?, until))
        });
        let said = words(&answer.body);
        let refusal = Refusal {
            status: status.as_u16(),
            asked: answer
                .header(RETRY_AFTER.as_str())
                .and_then(|text| asked_wait(text, now)),
            left,
            words: &said,
        };
        let meaning = meaning(self.manners, &refusal, now);
        let words = self.cleaned(&said);
        let why = if words.is_empty() {
            String::new()
        } else {
            format!(": {words}")
        };
        let at = self.base.to_string();
        let what = what.to_owned();
        Err(match meaning {
            Meaning::Quiet(asked) => self.silenced(status, asked.unwrap_or(QUIET)),
            Meaning::Later => self.later(format!("it answered {status}{why}"), None),
            Meaning::There => ForgeError::There { at, what },
            Meaning::Missing => ForgeError::Missing { at, what },
            Meaning::Refused => ForgeError::Refused {
                at,
                what,
                status: status.as_u16(),
                why,
            },
            Meaning::Odd => ForgeError::Odd {
                at,
                what,
                why: format!("{status}{why}"),
            },
        })
    }

    /// Returns once the forge takes one more request that writes.
    async fn wait_to_write(&self) {
        let mut written_at = self.written_at.lock().await;
        if let Some(last) = *written_at {
            tokio::time::sleep_until(last + self.manners.write_gap).await;
        }
        *written_at = Some(tokio::time::Instant::now());
    }

    /// Until the forge may be asked again; none: now.
    fn quiet(&self) -> Option<Duration> {
        let until = *self.quiet_until.lock().unwrap_or_else(PoisonError::into_inner);
        let left = until?.duration_since(self.clock.now());
        Duration::try_from(left).ok().filter(|left| !left.is_zero())
    }

    fn silenced(&self, status: StatusCode, wait: Duration) -> ForgeError {
        let wait = wait.min(LONGEST_QUIET);
        *self.quiet_until.lock().unwrap_or_else(PoisonError::into_inner) =
            self.clock.now().checked_add(wait).ok();
        self.later(format!("it answered {status}"), Some(wait))
    }

    fn later(&self, why: String, after: Option<Duration>) -> ForgeError {
        ForgeError::Later {
            at: self.base.to_string(),
            why: self.cleaned(&why),
            after,
        }
    }

    /// That something is not there, or not for us.
    pub(super) fn missing(&self, what: String) -> ForgeError {
        let at = self.base.to_string();
        ForgeError::Missing { at, what }
    }

    /// The time.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn odd(&self, what: &str, why: String) -> ForgeError {
        ForgeError::Odd {
            at: self.base.to_string(),
            what: what.to_owned(),
            why: self.cleaned(&why),
        }
    }

    /// A text without the token, whatever dress it is in.
    fn cleaned(&self, text: &str) -> String {
        let token = self.token.as_str();
        let base64 = Zeroizing::new(data_encoding::BASE64.encode(token.as_bytes()));
        let urled: Zeroizing<String> =
            Zeroizing::new(url::form_urlencoded::byte_serialize(token.as_bytes()).collect());
        [token, &base64, &urled]
            .into_iter()
            .filter(|dress| !dress.is_empty())
            .fold(text.to_owned(), |text, dress| text.replace(dress, "(token)"))
    }
}

/// What `Retry-After` asks for: seconds, or a time (RFC 9110, section 10.2.3).
fn asked_wait(text: &str, now: Timestamp) -> Option<Duration> {
    if let Ok(secs) = text.trim().parse::<u64>() {
        return Some(Duration::from_secs(secs));
    }
    let at = jiff::fmt::rfc2822::parse(text.trim()).ok()?.timestamp();
    Duration::try_from(at.duration_since(now)).ok()
}

#[cfg(test)]
mod tests;
