//! GitHub as somebody else emulates it (`emulate`): the reconciler's client against a forge that this project did not write.
//!
//! It has no statuses of commits (neither setting nor reading them), no pull requests of a commit, and no git over HTTP, and
//! it lets two pull requests come from one branch, and its webhook of a comment does not say that it is on a pull request: what
//! needs those stays with the double.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use axum::body::Bytes;
use axum::http::HeaderMap;
use meshplan_reconciler::config::ForgeKind;
use meshplan_reconciler::edge::clock::Clock;
use meshplan_reconciler::pure::forge::{NewPull, Said, User, approving};
use meshplan_reconciler::pure::trigger::{self, Event, Headers};
use reqwest::Method;
use scenarios::double::BOT;
use scenarios::npm::{node, package};
use scenarios::world::free_port;
use serde_json::{Value, json};

use super::hooks::Listener;
use super::{MARKER, client, wait};

const SEED: &str = r#"
tokens:
  t0ken-bot: { login: mesh-bot, scopes: [repo, "read:org"] }
  t0ken-dana: { login: dana, scopes: [repo, "admin:org", "admin:repo_hook"] }
  t0ken-ravi: { login: ravi, scopes: [repo] }
github:
  users: [{ login: mesh-bot }, { login: dana }, { login: ravi }, { login: mallory }]
  orgs: [{ login: acme, name: Acme, members: [{ login: dana, role: admin }, { login: ravi }] }]
  repos: [{ owner: acme, name: fleet, private: false, auto_init: true }]
"#;

