//! One request and its answer, as the stream that libgit2 writes and reads.

use std::io::{self, Read, Write};
use std::time::Instant;

use bytes::{Buf, Bytes};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION};
use reqwest::{RequestBuilder, Response, StatusCode};
use url::Url;

use super::credentials::{Credentials, may_go};
use super::{Failure, LIMITS, engine, failed};

/// A question that is being written, then its answer that is being read.
pub(super) struct Exchange {
    state: State,
    deadline: Instant,
    received: u64,
}

enum State {
    Asking {
        request: RequestBuilder,
        accept: String,
        body: Vec<u8>,
    },
    Answering {
        response: Response,
        chunk: Bytes,
    },
    Over,
}

impl Exchange {
    /// Asks for `info/refs`, following redirects; gives the answer and the address under which the rest is found.
    pub(super) fn info_refs(
        url: &Url,
        service: &str,
        credentials: Option<&Credentials>,
    ) -> Result<(Self, Url), Failure> {
        let deadline = Instant::now() + LIMITS.whole;
        let accept = format!("application/x-{service}-advertisement");
        let mut base = url.clone();
        for _ in 0..=LIMITS.redirects {
            let mut target = join(&base, "info/refs")?;
            target.set_query(Some(&format!("service={service}")));
            let request = authorised(
                engine()?.client(&target)?.get(target.clone()),
                url,
                &target,
                credentials,
            )
            .header(ACCEPT, "*/*");
            let response = send(request, &target, deadline)?;
            if response.status().is_redirection() {
                base = redirected(&target, &response)?;
                continue;
            }
            let response = accepted(response, &target, &accept)?;
            let state = State::Answering {
                response,
                chunk: Bytes::new(),
            };
            return Ok((
                Self {
                    state,
                    deadline,
                    received: 0,
                },
                base,
            ));
        }
        Err(Failure::Protocol(format!(
            "{url} redirects more than {} times",
            LIMITS.redirects
        )))
    }

    /// Prepares the request that carries a fetch's wants or a push's pack.
    pub(super) fn post(
        asked: &Url,
        base: &Url,
        service: &str,
        credentials: Option<&Credentials>,
    ) -> Result<Self, Failure> {
        let target = join(base, service)?;
        let accept = format!("application/x-{service}-result");
        let request = authorised(
            engine()?.client(&target)?.post(target.clone()),
            asked,
            &target,
            credentials,
        )
        .header(CONTENT_TYPE, format!("application/x-{service}-request"))
        .header(ACCEPT, &accept);
        Ok(Self {
            state: State::Asking {
                request,
                accept,
                body: Vec::new(),
            },
            deadline: Instant::now() + LIMITS.whole,
            received: 0,
        })
    }

    fn fill(&mut self, buf: &mut [u8]) -> Result<usize, Failure> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Asking {
                request,
                accept,
                body,
            } => {
                let (client, request) = request.body(body).build_split();
                let request = request.map_err(|e| Failure::Protocol(chain(&e)))?;
                let target = request.url().clone();
                let response = send(
                    RequestBuilder::from_parts(client, request),
                    &target,
                    self.deadline,
                )?;
                let response = accepted(response, &target, &accept)?;
                self.state = State::Answering {
                    response,
                    chunk: Bytes::new(),
                };
            }
            state => self.state = state,
        }
        self.fill_from_answer(buf)
    }

    fn fill_from_answer(&mut self, buf: &mut [u8]) -> Result<usize, Failure> {
        let State::Answering { response, chunk } = &mut self.state else {
            return Ok(0);
        };
        while chunk.is_empty() {
            let at = tokio::time::Instant::from_std(self.deadline);
            let next = engine()?
                .runtime
                .block_on(async { tokio::time::timeout_at(at, response.chunk()).await });
            match next {
                Err(_) => return Err(too_long(response.url())),
                Ok(Err(e)) => return Err(Failure::Unreachable(chain(&e))),
                Ok(Ok(None)) => return Ok(0),
                Ok(Ok(Some(bytes))) => *chunk = bytes,
            }
            self.received += chunk.len() as u64;
            if self.received > LIMITS.answer_bytes {
                let limit = LIMITS.answer_bytes;
                return Err(Failure::Protocol(format!(
                    "{} sends more than {limit} bytes",
                    response.url()
                )));
            }
        }
        let n = chunk.len().min(buf.len());
        chunk.copy_to_slice(buf.get_mut(..n).unwrap_or_default());
        Ok(n)
    }
}

