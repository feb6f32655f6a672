//! `meshplan recover`: the database again, from the repository, its record and the machines (DL-12, SG-8).

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use jiff::Timestamp;
use meshplan_schemas::ident::KeyId;
use meshplan_schemas::key::SigningKey;
use serde_json::{Value, json};

use super::client::{Client, SOCKET};
use super::deliveries::{actor, answered};
use super::exit::Exit;
use super::{notes, serve};
use crate::config::Config;
use crate::edge::activation::Waker;
use crate::edge::clock::Clock;
use crate::edge::key_file::{KeyBundle, Passphrase};
use crate::edge::mirror::{FetchError, Mirror, Remote};
use crate::edge::notes::authors_in;
use crate::edge::recover::{Said, Sources, rebuild};
use crate::edge::repository::{Repository, shown};
use crate::edge::store::recovery::Left;
use crate::edge::store::{Store, StoreError};
use crate::edge::vault::Vault;
use crate::pure::parts::Branch;

/// Rebuild a lost database from the repository, its record and the machines. Run it with the configuration of `serve`,
/// while `serve` does not run; then start `serve`. Nothing is signed before every required machine was heard.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Go on without the machines that are not heard: also while `serve` waits for them.
    #[arg(long)]
    pub force: bool,
    /// Rebuild although there is a database; a copy of it is kept beside it.
    #[arg(long)]
    pub over: bool,
    /// A key that may have signed, besides the authors of fleet.toml: `ID=ed25519:BASE64`. May be given again.
    #[arg(long = "key", value_name = "ID=KEY", value_parser = notes::named_key)]
    pub keys: Vec<(KeyId, SigningKey)>,
}

/// Runs the command.
///
/// # Errors
/// The configuration, the keys, the repository or the store; the text says what to do. Nothing has changed then.
pub async fn run(args: &Args, path: &Path, as_json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let config = Config::read(path)?;
    std::fs::create_dir_all(&config.state_dir)
        .with_context(|| format!("cannot make the state folder {}", config.state_dir.display()))?;
    let clock = Clock::system();
    let database = config.state_dir.join("meshplan.db");
    let store = match Store::open(&database, clock).await {
        Ok(store) => store,
        Err(StoreError::InUse { .. }) if args.force => return force(path, as_json, out).await,
        Err(in_use @ StoreError::InUse { .. }) => {
            return Err(anyhow::Error::new(in_use).context(format!(
                "`meshplan serve` has the database ({} is there): stop it first, or give --force to end a wait for machines",
                config.state_dir.join(SOCKET).display()
            )));
        }
        Err(error) => return Err(error.into()),
    };
    let left = store.left().await?;
    if let Some(exit) = settled(args, &store, &left, as_json, out).await? {
        store.close().await;
        return Ok(exit);
    }
    if left.deliveries > 0 {
        let beside = beside(&database, clock.now());
        store
            .copy_to(&beside)
            .await
            .with_context(|| format!("cannot keep a copy of the database as {}", beside.display()))?;
        if !as_json {
            writeln!(out, "kept a copy of the database as {}", beside.display())?;
        }
    }
    let said = from_repository(args, &config, &store, left).await?;
    store.close().await;
    print(&said, as_json, out)?;
    Ok(Exit::Done)
}

