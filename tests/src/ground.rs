//! The ground that benches of the service stand on: the real `meshplan serve`, a forge over HTTP, a generated fleet, and
//! one node of it, which has a session and says nothing but its hello.
//!
//! No machine of such a fleet was ever heard from, so every stage of its plan is empty and a delivery ends in the pass
//! that began it: rounds do not wait for looks. What is measured is the same: fetched, composed, compared, decided,
//! signed, stored, and in the hands of the machine concerned.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use hmac::{Hmac, KeyInit, Mac};
use meshplan_host::edge::link::{DIRECT, LinkEvent, Membership, ToLink, spawn};
use meshplan_reconciler::config::Config;
use meshplan_reconciler::edge::foundation::{self, Spec};
use meshplan_reconciler::edge::git_server::{Options, router};
use meshplan_reconciler::edge::key_file::{KeyBundle, Passphrase};
use meshplan_reconciler::edge::mirror::NOTES_REF;
use meshplan_reconciler::pure::example::generate;
use meshplan_schemas::declaration::Declaration;
use meshplan_schemas::envelope::{Envelope, Payload as _};
use meshplan_schemas::ident::NodeId;
use meshplan_schemas::session::LinkSecret;
use meshplan_schemas::wire::{FromHost, ToHost};
use sha2::Sha256;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{Receiver, Sender};

use crate::program::{Program, Said, clean, path};

/// How long anything may take to come.
const PATIENCE: Duration = Duration::from_secs(180);
/// How often what cannot be waited for is asked for.
const EVERY: Duration = Duration::from_millis(2);
/// The seed of every fleet.
const SEED: u64 = 7;
const FLEET: &str = "generated";
const BRANCH: &str = "refs/heads/main";

/// A bare repository with a generated fleet, packed as a forge has it.
pub struct FleetRepo {
    repo: git2::Repository,
    folder: PathBuf,
    record: (String, String),
}

impl std::fmt::Debug for FleetRepo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FleetRepo({})", self.folder.display())
    }
}

