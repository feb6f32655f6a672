//! GitHub's published schemas of webhooks: what the double sends is what GitHub sends.

use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::routing::post;
use scenarios::double::{Brand, Says, Way};
use scenarios::npm::package;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::Scene;

/// What was sent: its headers and its bytes, in the order in which it came.
type Sent = Arc<Mutex<Vec<(HeaderMap, Bytes)>>>;

/// Somebody who takes webhooks. Dropped, nobody does.
pub(super) struct Listener {
    pub(super) url: String,
    sent: Sent,
    _runtime: Runtime,
}

impl Listener {
    pub(super) fn start() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let url = format!("http://{}/hooks/github", listener.local_addr()?);
        let sent = Sent::default();
        let kept = Arc::clone(&sent);
        let take = move |headers: HeaderMap, body: Bytes| async move {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push((headers, body));
        };
        let app = Router::new().route("/hooks/github", post(take));
        runtime.spawn(async move { axum::serve(tokio::net::TcpListener::from_std(listener)?, app).await });
        Ok(Self {
            url,
            sent,
            _runtime: runtime,
        })
    }

    /// What was sent, once it is all that is waited for.
    pub(super) fn wait_until(
        &self,
        is_all: impl Fn(&[(HeaderMap, Bytes)]) -> bool,
    ) -> Result<Vec<(HeaderMap, Bytes)>> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if is_all(&sent) {
                return Ok(sent);
            }
            ensure!(
                Instant::now() < deadline,
                "{} webhooks came, and not all",
                sent.len()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

// holds: FG-6
#[test]
fn what_the_double_of_github_sends_is_what_its_schemas_say() -> Result<()> {
    let Some(schemas) = package("@octokit/webhooks-schemas", "the schemas of webhooks")? else {
        return Ok(());
    };
    let schemas: Value = serde_json::from_slice(&std::fs::read(schemas.join("schema.json"))?)?;
    let scene = Scene::at(Brand::Github)?;
    let listener = Listener::start()?;
    let mut events = Brand::Github.events().to_vec();
    events.push("delete");
    scene.double.hook(&listener.url, "s3cret", &events);
    let id = scene.double.comment("dana", scene.open, "hello")?;
    scene.double.edit_comment("dana", id, "hello again")?;
    for says in [Says::Refuse, Says::Comment, Says::Approve] {
        scene.double.review("ravi", scene.open, says)?;
    }
    scene.world.git(&["checkout", "--quiet", "open"])?;
    scene.world.write("more.md", "more")?;
    scene.world.commit("more")?;
    scene.world.git(&[
        "push",
        "--quiet",
        "origin",
        "HEAD:refs/heads/open",
        "HEAD:refs/heads/another",
    ])?;
    scene.double.open_pull("dana", "another", "another")?;
    scene.double.merge("ravi", scene.open, Way::Merge)?;
    scene
        .world
        .git(&["push", "--quiet", "origin", ":refs/heads/another"])?;
    let wanted = [
        "push",
        "pull_request$opened",
        "pull_request$synchronize",
        "pull_request$closed",
        "pull_request_review$submitted",
        "issue_comment$created",
        "issue_comment$edited",
        "delete$event",
    ];
    let sent = listener.wait_until(|sent| sent.len() >= 13)?;
    let mut seen = Vec::new();
    for (headers, body) in &sent {
        let event = headers
            .get("x-github-event")
            .and_then(|event| event.to_str().ok());
        let event = event.context("the event's name")?;
        let body: Value = serde_json::from_slice(body)?;
        let name = match body["action"].as_str() {
            Some(action) => format!("{event}${action}"),
            None => format!("{event}$event"),
        };
        let schema = json!({
            "definitions": schemas["definitions"], "$ref": format!("#/definitions/{name}"),
        });
        let validator = jsonschema::options().with_draft(jsonschema::Draft::Draft7);
        let validator = validator.should_validate_formats(true).build(&schema)?;
        let wrong: Vec<String> = validator
            .iter_errors(&body)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        ensure!(wrong.is_empty(), "{name}:\n{}\n{body:#}", wrong.join("\n"));
        let mut odd = body.clone();
        odd["colour"] = json!("red");
        ensure!(!validator.is_valid(&odd), "{name} takes anything");
        seen.push(name);
    }
    for name in wanted {
        ensure!(
            seen.iter().any(|seen| seen.starts_with(name)),
            "no {name} among {seen:?}"
        );
    }
    Ok(())
}