/// What is to be done about a database that is there; none where it may be rebuilt.
async fn settled(
    args: &Args,
    store: &Store,
    left: &Left,
    as_json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<Option<Exit>> {
    if left.deliveries == 0 || args.over {
        return Ok(None);
    }
    let (exit, sentence) = match store.recovering().await? {
        Some(_) if args.force => {
            store.force_recovery(&actor()).await?;
            (
                Exit::Done,
                "nobody is waited for any more: start `meshplan serve`".to_owned(),
            )
        }
        Some(under_way) => (
            Exit::Done,
            format!(
                "the database is rebuilt already, from {} blocks, and waits for its machines: start `meshplan serve`, which \
                 says for whom; --force goes on without them",
                under_way.blocks
            ),
        ),
        None => (
            Exit::No,
            format!(
                "there is a database with {} deliveries, and nothing to recover: start `meshplan serve`. To rebuild it all \
                 the same give --over: a copy of it is kept",
                left.deliveries
            ),
        ),
    };
    if as_json {
        writeln!(out, "{}", json!({ "rebuilt": false, "said": sentence }))?;
    } else {
        writeln!(out, "{sentence}")?;
    }
    Ok(Some(exit))
}

/// A name beside the database that is not taken: the time, and a number where two are of one second.
fn beside(database: &Path, now: Timestamp) -> std::path::PathBuf {
    let of_now = format!("meshplan.db.before-{}", now.strftime("%Y%m%dT%H%M%SZ"));
    let mut path = database.with_file_name(&of_now);
    let mut copies = 1_u32;
    while path.exists() {
        copies += 1;
        path = database.with_file_name(format!("{of_now}-{copies}"));
    }
    path
}

/// Tells the reconciler that runs.
async fn force(path: &Path, as_json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let client = Client::of(path)?;
    let answer: Value = client.post("/api/recover", &json!({ "actor": actor() })).await?;
    answered(&answer, as_json, out)
}

async fn from_repository(args: &Args, config: &Config, store: &Store, left: Left) -> anyhow::Result<Said> {
    let passphrase = Passphrase::find(config.keys.passphrase_file.as_deref(), |name| {
        std::env::var_os(name)
    })?;
    let bundle = KeyBundle::open(&config.keys.file, &passphrase)?;
    let settings = serve::settings(config, &bundle);
    let clock = Clock::system();
    let remote = Remote {
        url: config.forge.url.clone(),
        branch: config.branch.clone(),
        credentials: serve::credentials(config.forge.credentials_file.as_deref())?,
    };
    let (path, now) = (config.state_dir.join("mirror"), clock.now());
    let components = serve::components(config)?;
    let to_fetch = components.clone();
    let read = move || -> anyhow::Result<_> {
        let mut mirror = Mirror::open(&path, remote)?;
        mirror.fetch().context("the repository cannot be fetched")?;
        let unfetched = fetch_components(&mirror, &to_fetch);
        let mut writer = mirror.notes()?;
        // What this mirror wrote and could not push is part of the record too.
        writer.append(&[], now)?;
        let notes = writer.read_all()?;
        let commits = mirror.commits(notes.keys())?;
        let commits = commits.into_iter().map(|c| (c.id.clone(), shown(c))).collect();
        let keys = authors_in(mirror.path()).context("cannot read the authors of fleet.toml")?;
        Ok((mirror, notes, commits, keys, unfetched))
    };
    let (mirror, notes, commits, mut keys, unfetched) = tokio::task::spawn_blocking(read).await??;
    let public = bundle.public();
    keys.push((settings.author.clone(), public.author));
    keys.extend(args.keys.iter().cloned());
    let vault = Arc::new(Vault::beside(&config.keys.file)?);
    let mut repository = Repository::new(
        Arc::new(Mutex::new(mirror)),
        &config.forge.repo,
        serve::expected(config, &vault),
        config.forge.poll_secs,
        Waker::default(),
        Waker::default(),
    )
    .with_components(components);
    let sources = Sources {
        notes,
        commits,
        keys,
        left,
        settings: &settings,
        vault: &vault,
        forced: args.force.then(actor),
        now,
    };
    for sentence in &unfetched {
        tracing::warn!("{sentence}");
    }
    let mut said = rebuild(sources, store, &mut repository).await?;
    said.unknown.extend(unfetched);
    Ok(said)
}

/// Fetches what trees may be made of; a sentence for each that cannot be had. What of it is needed is missed where it is: one
/// whose repository is gone hinders no other.
fn fetch_components(mirror: &Mirror, components: &BTreeMap<Branch, Remote>) -> Vec<String> {
    let fetched = components
        .iter()
        .map(|(of, remote)| (of, mirror.fetch_component(of, remote)));
    let failed = fetched.filter_map(|(of, fetched)| Some((of, fetched.err()?)));
    let words = |(of, error): (&Branch, FetchError)| {
        format!(
            "the component {} ({}) cannot be fetched: {error}; `meshplan serve` tries again",
            of.repo, of.branch
        )
    };
    failed.map(words).collect()
}

fn print(said: &Said, as_json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    if as_json {
        let awaited: Vec<&str> = said.awaited.iter().map(|a| a.name.as_str()).collect();
        let text = json!({
            "rebuilt": true, "blocks": said.blocks, "deliveries": said.deliveries, "nodes": said.nodes,
            "numbers": said.numbers, "go_on": said.walks, "awaited": awaited, "unknown": said.unknown,
        });
        writeln!(out, "{text:#}")?;
        return Ok(());
    }
    writeln!(
        out,
        "rebuilt from {} blocks: {} deliveries, what {} nodes shall run",
        said.blocks, said.deliveries, said.nodes
    )?;
    for walk in &said.walks {
        writeln!(out, "goes on: {walk}")?;
    }
    for unknown in &said.unknown {
        writeln!(out, "not rebuilt: {unknown}")?;
    }
    let numbers = said.numbers;
    writeln!(
        out,
        "known so far: epoch {}, list revision {}, sequence {}",
        numbers.epoch, numbers.revision, numbers.sequence
    )?;
    writeln!(out, "{}", said.waits)?;
    writeln!(out, "next: start `meshplan serve`")?;
    Ok(())
}
