//! `meshplan serve`: the daemon, put together.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use meshplan_schemas::envelope::Signer as _;
use meshplan_schemas::fleet_list::{Author, Reconciler};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::client::SOCKET;
use super::exit::Exit;
use crate::config::Config;
use crate::edge::activation::{self, Waker};
use crate::edge::admission::{ADMISSION, Admissions};
use crate::edge::announce::Watched;
use crate::edge::artifacts::ArtifactStore;
use crate::edge::clock::Clock;
use crate::edge::desk::StoreDesk;
use crate::edge::forge::Forge;
use crate::edge::forge::carrier::{COMMENT, STATUS, Speaker};
use crate::edge::forge::keeper::{Components, Keeper as PullKeeper};
use crate::edge::git_transport::Credentials;
use crate::edge::health::Health;
use crate::edge::http;
use crate::edge::key_file::{KeyBundle, Passphrase};
use crate::edge::mesh::Mesh;
use crate::edge::mirror::{Mirror, Remote};
use crate::edge::note_keeper::Keeper;
use crate::edge::operator::Counter;
use crate::edge::outbox::Outbox;
use crate::edge::repository::{LookNow, Repository};
use crate::edge::revert::Reverts;
use crate::edge::rollouts::PutAway;
use crate::edge::signer;
use crate::edge::store::Store;
use crate::edge::store::act::REVERT;
use crate::edge::store::journal::NOTES;
use crate::edge::store::reports::ReportWriter;
use crate::edge::vault::Vault;
use crate::edge::webhook::Hooks;
use crate::pass::{Engine, Signers};
use crate::pure::compose::Expected;
use crate::pure::decide::{Contents, Settings};
use crate::pure::hearing::Hearing;
use crate::pure::parts::Branch;
use crate::pure::secrets::OpensSecrets;

/// The era of all orders until the offline roots raise it (SG-11).
const ERA: u64 = 0;
/// Note pushes are batched within this time (DL-10).
const NOTES_GATHER: Duration = Duration::from_millis(300);
/// How long a plan of ours to restart may take, in seconds, as hosts are told (EP-2).
const RESTART_SECS: u32 = 30;

/// Runs until SIGINT or SIGTERM.
///
/// # Errors
/// Something that the service cannot start without; the text says what to do.
pub async fn run(path: &Path) -> anyhow::Result<Exit> {
    signer::harden().context("cannot turn core dumps off")?;
    let config = Config::read(path)?;
    let stop = CancellationToken::new();
    tokio::spawn(on_signal(stop.clone()));
    serve(&config, stop).await?;
    Ok(Exit::Done)
}

async fn on_signal(stop: CancellationToken) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return;
    };
    tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
    stop.cancel();
}

