//! How the command line speaks to the reconciler of this machine: HTTP over the unix socket in its state folder.

use std::path::Path;

use reqwest::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::exit::Exit;
use crate::config::Config;

/// The name of the socket in the state folder.
pub const SOCKET: &str = "meshplan.sock";

/// An answer that is no, with how the program ends.
#[derive(Debug, thiserror::Error)]
#[error("{sentence}")]
pub struct No {
    /// For a person.
    pub sentence: String,
    /// How it ends.
    pub exit: Exit,
}

/// A reconciler that can be asked.
#[derive(Debug)]
pub struct Client {
    http: reqwest::Client,
    socket: String,
    fleet: String,
}

impl Client {
    /// The reconciler of a configuration. Nothing is asked yet.
    ///
    /// # Errors
    /// The configuration cannot be read.
    pub fn of(config: &Path) -> anyhow::Result<Self> {
        let config = Config::read(config)?;
        let socket = config.state_dir.join(SOCKET);
        let http = reqwest::Client::builder()
            .unix_socket(socket.as_path())
            .tls_certs_only([])
            .build()?;
        Ok(Self {
            http,
            socket: socket.display().to_string(),
            fleet: config.fleet.to_string(),
        })
    }

    /// The fleet that its reconciler serves, by the configuration.
    #[must_use]
    pub fn fleet(&self) -> &str {
        &self.fleet
    }

    /// Opens what goes on: the answer's body is read as it comes.
    ///
    /// # Errors
    /// [`No`].
    pub async fn follow(&self, path: &str) -> anyhow::Result<reqwest::Response> {
        let answer = self.http.get(address(path)).send().await;
        self.good(answer).await
    }

    /// Reads.
    ///
    /// # Errors
    /// [`No`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let answer = self.http.get(address(path)).send().await;
        self.take(answer).await
    }

    /// Says a word.
    ///
    /// # Errors
    /// [`No`].
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> anyhow::Result<T> {
        let answer = self.http.post(address(path)).json(body).send().await;
        self.take(answer).await
    }

    async fn take<T: DeserializeOwned>(
        &self,
        answer: reqwest::Result<reqwest::Response>,
    ) -> anyhow::Result<T> {
        Ok(self.good(answer).await?.json().await?)
    }

    async fn good(&self, answer: reqwest::Result<reqwest::Response>) -> anyhow::Result<reqwest::Response> {
        let answer = answer.map_err(|error| No {
            sentence: format!(
                "cannot reach the reconciler at {}: {error}. Is it running? `meshplan serve --config FILE` starts it; \
                 reading its socket needs its user or group",
                self.socket
            ),
            exit: Exit::Unreachable,
        })?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let body: Value = answer.json().await.unwrap_or_default();
        let sentence = body
            .get("error")
            .and_then(Value::as_str)
            .unwrap_or("the reconciler said no")
            .to_owned();
        let exit = match status {
            StatusCode::NOT_FOUND | StatusCode::CONFLICT => Exit::No,
            StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => Exit::Refused,
            StatusCode::BAD_REQUEST => Exit::Usage,
            _ => Exit::Unreachable,
        };
        Err(No { sentence, exit }.into())
    }
}

fn address(path: &str) -> String {
    // The host is never looked up: the socket is the address.
    format!("http://localhost{path}")
}
