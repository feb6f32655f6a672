//! What a world asks the reconciler over HTTP: webhooks above all, signed as a forge signs them.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::World;

impl World {
    /// The body that a post-receive hook sends for a push to main.
    #[must_use]
    pub fn push_event(&self, commit: &str) -> Vec<u8> {
        Self::push_event_of("fleet", commit)
    }

    /// The same of another repository.
    #[must_use]
    pub fn push_event_of(repo: &str, commit: &str) -> Vec<u8> {
        let event = serde_json::json!({
            "repo": repo,
            "ref": "refs/heads/main",
            "before": "0".repeat(40),
            "after": commit,
            "pusher": "dana",
        });
        event.to_string().into_bytes()
    }

    /// Sends a webhook signed with `secret`, none for the configured one; gives the status.
    ///
    /// # Errors
    /// The reconciler does not answer.
    pub fn webhook(&self, body: &[u8], delivery: &str, secret: Option<&str>) -> Result<u16> {
        let signature = match secret {
            Some(secret) => sign(secret, body)?,
            None => sign(&self.webhook_secret()?, body)?,
        };
        let headers = [
            ("Content-Type", "application/json"),
            ("X-Gitea-Event", "push"),
            ("X-Gitea-Delivery", delivery),
            ("X-Gitea-Signature", &signature),
        ];
        Ok(self.http("POST", "/hooks/bare", &headers, body)?.0)
    }

    pub(super) fn webhook_secret(&self) -> Result<String> {
        let config: toml::Table = toml::from_str(&fs::read_to_string(self.config())?)?;
        let file = config
            .get("forge")
            .and_then(|f| f.get("webhook_secret_file"))
            .and_then(toml::Value::as_str);
        let file = self
            .state()
            .join(file.context("the configuration names the secret's file")?);
        Ok(fs::read_to_string(file)?.trim_end().to_owned())
    }

    /// One request to the reconciler: status and body.
    ///
    /// # Errors
    /// It does not answer.
    pub fn http(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<(u16, String)> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n",
            self.address
        )?;
        for (name, value) in headers {
            write!(stream, "{name}: {value}\r\n")?;
        }
        write!(stream, "Content-Length: {}\r\n\r\n", body.len())?;
        stream.write_all(body)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split_whitespace().nth(1).and_then(|s| s.parse().ok());
        let body = answer
            .split_once("\r\n\r\n")
            .map_or("", |(_, body)| body)
            .to_owned();
        Ok((status.context("an answer has a status")?, body))
    }
}

fn sign(secret: &str, body: &[u8]) -> Result<String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes())?;
    mac.update(body);
    Ok(data_encoding::HEXLOWER.encode(&mac.finalize().into_bytes()))
}