/// The emulator. Dropped, it ends.
struct Emulator {
    child: Child,
    address: SocketAddr,
    http: reqwest::Client,
    // Held for what is in it.
    folder: tempfile::TempDir,
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Emulator {
    /// None where there is no emulator here, or no Node that runs it.
    fn start() -> Result<Option<Self>> {
        let what = "the emulator of GitHub";
        let (Some(emulate), Some(node)) = (package("emulate", what)?, node(what)?) else {
            return Ok(None);
        };
        let folder = tempfile::tempdir()?;
        let seed = folder.path().join("seed.yaml");
        std::fs::write(&seed, SEED)?;
        let address = free_port()?;
        let log = std::fs::File::create(folder.path().join("log"))?;
        let child = Command::new(node)
            .arg(emulate.join("dist/index.js"))
            .args([
                "start",
                "--service",
                "github",
                "--port",
                &address.port().to_string(),
                "--seed",
            ])
            .arg(&seed)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        // The provider of whoever was first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().user_agent("a-test").tls_certs_only([]);
        let emulator = Self {
            child,
            address,
            http: http.build()?,
            folder,
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        while std::net::TcpStream::connect(address).is_err() {
            let log = std::fs::read_to_string(emulator.folder.path().join("log")).unwrap_or_default();
            ensure!(Instant::now() < deadline, "the emulator does not answer:\n{log}");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(Some(emulator))
    }

    /// What somebody does there.
    async fn act(&self, login: &str, method: Method, path: &str, body: Option<Value>) -> Result<Value> {
        let address = format!("http://{}/{path}", self.address);
        let mut request = self
            .http
            .request(method, &address)
            .bearer_auth(format!("t0ken-{login}"));
        if let Some(body) = &body {
            request = request.json(body);
        }
        let response = request.send().await?;
        let status = response.status();
        let text = response.text().await?;
        ensure!(status.is_success(), "{path}: {status} {text}");
        Ok(serde_json::from_str(&text).unwrap_or_default())
    }

    async fn user(&self, login: &str) -> Result<User> {
        let said = self
            .act("dana", Method::GET, &format!("users/{login}"), None)
            .await?;
        Ok(User {
            id: said["id"].as_u64().context("a number")?,
            login: login.to_owned(),
        })
    }

    /// A branch with a page that main has not; its head.
    async fn branch(&self, name: &str) -> Result<String> {
        let commits = self
            .act("dana", Method::GET, "repos/acme/fleet/commits", None)
            .await?;
        let of = json!({ "ref": format!("refs/heads/{name}"), "sha": commits[0]["sha"] });
        self.act("dana", Method::POST, "repos/acme/fleet/git/refs", Some(of))
            .await?;
        let page = json!({ "message": "a page", "content": "aGVsbG8K", "branch": name });
        let path = format!("repos/acme/fleet/contents/{name}.txt");
        let said = self.act("dana", Method::PUT, &path, Some(page)).await?;
        Ok(said["commit"]["sha"].as_str().context("a commit")?.to_owned())
    }
}

// holds: FG-1, FG-6, DL-4
#[test]
fn the_client_works_with_an_emulator_of_github_that_others_wrote() -> Result<()> {
    let Some(emulator) = Emulator::start()? else {
        return Ok(());
    };
    let token_file = emulator.folder.path().join("token");
    std::fs::write(&token_file, "t0ken-bot\n")?;
    let url = format!("http://{}/acme/fleet.git", emulator.address);
    let api = format!("http://{}/", emulator.address);
    let forge = client(ForgeKind::Github, url, Some(api), token_file)?;
    wait(async {
        let push = || Some(json!({ "permission": "push" }));
        let path = format!("repos/acme/fleet/collaborators/{BOT}");
        emulator.act("dana", Method::PUT, &path, push()).await?;
        let head = emulator.branch("edge").await?;

        ensure!(forge.me().await?.login == BOT);
        ensure!(forge.open_pulls().await?.is_empty());
        let new = NewPull {
            title: "A page".to_owned(),
            body: "Why".to_owned(),
            from: "edge".to_owned(),
            into: "main".to_owned(),
        };
        forge.open_pull_request(&new).await?;
        let open = forge.open_pulls().await?;
        ensure!(open.len() == 1 && open[0].head.as_str() == head && open[0].into == "main" && !open[0].fork);
        let number = open[0].number;
        ensure!(
            forge
                .pull_request(number)
                .await?
                .is_some_and(|pull| pull.open && pull.merged.is_none())
        );
        ensure!(forge.pull_request(999).await?.is_none());

        let mut said = Said {
            number,
            marker: MARKER.to_owned(),
            body: format!("{MARKER}\nfirst"),
        };
        let id = forge.upsert_comment(&said, None).await?;
        ensure!(
            forge.upsert_comment(&said, None).await? == id,
            "found again by its marker"
        );
        said.body.push_str(", and more");
        ensure!(forge.upsert_comment(&said, Some(id)).await? == id);
        let path = format!("repos/acme/fleet/issues/{number}/comments");
        for text in 0..35 {
            let body = json!({ "body": format!("comment {text}") });
            emulator.act("ravi", Method::POST, &path, Some(body)).await?;
        }
        let comments = forge.comments(number, None).await?;
        ensure!(
            comments.len() == 36,
            "{} comments, of more than a page",
            comments.len()
        );
        ensure!(comments[0].body == said.body);
        let gone = format!("repos/acme/fleet/issues/comments/{id}");
        emulator.act("dana", Method::DELETE, &gone, None).await?;
        ensure!(
            forge.upsert_comment(&said, Some(id)).await? != id,
            "made once more"
        );

        let (dana, ravi, mallory) = (
            emulator.user("dana").await?,
            emulator.user("ravi").await?,
            emulator.user("mallory").await?,
        );
        let path = format!("repos/acme/fleet/pulls/{number}/reviews");
        let approve = Some(json!({ "event": "APPROVE" }));
        emulator.act("ravi", Method::POST, &path, approve).await?;
        let reviews = forge.reviews(number).await?;
        let head = head.parse().map_err(anyhow::Error::msg)?;
        let yes = approving(&reviews, &head, forge.me().await?);
        ensure!(yes.len() == 1 && yes[0].0 == ravi, "{yes:?}");
        ensure!(
            forge
                .checks(None, &head, &["ci/test".to_owned()])
                .await?
                .is_empty()
        );

        ensure!(forge.may_write(&dana).await? && !forge.may_write(&mallory).await?);
        let taken_over = User {
            id: mallory.id,
            login: dana.login.clone(),
        };
        ensure!(
            !forge.may_write(&taken_over).await?,
            "a login that another has now"
        );
        let members = forge.members("members").await?;
        ensure!(members.contains(&dana.id) && members.contains(&ravi.id) && !members.contains(&mallory.id));
        let none = forge.members("nobody").await;
        ensure!(none.is_err_and(|error| error.to_string().contains("has no team `nobody`")));

        let path = format!("repos/acme/fleet/pulls/{number}/merge");
        let squash = Some(json!({ "merge_method": "squash" }));
        let made = emulator.act("dana", Method::PUT, &path, squash).await?;
        let merged = forge.pull_request(number).await?.context("it is there")?;
        let merged = merged.merged.context("it is merged")?;
        ensure!(Some(merged.commit.as_str()) == made["sha"].as_str());
        Ok(())
    })
}

// holds: FG-2, FG-6
#[test]
fn webhooks_of_the_emulator_are_taken_for_what_they_are() -> Result<()> {
    let Some(emulator) = Emulator::start()? else {
        return Ok(());
    };
    let listener = Listener::start()?;
    wait(async {
        let hook = json!({
            "name": "web", "active": true, "events": ["push", "pull_request", "issue_comment"],
            "config": { "url": listener.url, "content_type": "json", "secret": "s3cret" },
        });
        emulator
            .act("dana", Method::POST, "repos/acme/fleet/hooks", Some(hook))
            .await?;
        emulator.branch("edge").await?;
        let pull = json!({ "title": "A page", "head": "edge", "base": "main" });
        emulator
            .act("dana", Method::POST, "repos/acme/fleet/pulls", Some(pull))
            .await?;
        let body = Some(json!({ "body": "/plans go" }));
        emulator
            .act("ravi", Method::POST, "repos/acme/fleet/issues/1/comments", body)
            .await?;
        Ok(())
    })?;
    let wanted = ["pull_request", "issue_comment"];
    let is_all = |sent: &[(HeaderMap, Bytes)]| {
        let of = |(headers, _): &(HeaderMap, Bytes)| headers.get("x-github-event").cloned();
        let events: Vec<_> = sent.iter().filter_map(of).collect();
        wanted
            .iter()
            .all(|wanted| events.iter().any(|event| event == wanted))
    };
    let (mut pushed, mut opened) = (false, false);
    for (headers, body) in listener.wait_until(is_all)? {
        let texts = headers
            .iter()
            .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
        let headers: Headers = texts.collect();
        let now = Clock::default().now();
        ensure!(trigger::read(ForgeKind::Github, b"another", &headers, &body, now).is_err());
        let read = trigger::read(ForgeKind::Github, b"s3cret", &headers, &body, now);
        let read = read.map_err(|refusal| anyhow::anyhow!("{refusal}"))?;
        match read.event {
            Event::PullRequest {
                number: 1,
                spoken: false,
                ..
            } => opened = true,
            Event::Push { .. } => pushed = true,
            other => ensure!(matches!(other, Event::Ping | Event::Other), "{other:?}"),
        }
    }
    ensure!(pushed && opened, "pushed {pushed}, opened {opened}");
    Ok(())
}