impl Read for Exchange {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.fill(buf).map_err(|failure| {
            self.state = State::Over;
            let error = io::Error::other(failure.to_string());
            failed(failure);
            error
        })
    }
}

impl Write for Exchange {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let State::Asking { body, .. } = &mut self.state else {
            return Err(io::Error::other("the question has been sent"));
        };
        if body.len() + data.len() > LIMITS.question_bytes {
            let failure = Failure::Protocol(format!("a push of more than {} bytes", LIMITS.question_bytes));
            let error = io::Error::other(failure.to_string());
            failed(failure);
            return Err(error);
        }
        body.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn join(base: &Url, path: &str) -> Result<Url, Failure> {
    base.join(path)
        .map_err(|e| Failure::Protocol(format!("{base} is no address: {e}")))
}

fn authorised(
    request: RequestBuilder,
    asked: &Url,
    target: &Url,
    credentials: Option<&Credentials>,
) -> RequestBuilder {
    let Some(credentials) = credentials.filter(|_| may_go(asked, target)) else {
        return request;
    };
    match HeaderValue::from_str(&credentials.header()) {
        Ok(mut value) => {
            value.set_sensitive(true);
            request.header(AUTHORIZATION, value)
        }
        // Base64 is always a header value.
        Err(_) => request,
    }
}

fn send(request: RequestBuilder, target: &Url, deadline: Instant) -> Result<Response, Failure> {
    let at = tokio::time::Instant::from_std(deadline);
    let answer = engine()?
        .runtime
        .block_on(async { tokio::time::timeout_at(at, request.send()).await });
    match answer {
        Err(_) => Err(too_long(target)),
        Ok(Err(e)) => Err(Failure::Unreachable(chain(&e.without_url()))),
        Ok(Ok(response)) => Ok(response),
    }
}

fn too_long(url: &Url) -> Failure {
    Failure::Unreachable(format!("{url} took longer than {} s", LIMITS.whole.as_secs()))
}

/// The base under which a redirect of `info/refs` says that the repository is.
fn redirected(from: &Url, response: &Response) -> Result<Url, Failure> {
    let location = response
        .headers()
        .get(LOCATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| from.join(text).ok())
        .ok_or_else(|| Failure::Protocol(format!("{from} redirects to nowhere")))?;
    let (mut to, _) = super::credentials::split(location.as_str())?;
    to.set_query(None);
    to.set_fragment(None);
    let Some(base) = to.path().strip_suffix("info/refs").map(str::to_owned) else {
        return Err(Failure::NotARepository(format!(
            "it redirects to {to}, which is not where a git repository answers"
        )));
    };
    if from.scheme() == "https" && to.scheme() != "https" {
        return Err(Failure::Protocol(format!("it redirects from https to {to}")));
    }
    to.set_path(&base);
    Ok(to)
}

/// Checks status and content type: a web page in place of a repository must not reach libgit2's parser.
fn accepted(response: Response, target: &Url, content_type: &str) -> Result<Response, Failure> {
    let status = response.status();
    match status {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            return Err(Failure::Refused(format!("it answered {status}")));
        }
        StatusCode::NOT_FOUND | StatusCode::GONE => {
            return Err(Failure::NotARepository(format!("it answered {status}")));
        }
        StatusCode::TOO_MANY_REQUESTS => return Err(Failure::Unreachable(format!("it answered {status}"))),
        status if status.is_server_error() => {
            return Err(Failure::Unreachable(format!("it answered {status}")));
        }
        status => return Err(Failure::Protocol(format!("{target} answered {status}"))),
    }
    let given = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    if given == Some(content_type.as_bytes()) {
        return Ok(response);
    }
    let given = given.map_or_else(|| "none".into(), String::from_utf8_lossy);
    Err(Failure::NotARepository(format!(
        "it answers, but not as a git repository does (content type {given}, not {content_type})"
    )))
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