/// Puts the service together and runs it until `stop`.
///
/// # Errors
/// As [`run`].
pub async fn serve(config: &Config, stop: CancellationToken) -> anyhow::Result<()> {
    let clock = Clock::system();
    std::fs::create_dir_all(&config.state_dir)
        .with_context(|| format!("cannot make the state folder {}", config.state_dir.display()))?;
    let passphrase = Passphrase::find(config.keys.passphrase_file.as_deref(), |name| {
        std::env::var_os(name)
    })?;
    let keys = KeyBundle::open(&config.keys.file, &passphrase)?;
    let store = Store::open(&config.state_dir.join("meshplan.db"), clock).await?;
    let artifacts = ArtifactStore::open(&config.state_dir)
        .with_context(|| format!("cannot open the artifacts in {}", config.state_dir.display()))?;
    let waker = Waker::default();
    let notes_waker = Waker::default();
    let health = Arc::new(Health::default());
    let (reports, report_task) = ReportWriter::start(store.clone(), waker.clone());

    let forge = Forge::open(&config.forge, clock)?.map(Arc::new);
    let pulls_waker = Waker::default();

    let credentials = credentials(config.forge.credentials_file.as_deref())?;
    let components = components(config)?;
    let remote = Remote {
        url: config.forge.url.clone(),
        branch: config.branch.clone(),
        credentials,
    };
    let of_pulls = remote.clone();
    let mirror_path = config.state_dir.join("mirror");
    let of_fleet = mirror_path.clone();
    let mirror = tokio::task::spawn_blocking(move || Mirror::open(&of_fleet, remote)).await??;
    let mirror = Arc::new(Mutex::new(mirror));

    let vault = Arc::new(Vault::beside(&config.keys.file)?);
    let of_tree = expected(config, &vault);
    let repository = Repository::new(
        Arc::clone(&mirror),
        &config.forge.repo,
        of_tree.clone(),
        config.forge.poll_secs,
        notes_waker.clone(),
        waker.clone(),
    )
    .telling(forge.is_some().then(|| pulls_waker.clone()))
    .with_components(components.clone());
    let look_now = repository.look_now();
    let admissions = Admissions::new(
        config,
        &keys.public(),
        Arc::clone(&mirror),
        Arc::clone(&health),
        notes_waker.clone(),
        look_now.clone(),
        clock,
    )
    .at(forge.clone());
    let desk = Arc::new(StoreDesk {
        store: store.clone(),
        reports,
        artifacts: artifacts.clone(),
        fleet: config.fleet.clone(),
        health: Arc::clone(&health),
        waker: waker.clone(),
        admissions: admissions.clone(),
        heartbeat: AtomicU32::new(30),
    });
    let mesh = Mesh::new(desk, vec![keys.link().clone()], config.fleet.clone());
    let mut engine = Engine {
        store: store.clone(),
        repository,
        mesh: mesh.clone(),
        settings: settings(config, &keys),
        signers: Signers {
            author: Box::new(keys.author()),
            timestamp: Box::new(keys.timestamp()),
        },
        vault,
        artifacts,
        collected_at: None,
        clock,
        health: Arc::clone(&health),
        contents: Contents::default(),
        read_at: None,
        read_modules: 0,
        hearing: Hearing::from(clock.moment()),
        put_away: PutAway::default(),
    };
    let doors = stop.child_token();
    let counter = Counter {
        store: store.clone(),
        health: Arc::clone(&health),
        mesh: mesh.clone(),
        roll_call: Arc::default(),
        admissions,
        waker: waker.clone(),
        clock,
        fleet: config.fleet.to_string(),
        branch: config.branch.clone(),
        watched: Watched {
            branches: watched(config, components.keys()),
            look_now: look_now.clone(),
            mirror: Arc::clone(&mirror),
        },
        stop: doors.clone(),
    };

    // All doors open before anything is promised: a port that is taken ends the start, nothing half-running.
    let listener = http::listen(config.listen).await?;
    let socket = http::open_socket(&config.state_dir.join(SOCKET))?;
    let mut hooks = Hooks::new(&config.forge, &config.branch, store.clone(), waker.clone())?
        .looking_again(look_now)
        .with_components(components.keys().cloned());
    let pulls_now = LookNow::default();
    if forge.is_some() {
        hooks = hooks.telling_of_pulls(pulls_waker.clone(), pulls_now.clone());
    }
    tracing::info!(listen = %config.listen, fleet = %config.fleet, "serving");

    let keeper = Keeper {
        store: store.clone(),
        mirror: Arc::clone(&mirror),
        health: Arc::clone(&health),
        clock,
        signer: Arc::new(keys.author()),
    };
    let reverts = Reverts {
        store: store.clone(),
        mirror: Arc::clone(&mirror),
        forge: forge.clone(),
        branch: config.branch.clone(),
        health: Arc::clone(&health),
        clock,
    };
    let mut outbox = Outbox::new(store.clone(), notes_waker.clone(), clock, NOTES_GATHER)
        .carrier(NOTES, keeper.carrier())
        .carrier(ADMISSION, counter.admissions.carrier(waker.clone()))
        .carrier(REVERT, reverts.carrier());
    let mut pulls = None;
    if let Some(forge) = forge {
        let speaker = Speaker {
            forge: Arc::clone(&forge),
            store: store.clone(),
            health: Arc::clone(&health),
            said_at: Arc::default(),
        };
        outbox = outbox
            .carrier(STATUS, speaker.statuses())
            .carrier(COMMENT, speaker.comments())
            .resting(NOTES, forge.manners().push_gap);
        let path = config.state_dir.join("pulls");
        let mirror = tokio::task::spawn_blocking(move || Mirror::open(&path, of_pulls)).await??;
        let keeper = PullKeeper {
            forge,
            store: store.clone(),
            mirror: Arc::new(Mutex::new(mirror)),
            // What is not merged is read, and nothing is opened for it.
            expected: Expected {
                opener: None,
                ..of_tree
            },
            components: (!components.is_empty()).then(|| Components {
                objects: mirror_path.join("objects"),
                allowed: components.keys().cloned().collect(),
            }),
            repo: config.forge.repo.clone(),
            branch: config.branch.clone(),
            health: Arc::clone(&health),
            clock,
            waker: pulls_waker,
            look_now: pulls_now,
            outbox: notes_waker,
            pass: waker.clone(),
            poll: jiff::SignedDuration::from_secs(i64::from(config.forge.poll_secs.max(1))),
        };
        let keeper_stop = stop.clone();
        pulls = Some(tokio::spawn(async move { keeper.run(&keeper_stop).await }));
    }
    let tcp = tokio::spawn(http::serve_tcp(
        listener,
        hooks.router(),
        mesh.router(),
        counter.clone(),
        doors.clone(),
    ));
    let unix = tokio::spawn(http::serve_socket(socket, counter, doors.clone()));
    let outbox_stop = stop.clone();
    let outbox = tokio::spawn(async move { outbox.run(&outbox_stop).await });

    let poll = Duration::from_secs(u64::from(config.forge.poll_secs.max(1)));
    let engine_cell = tokio::sync::Mutex::new(&mut engine);
    activation::drive(&waker, poll, clock, &stop, || async {
        engine_cell.lock().await.pass().await
    })
    .await;

    tracing::info!("stopping");
    mesh.restarting(RESTART_SECS);
    mesh.close();
    doors.cancel();
    // Doors close by themselves once the last answer is out; a reader that hangs is not waited for.
    let drained = async {
        let _ = tokio::join!(tcp, unix, outbox);
        if let Some(pulls) = pulls {
            let _ = pulls.await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(5), drained)
        .await
        .is_err()
    {
        tracing::warn!("something did not end in time and is dropped");
    }
    drop((mesh, report_task));
    store.close().await;
    Ok(())
}

/// What a tree is held to: the fleet and branch of the configuration; its secrets are opened.
pub(super) fn expected(config: &Config, vault: &Arc<Vault>) -> Expected {
    Expected {
        fleet: Some(config.fleet.clone()),
        branch: Some(config.branch.clone()),
        forge: Some(config.forge.kind),
        opener: Some(Arc::clone(vault) as Arc<dyn OpensSecrets>),
    }
}

/// The components that may be fetched, and where.
pub(super) fn components(config: &Config) -> anyhow::Result<BTreeMap<Branch, Remote>> {
    let mut all = BTreeMap::new();
    for component in &config.components {
        let of = Branch {
            repo: component.repo.clone(),
            branch: component.branch.clone(),
        };
        let remote = Remote {
            url: component.url.clone(),
            branch: component.branch.clone(),
            credentials: credentials(component.credentials_file.as_deref())?,
        };
        let is_new = all.keys().all(|known: &Branch| known.repo != of.repo);
        anyhow::ensure!(
            is_new && component.repo != config.forge.repo,
            "the configuration names the component {} twice, or it is the fleet repo itself: a repository is delivered from one \
             branch",
            component.repo
        );
        all.insert(of, remote);
    }
    Ok(all)
}

/// The branches whose merges are orders: the fleet's, then those of components.
fn watched<'c>(config: &Config, components: impl Iterator<Item = &'c Branch>) -> Vec<Branch> {
    let fleet = Branch {
        repo: config.forge.repo.clone(),
        branch: config.branch.clone(),
    };
    std::iter::once(fleet).chain(components.cloned()).collect()
}

/// The credentials for a repository, where the configuration names a file.
pub(super) fn credentials(file: Option<&Path>) -> anyhow::Result<Option<Credentials>> {
    let Some(file) = file else { return Ok(None) };
    let text = Zeroizing::new(
        std::fs::read_to_string(file)
            .with_context(|| format!("cannot read credentials_file {}", file.display()))?,
    );
    let credentials = Credentials::parse(&text)
        .with_context(|| format!("{} is empty: it holds `user:password` or a token", file.display()))?;
    Ok(Some(credentials))
}

pub(super) fn settings(config: &Config, keys: &KeyBundle) -> Settings {
    let public = keys.public();
    Settings {
        fleet: config.fleet.clone(),
        repo: config.forge.repo.clone(),
        branch: config.branch.clone(),
        era: ERA,
        author: keys.author().key_id(),
        reconcilers: vec![Reconciler {
            id: "reconciler".to_owned(),
            addresses: config.addresses.clone(),
            key: public.link,
            next_key: None,
            valid_to: 0,
        }],
        asks_forge: config.forge.token_file.is_some(),
        timestamp_keys: vec![Author {
            id: keys.timestamp().key_id(),
            key: public.timestamp,
        }],
    }
}