impl FleetRepo {
    /// Makes it in `folder`; `change` may replace the text of a file before it is committed.
    ///
    /// # Errors
    /// git's.
    pub fn new(folder: &Path, nodes: usize, mut change: impl FnMut(&str, String) -> String) -> Result<Self> {
        fs::create_dir_all(folder)?;
        git(
            folder,
            &["init", "--quiet", "--bare", "--initial-branch=main", "."],
        )?;
        git(folder, &["config", "http.receivepack", "true"])?;
        let repo = git2::Repository::open_bare(folder)?;
        let mut record = None;
        let mut update = git2::build::TreeUpdateBuilder::new();
        for (path, bytes) in generate(nodes, SEED) {
            let text = change(&path, String::from_utf8(bytes)?);
            update.upsert(path.as_str(), repo.blob(text.as_bytes())?, git2::FileMode::Blob);
            if path.ends_with(&last(nodes)) {
                record = Some((path, text));
            }
        }
        let empty = repo.find_tree(repo.treebuilder(None)?.write()?)?;
        let tree = update.create_updated(&repo, &empty)?;
        commit(&repo, tree, "the fleet")?;
        drop(empty);
        git(folder, &["repack", "-adq"])?;
        git(folder, &["prune-packed", "-q"])?;
        Ok(Self {
            repo,
            folder: folder.to_owned(),
            record: record.context("a fleet has nodes")?,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The tip of its branch.
    ///
    /// # Errors
    /// git's.
    pub fn tip(&self) -> Result<String> {
        Ok(self.repo.refname_to_id(BRANCH)?.to_string())
    }

    /// A merge that changes a variable of the last node; gives the commit.
    ///
    /// # Errors
    /// git's.
    pub fn merge(&self, round: usize) -> Result<String> {
        let (path, text) = &self.record;
        let text = text.replace("site = \"", &format!("site = \"{round}-"));
        let tree = self.repo.find_reference(BRANCH)?.peel_to_tree()?;
        let blob = self.repo.blob(text.as_bytes())?;
        let mut update = git2::build::TreeUpdateBuilder::new();
        update.upsert(path.as_str(), blob, git2::FileMode::Blob);
        let tree = update.create_updated(&self.repo, &tree)?;
        commit(&self.repo, tree, &format!("change {round}"))
    }

    fn notes(&self) -> Option<git2::Oid> {
        self.repo.refname_to_id(NOTES_REF).ok()
    }
}

/// The file of the node that is changed: the generator's last.
fn last(nodes: usize) -> String {
    format!("/n{:05}.toml", nodes.saturating_sub(1))
}

fn commit(repo: &git2::Repository, tree: git2::Oid, subject: &str) -> Result<String> {
    let who = git2::Signature::new("Dana", "dana@example.org", &git2::Time::new(1_800_000_000, 0))?;
    let parent = repo
        .refname_to_id(BRANCH)
        .and_then(|id| repo.find_commit(id))
        .ok();
    let parents: Vec<&git2::Commit<'_>> = parent.iter().collect();
    let id = repo.commit(
        Some(BRANCH),
        &who,
        &who,
        subject,
        &repo.find_tree(tree)?,
        &parents,
    )?;
    Ok(id.to_string())
}

/// Runs git in a folder.
///
/// # Errors
/// It does not end with 0.
pub fn git(folder: &Path, arguments: &[&str]) -> Result<String> {
    let mut command = clean("git", folder);
    command.current_dir(folder).args(arguments);
    Said::of(command)?.ok()
}

/// When an order was where.
#[derive(Debug, Clone, Copy)]
pub struct Arrived {
    /// The webhook was answered.
    pub accepted: Duration,
    /// The signed declaration came out of the node's session: so it is stored and published.
    pub published: Duration,
}

/// Who posts webhooks as the forge does.
#[derive(Debug, Clone)]
pub struct Poster {
    http: reqwest::Client,
    address: SocketAddr,
    secret: String,
}

impl Poster {
    /// The same with connections of its own: those that a runtime has opened end with it.
    ///
    /// # Errors
    /// No client can be made.
    pub fn apart(&self) -> Result<Self> {
        let http = reqwest::Client::builder().tls_certs_only([]).build()?;
        Ok(Self { http, ..self.clone() })
    }

    /// Posts the webhook of a push, signed.
    ///
    /// # Errors
    /// It is not accepted.
    pub async fn post(&self, delivery: &str, after: &str) -> Result<()> {
        let body = serde_json::json!({
            "repo": "fleet", "ref": BRANCH, "before": "0".repeat(40), "after": after, "pusher": "dana",
        })
        .to_string();
        let mac = Hmac::<Sha256>::new_from_slice(self.secret.as_bytes())?.chain_update(body.as_bytes());
        let signature = data_encoding::HEXLOWER.encode(&mac.finalize().into_bytes());
        let post = self
            .http
            .post(format!("http://{}/hooks/bare", self.address))
            .header("content-type", "application/json")
            .header("x-meshplan-delivery", delivery)
            .header("x-meshplan-signature", signature)
            .body(body);
        post.send().await?.error_for_status()?;
        Ok(())
    }
}

/// The ground. Dropped, the service ends and the folder goes.
#[derive(Debug)]
pub struct Ground {
    // Before the folder: the program ends before its files go.
    service: Program,
    repo: FleetRepo,
    forge: SocketAddr,
    address: SocketAddr,
    poster: Poster,
    looks: Arc<AtomicU64>,
    http: reqwest::Client,
    say: Option<Sender<ToLink>>,
    events: Option<Receiver<LinkEvent>>,
    runtime: Runtime,
    folder: TempDir,
}

impl Ground {
    /// Lays a fleet of so many nodes, starts the service, waits until the first commit is delivered, and opens the
    /// session of the node that will be changed.
    ///
    /// # Errors
    /// Something on the way says no, or does not come.
    pub fn lay(nodes: usize) -> Result<Self> {
        // The service's clients of TLS want to know whose cryptography.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::Builder::new().prefix("meshplan-bench-").tempdir()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let looks = Arc::new(AtomicU64::new(0));
        let forge = serve_forge(&runtime, folder.path().join("forge"), Arc::clone(&looks))?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let made = foundation::lay(&Spec {
            state: folder.path().join("state"),
            fleet: FLEET.parse()?,
            branch: "main".to_owned(),
            address,
            forge_url: format!("http://{forge}/fleet.git"),
            repo: "fleet".to_owned(),
            // Nothing but a webhook wakes it: a poll in a round would be measured with it.
            poll_secs: 86_400,
        })?;
        let config = Config::read(&made.config)?;
        let link = LinkSecret::from_bytes(&[9; 32])?;
        let repo = FleetRepo::new(&folder.path().join("forge/fleet.git"), nodes, |path, text| {
            let line = |start: &str, instead: String| {
                let lines = text.lines().map(|l| {
                    if l.starts_with(start) {
                        instead.clone()
                    } else {
                        l.to_owned()
                    }
                });
                lines.collect::<Vec<_>>().join("\n") + "\n"
            };
            match path {
                "fleet.toml" => line("key = ", format!("key = \"{}\"", made.author.key))
                    .replace("id = \"author\"", &format!("id = \"{}\"", made.author.id.0)),
                path if path.ends_with(&last(nodes)) => line(
                    "transport_key = ",
                    format!("transport_key = \"{}\"", link.public()),
                ),
                _ => text,
            }
        })?;
        let mut serve = clean(path("meshplan")?, folder.path());
        serve.env("MESHPLAN_LOG", "warn");
        serve.arg("--config").arg(&made.config).arg("serve");
        let service = Program::start("meshplan serve", serve, folder.path().join("service.log"))?;
        let http = reqwest::Client::builder().tls_certs_only([]).build()?;
        let mut ground = Self {
            service,
            repo,
            forge,
            address,
            poster: Poster {
                http: http.clone(),
                address,
                secret: fs::read_to_string(&config.forge.webhook_secret_file)?
                    .trim()
                    .to_owned(),
            },
            looks,
            http,
            say: None,
            events: None,
            runtime,
            folder,
        };
        let tip = ground.repo.tip()?;
        ground.delivered(&tip)?;
        ground.open_session(&config, link)?;
        ground.until("the first note is pushed", |g| Ok(g.repo.notes().is_some()))?;
        Ok(ground)
    }

    /// The repository at the forge.
    #[must_use]
    pub fn repo(&self) -> &FleetRepo {
        &self.repo
    }
    /// Its address.
    #[must_use]
    pub fn forge_url(&self) -> String {
        format!("http://{}/fleet.git", self.forge)
    }
    /// The folder of the world.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
    /// The process of the service.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.service.id()
    }
    /// How often anybody has asked the forge what its refs point at.
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.looks.load(Ordering::Acquire)
    }

    /// What the service's own status says, as JSON.
    ///
    /// # Errors
    /// It does not answer.
    pub fn api(&self, path: &str) -> Result<serde_json::Value> {
        let url = format!("http://{}{path}", self.address);
        self.runtime.block_on(async {
            let answer = self.http.get(url).send().await?.error_for_status()?;
            Ok(answer.json().await?)
        })
    }

    /// Who posts webhooks.
    #[must_use]
    pub fn poster(&self) -> &Poster {
        &self.poster
    }

    /// Posts the webhook of a push, signed.
    ///
    /// # Errors
    /// It is not accepted.
    pub fn webhook(&self, delivery: &str, after: &str) -> Result<()> {
        self.runtime.block_on(self.poster.post(delivery, after))
    }

    /// Posts the webhook of a merge and waits until the node has its declaration.
    ///
    /// # Errors
    /// It does not come.
    pub fn deliver(&mut self, commit: &str) -> Result<Arrived> {
        let since = Instant::now();
        self.webhook(commit, commit)?;
        let accepted = since.elapsed();
        let events = self.events.as_mut().context("the session was opened")?;
        let heard = self.runtime.block_on(async {
            tokio::time::timeout(PATIENCE, async {
                while let Some(event) = events.recv().await {
                    if declares(&event, commit) {
                        return Ok(());
                    }
                }
                bail!("the link ended")
            })
            .await
        });
        match heard {
            Ok(heard) => heard?,
            Err(_) => bail!("no declaration of {commit} came\n{}", self.service.log()),
        }
        Ok(Arrived {
            accepted,
            published: since.elapsed(),
        })
    }

    /// Waits until the notes at the forge have moved away from where they were: all that a delivery is for is done.
    ///
    /// # Errors
    /// They do not.
    pub fn settle(&mut self, before: Option<git2::Oid>) -> Result<()> {
        self.until("the note is pushed", |g| Ok(g.repo.notes() != before))
    }

    /// Where the notes at the forge are.
    #[must_use]
    pub fn notes(&self) -> Option<git2::Oid> {
        self.repo.notes()
    }

    fn delivered(&mut self, commit: &str) -> Result<()> {
        self.until("the first commit is delivered", |g| {
            let Ok(shown) = g.api(&format!("/api/deliveries/{commit}")) else {
                return Ok(false);
            };
            let state = shown["state"].as_str().unwrap_or_default().to_owned();
            ensure!(
                !matches!(state.as_str(), "failed" | "held"),
                "it is {state}: {shown}"
            );
            Ok(state == "delivered")
        })
    }

    fn open_session(&mut self, config: &Config, link: LinkSecret) -> Result<()> {
        let passphrase = Passphrase::find(config.keys.passphrase_file.as_deref(), |_| None)?;
        let keys = KeyBundle::open(&config.keys.file, &passphrase)?;
        let membership = Membership {
            link: DIRECT.to_owned(),
            fleet: config.fleet.clone(),
            node: NodeId(uuid::Uuid::nil()),
            name: "bench".parse()?,
            addresses: vec![format!("ws://{}/mesh", self.address)],
            reconciler_key: keys.public().link,
        };
        let hello = FromHost::Hello {
            host_version: "0.1.0".into(),
            marks: Box::default(),
            instance: "bench".into(),
            boot_id: "bench".into(),
        };
        let (say, events) = self.runtime.block_on(async {
            let (say, mut events) = spawn(membership, link)?;
            let greeted = tokio::time::timeout(PATIENCE, async {
                while let Some(event) = events.recv().await {
                    match event {
                        LinkEvent::Up(_) => say.send(ToLink::Say(Box::new(hello.clone()))).await?,
                        LinkEvent::Message(word) if *word == ToHost::Current => return Ok(()),
                        LinkEvent::Down { why } => bail!("the session was refused: {why}"),
                        LinkEvent::Message(_) => {}
                    }
                }
                bail!("the link ended")
            });
            greeted.await.context("the session does not come up")??;
            anyhow::Ok((say, events))
        })?;
        (self.say, self.events) = (Some(say), Some(events));
        Ok(())
    }

    fn until(&mut self, what: &str, mut come: impl FnMut(&mut Self) -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !come(self)? {
            if let Some(status) = self.service.ended()? {
                bail!("the service ended with {status}\n{}", self.service.log());
            }
            ensure!(
                Instant::now() < deadline,
                "in vain: {what}\n{}",
                self.service.log()
            );
            std::thread::sleep(EVERY);
        }
        Ok(())
    }

    /// Waits until the forge was asked more than `before` times.
    ///
    /// # Errors
    /// It is not.
    pub fn looked_since(&mut self, before: u64) -> Result<()> {
        self.until("the service looks at the forge", |g| Ok(g.looks() > before))
    }
}

/// Whether this is a declaration that has content of the commit.
fn declares(event: &LinkEvent, commit: &str) -> bool {
    let LinkEvent::Message(word) = event else {
        return false;
    };
    let ToHost::Order { envelope } = &**word else {
        return false;
    };
    let Ok(envelope) = Envelope::read(envelope.as_bytes()) else {
        return false;
    };
    envelope.payload_type == Declaration::TYPE
        && serde_json::from_slice::<Declaration>(&envelope.payload)
            .is_ok_and(|d| d.modules.iter().any(|m| m.commit.as_str() == commit))
}

/// The project's own git server, which counts how often its refs are asked for.
fn serve_forge(runtime: &Runtime, root: PathBuf, looks: Arc<AtomicU64>) -> Result<SocketAddr> {
    fs::create_dir_all(&root)?;
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    let counted = from_fn(move |request: Request, next: Next| {
        let asks = request.uri().query() == Some("service=git-upload-pack");
        let looks = Arc::clone(&looks);
        async move {
            let answer = next.run(request).await;
            if asks {
                looks.fetch_add(1, Ordering::Release);
            }
            answer
        }
    });
    let forge = router(root, Options::default()).layer(counted);
    runtime.spawn(async move { axum::serve(listener, forge).await });
    Ok(address)
}

/// A shell that runs a command so many times and then says what its children have used, as `/proc/PID/stat` has it.
#[must_use]
pub fn repeated(folder: &Path, times: usize, command: &str) -> Command {
    let mut shell = clean("sh", folder);
    shell.current_dir(folder).arg("-ec").arg(format!(
        "i=0; while [ $i -lt {times} ]; do {command}; i=$((i+1)); done; cat /proc/$$/stat"
    ));
    shell
}
