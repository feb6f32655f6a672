//! A real git server over HTTP: `git http-backend` behind axum, for `meshplan demo` and for tests.
//!
//! It stands alone because it is no part of the road: a fleet's forge is somebody else's. Bodies pass through in both
//! directions as they come: gzipped questions of git's own client, chunked packs of libgit2's; hooks of the
//! repositories run as at any forge.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use data_encoding::BASE64;
use futures_util::{StreamExt as _, stream};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// The most bytes of a backend's own header.
const HEADER_BYTES: u64 = 64 * 1024;

/// Who may do what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Who may fetch.
    pub fetch: Access,
    /// Who may push.
    pub push: Access,
}

/// Who may.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Access {
    /// Whoever can connect; as a pusher he is called `anybody`.
    #[default]
    Anybody,
    /// This user with this password (RFC 7617).
    User {
        /// Name.
        name: String,
        /// Password.
        password: String,
    },
    /// Nobody.
    Nobody,
}

/// Serves the bare repositories below `root` until it is dropped: `http://<listener>/<repo>.git`.
///
/// # Errors
/// The listener's.
pub async fn serve(
    root: PathBuf,
    listener: tokio::net::TcpListener,
    options: Options,
) -> std::io::Result<()> {
    axum::serve(listener, router(root, options)).await
}

/// The same as a router, to stand beside other routes.
pub fn router(root: PathBuf, options: Options) -> Router {
    let server = Arc::new(Server { root, options });
    Router::new().fallback(answer).with_state(server)
}

struct Server {
    root: PathBuf,
    options: Options,
}

async fn answer(State(server): State<Arc<Server>>, request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default();
    let pushes = query.contains("git-receive-pack") || request.uri().path().ends_with("/git-receive-pack");
    let access = if pushes {
        &server.options.push
    } else {
        &server.options.fetch
    };
    let user = match (access, user(request.headers())) {
        (Access::Anybody, _) => "anybody".to_owned(),
        (Access::User { name, password }, Some(given)) if given == format!("{name}:{password}") => {
            name.clone()
        }
        (Access::User { .. }, _) => {
            let realm = HeaderValue::from_static("Basic realm=\"git\"");
            return (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, realm)]).into_response();
        }
        (Access::Nobody, _) => return StatusCode::FORBIDDEN.into_response(),
    };
    match run(&server.root, &user, request).await {
        Ok(response) => response,
        Err(e) => {
            tracing::warn!(error = %e, "git http-backend");
            (
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("git http-backend: {e}\n"),
            )
                .into_response()
        }
    }
}

/// What a client says that it is: `user:password`.
fn user(headers: &HeaderMap) -> Option<String> {
    let text = headers
        .get(AUTHORIZATION)?
        .to_str()
        .ok()?
        .strip_prefix("Basic ")?;
    String::from_utf8(BASE64.decode(text.as_bytes()).ok()?).ok()
}

async fn run(root: &Path, user: &str, request: Request) -> std::io::Result<Response> {
    let (parts, body) = request.into_parts();
    let header = |name: HeaderName| parts.headers.get(name).and_then(|v| v.to_str().ok());
    let path = percent_decoded(parts.uri.path());
    let mut command = Command::new("git");
    command
        .arg("http-backend")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("LC_ALL", "C")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        // The repositories may be another user's: whoever started the server chose the folder.
        .envs([
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "safe.directory"),
            ("GIT_CONFIG_VALUE_0", "*"),
        ])
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("PATH_INFO", path)
        .env("QUERY_STRING", parts.uri.query().unwrap_or_default())
        .env("REQUEST_METHOD", parts.method.as_str())
        .env("REMOTE_USER", user)
        .env("REMOTE_ADDR", "127.0.0.1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    for (variable, value) in [
        ("CONTENT_TYPE", header(CONTENT_TYPE)),
        // Without one (chunked) the backend reads to the end.
        ("CONTENT_LENGTH", header(CONTENT_LENGTH)),
        ("HTTP_CONTENT_ENCODING", header(CONTENT_ENCODING)),
        ("GIT_PROTOCOL", header(HeaderName::from_static("git-protocol"))),
    ] {
        value.map(|value| command.env(variable, value));
    }
    let mut child = command.spawn()?;
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(std::io::Error::other("its pipes are missing"));
    };
    tokio::spawn(feed(body, stdin));
    reply(child, BufReader::new(stdout)).await
}

/// Hands the question over; a backend that stops listening has its reasons and answers with them.
async fn feed(body: Body, mut stdin: ChildStdin) {
    let mut chunks = body.into_data_stream();
    while let Some(Ok(chunk)) = chunks.next().await {
        if stdin.write_all(&chunk).await.is_err() {
            return;
        }
    }
    let _ = stdin.shutdown().await;
}

/// The backend's CGI header (RFC 3875, section 6), then its output as it comes.
async fn reply(child: Child, stdout: BufReader<ChildStdout>) -> std::io::Result<Response> {
    let mut response = Response::new(Body::empty());
    let mut head = stdout.take(HEADER_BYTES);
    let mut line = String::new();
    loop {
        line.clear();
        if head.read_line(&mut line).await? == 0 {
            return Err(std::io::Error::other("it ended without an answer"));
        }
        let text = line.trim_end_matches(['\r', '\n']);
        if text.is_empty() {
            break;
        }
        let Some((name, value)) = text.split_once(": ") else {
            continue;
        };
        if name.eq_ignore_ascii_case("status") {
            let code = value.split(' ').next().and_then(|code| code.parse::<u16>().ok());
            *response.status_mut() = code
                .and_then(|code| StatusCode::from_u16(code).ok())
                .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        } else if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
            response.headers_mut().insert(name, value);
        }
    }
    let rest = stream::unfold((child, head.into_inner()), |(child, mut stdout)| async move {
        let mut chunk = Vec::with_capacity(32 * 1024);
        match stdout.read_buf(&mut chunk).await {
            Ok(0) => None,
            Ok(_) => Some((Ok::<_, std::io::Error>(Bytes::from(chunk)), (child, stdout))),
            Err(e) => Some((Err(e), (child, stdout))),
        }
    });
    *response.body_mut() = Body::from_stream(rest);
    Ok(response)
}

/// CGI wants the path as it is meant, not as it was sent.
fn percent_decoded(path: &str) -> String {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(decoded) if byte == b'%' => {
                out.push(decoded);
                rest = after.get(2..).unwrap_or_default();
            }
            _ => {
                out.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
