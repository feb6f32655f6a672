//! Time, and everything that happens in it: the engine's passes, the hosts' doings, the words between them.
//!
//! Nothing runs by itself: the clock goes from one instant at which something is due to the next, and at each everybody
//! does what there is to do until nobody has anything left. So a day passes in a moment, and always the same way.

mod rest;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use meshplan_schemas::declaration::Declaration;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::envelope::{Signer as _, SoftSigner};
use meshplan_schemas::epoch::Epoch;
use meshplan_schemas::ident::{CommitId, FleetName, KeyId, NodeId};
use meshplan_schemas::key::SigningKey;
use meshplan_schemas::report::Cause;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::fleet::{AUTHOR_SEED, enrolled, made_up};
use super::forge::{BRANCH, Files, Forge, REPO, Repo, source_tree};
use super::host::{Host, Probes};
use super::links::{SimLinks, payload};
use super::recover;
use super::reverts;
use super::rollout;
use super::script::{Does, FleetOf, Service, Step, Which};
use super::show;
use super::signed_list::SignedList;
use super::spent::{Spent, processor};
use super::word::Word;
use crate::edge::activation::Waker;
use crate::edge::artifacts::ArtifactStore;
use crate::edge::clock::Clock;
use crate::edge::health::Health;
use crate::edge::rollouts::PutAway;
use crate::edge::store::reports::ReportWriter;
use crate::edge::store::{Store, StoreError};
use crate::edge::vault::Vault;
use crate::edge::worktree;
use crate::pass::{Engine, Signers};
use crate::pure::compose::compose_tree;
use crate::pure::decide::{Contents, Settings};
use crate::pure::hearing::Hearing;
use crate::pure::snapshot::{Request, Review, Verb};

/// When every rehearsal begins: a Monday morning.
const BEGINS: &str = "2026-11-30T08:00:00Z";
/// How often everybody may act at one instant before something goes round in circles.
const ROUNDS: usize = 500;
/// Between the heartbeats of a simulated host at rest, where the fleet does not want fewer.
const QUIET_SECS: u32 = 300;
/// Reports that are stored together.
const TOGETHER: usize = 500;

/// Why a step was not played.
#[derive(Debug)]
pub(super) enum Trouble {
    /// What it asks for is not there.
    Step(String),
    /// The store.
    Store(StoreError),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The world.
pub(super) struct World {
    /// None only while the process dies.
    pub(super) store: Option<Store>,
    pub(super) forge: Forge,
    pub(super) clock: Clock,
    pub(super) health: Arc<Health>,
    pub(super) hosts: BTreeMap<NodeId, Host>,
    pub(super) engine: Option<Engine<Repo, SimLinks>>,
    links: SimLinks,
    pub(super) reports: Option<(ReportWriter, JoinHandle<()>)>,
    pub(super) settings: Option<(Settings, KeyId)>,
    /// When the next pass is due.
    due: Option<Timestamp>,
    /// Orders as hosts can have them.
    pub(super) declarations: BTreeMap<NodeId, Declaration>,
    pub(super) epochs: BTreeMap<Digest, Epoch>,
    pub(super) newest_epoch: Option<Epoch>,
    list: SignedList,
    /// How many transitions of each delivery were told.
    told: BTreeMap<String, usize>,
    requests: u32,
    /// How often a pass died, which a failpoint of a test alone makes it do.
    pub(super) died: u32,
    /// The notes of the repository, from when a database was lost.
    pub(super) notes: BTreeMap<CommitId, String>,
    /// The numbers that were used before a database was lost, with what bore them.
    pub(super) spent: BTreeMap<(String, i64, String), String>,
    pub(super) folder: TempDir,
    /// The reconciler's share of the processor's time.
    pub(super) costs: Spent,
}

impl World {
    /// A world without a fleet.
    pub(super) async fn new() -> Result<Self, super::SimulationError> {
        let begins: Timestamp = BEGINS.parse().unwrap_or(Timestamp::UNIX_EPOCH);
        let clock = Clock::simulated(begins);
        let folder = tempfile::tempdir()?;
        let mut world = Self {
            store: None,
            forge: Forge::default(),
            clock,
            health: Arc::new(Health::default()),
            hosts: BTreeMap::new(),
            engine: None,
            links: SimLinks::default(),
            reports: None,
            settings: None,
            due: None,
            declarations: BTreeMap::new(),
            epochs: BTreeMap::new(),
            newest_epoch: None,
            list: SignedList::default(),
            told: BTreeMap::new(),
            requests: 0,
            died: 0,
            notes: BTreeMap::new(),
            spent: BTreeMap::new(),
            folder,
            costs: Spent::default(),
        };
        world.open().await?;
        Ok(world)
    }

    /// The store, as it is on the disk.
    pub(super) fn store(&self) -> Result<&Store, Trouble> {
        let closed = || Trouble::Step("the store is closed: a fault of the simulation".to_owned());
        self.store.as_ref().ok_or_else(closed)
    }

    pub(super) async fn open(&mut self) -> Result<(), StoreError> {
        let store = Store::open(&self.folder.path().join("meshplan.db"), self.clock).await?;
        self.reports = Some(ReportWriter::start(store.clone(), Waker::default()));
        self.store = Some(store);
        Ok(())
    }

    /// The reconciler's process ends: what is not on the disk is gone.
    async fn die(&mut self) -> Result<(), Trouble> {
        self.end().await;
        self.open().await?;
        Ok(())
    }

    /// Nobody has the database open any more.
    pub(super) async fn end(&mut self) {
        self.engine = None;
        if let Some((reports, writer)) = self.reports.take() {
            drop(reports);
            // It ends by itself once nobody can send it anything.
            let _ended = writer.await;
        }
        if let Some(store) = self.store.take() {
            store.close().await;
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Plays one step; what there is to say of it.
    pub(super) async fn play(&mut self, step: &Step, base: &Path) -> Result<Vec<String>, Trouble> {
        let mut said = Vec::new();
        match &step.does {
            Does::Fleet(of) => self.found(of, base)?,
            Does::Merge {
                subject,
                allows_removals,
                edits,
            } => {
                let commit = self.forge.merge(subject, allows_removals.as_deref(), None, edits);
                commit.map_err(Trouble::Step)?;
                // The webhook, when the forge can send one.
                if !self.forge.is_down() {
                    self.wake();
                }
            }
            Does::Advance(by) => {
                let until = later(self.now(), *by);
                self.advance(until, &mut said).await?;
                return Ok(said);
            }
            Does::Clock(secs) => {
                self.clock.jump(*secs);
                self.wake();
            }
            Does::Power(which, on) => self.power(which, *on)?,
            Does::Link(which, on) => {
                let now = self.now();
                self.each(which, |host| {
                    host.linked = *on;
                    if *on && host.powered {
                        host.came_back(now);
                    }
                })?;
            }
            Does::Break(which, text) => self.each(which, |host| host.breaks.push(text.clone()))?,
            Does::Sick(which) => self.each(which, |host| host.probes = Probes::No)?,
            Does::Flap(which) => self.each(which, |host| host.probes = Probes::InTurns)?,
            Does::Mend(which) => self.each(which, |host| {
                host.probes = Probes::Yes;
                host.breaks.clear();
            })?,
            Does::Version(version, which) => self.each(which, |host| host.version = version.clone())?,
            Does::ForcePush(commit) => {
                self.forge.set_back(*commit).map_err(Trouble::Step)?;
                self.wake();
            }
            Does::Forge(up) => self.forge.set_down(!up),
            Does::Reconciler(service) => {
                if *service != Service::Start {
                    self.die().await?;
                }
                if *service != Service::Stop {
                    self.serve()?;
                }
            }
            Does::LoseDatabase => recover::lose(self).await?,
            Does::Recover { force } => return recover::recover(self, *force).await,
            Does::Say { verb, delivery, why } => {
                let commit = self.forge.numbered(*delivery);
                let commit = commit.ok_or_else(|| Trouble::Step(format!("there is no commit {delivery}")))?;
                return self.ask(Word::of(*verb, Some(commit.id)).because(why)).await;
            }
            Does::Freeze { time, why } => {
                let time = time.and_then(|time| jiff::SignedDuration::try_from(time).ok());
                let until = time.and_then(|time| self.now().checked_add(time).ok());
                let word = Word::of(Verb::Freeze, None).because(why);
                return self.ask(Word { until, ..word }).await;
            }
            Does::Approve(delivery, by) => {
                let commit = self.forge.numbered(*delivery);
                let commit = commit.ok_or_else(|| Trouble::Step(format!("there is no commit {delivery}")))?;
                let seen = self
                    .store()?
                    .delivery(&commit.id)
                    .await?
                    .and_then(|found| found.binds);
                let binds = seen.ok_or_else(|| Trouble::Step(format!("{delivery} changes nothing yet")))?;
                let review = Review {
                    by: by.clone(),
                    at: self.now(),
                    binds,
                };
                self.store()?.put_review(&commit.id, &review).await?;
                self.wake();
            }
            Does::Lift => {
                return self.ask(Word::of(Verb::Lift, None)).await;
            }
            Does::MergeRevert(delivery) => return reverts::merge(self, *delivery).await,
            Does::Rollout(order) => return rollout::order(self, order).await,
            Does::Show(what) => return show::show(self, what).await,
            Does::Why(which) => return show::why(self, which).await,
        }
        self.settle(&mut said).await?;
        Ok(said)
    }

    /// A person asks, and waits for the answer.
    pub(super) async fn ask(&mut self, word: Word) -> Result<Vec<String>, Trouble> {
        let mut said = Vec::new();
        self.requests += 1;
        let id = format!("request {}", self.requests);
        let request = Request {
            id: id.clone(),
            at: self.now(),
            actor: "dana".to_owned(),
            verb: word.verb,
            commit: word.commit,
            until: word.until,
            why: word.why,
            start: word.start,
            by: None,
        };
        self.store()?.add_request(&request).await?;
        self.wake();
        self.settle(&mut said).await?;
        let answer = self.store()?.answer(&id).await?;
        said.push(format!(
            "answer: {}",
            answer.unwrap_or_else(|| "nobody answers".to_owned())
        ));
        Ok(said)
    }

    /// The first commit, and who serves it.
    fn found(&mut self, of: &FleetOf, base: &Path) -> Result<(), Trouble> {
        if self.settings.is_some() {
            return Err(Trouble::Step("there is a fleet already".to_owned()));
        }
        let files: Files = match of {
            FleetOf::Machines(count) => made_up(*count),
            FleetOf::Folder(folder) => {
                let read = worktree::read_folder(&base.join(folder));
                let (tree, _) = read.map_err(|e| Trouble::Step(format!("{folder}: {e}")))?;
                let files = tree.iter().map(|(path, entry)| {
                    let bytes = enrolled(path, &entry.bytes).unwrap_or_else(|| Arc::clone(&entry.bytes));
                    (path.to_owned(), bytes)
                });
                files.collect()
            }
        };
        let composed = compose_tree(&source_tree(&files), None, Some(BRANCH))
            .map_err(|e| Trouble::Step(e.to_string()))?;
        let fleet: FleetName = composed.fleet.fleet.clone();
        let author = composed.fleet.authors.first().map(|author| author.id.clone());
        let author = author.ok_or_else(|| Trouble::Step("fleet.toml names no author".to_owned()))?;
        let settings = Settings {
            fleet,
            repo: REPO.to_owned(),
            branch: BRANCH.to_owned(),
            era: 0,
            author: author.clone(),
            reconcilers: Vec::new(),
            asks_forge: false,
            timestamp_keys: Vec::new(),
        };
        self.settings = Some((settings, author));
        self.forge
            .merge("the fleet as it is", None, Some(files), &[])
            .map_err(Trouble::Step)?;
        self.serve()
    }

    /// The reconciler starts.
    pub(super) fn serve(&mut self) -> Result<(), Trouble> {
        let Some((settings, author)) = self.settings.clone() else {
            return Err(Trouble::Step("there is no fleet yet".to_owned()));
        };
        let signer =
            |id: KeyId| SoftSigner::new(Some(id), &AUTHOR_SEED).map_err(|e| Trouble::Step(e.to_string()));
        self.engine = Some(Engine {
            store: self.store()?.clone(),
            repository: Repo::new(self.forge.clone()),
            mesh: self.links.clone(),
            signers: Signers {
                author: Box::new(signer(author)?),
                timestamp: Box::new(signer(KeyId("timestamp".to_owned()))?),
            },
            // A rehearsal has stand-ins for values, and keeps them as values are kept.
            vault: Arc::new(Vault::of_stand_ins()),
            artifacts: ArtifactStore::in_memory(),
            collected_at: None,
            settings,
            clock: self.clock,
            health: Arc::clone(&self.health),
            contents: Contents::default(),
            read_at: None,
            read_modules: 0,
            hearing: Hearing::from(self.clock.moment()),
            put_away: PutAway::default(),
        });
        // Every host comes up again, and is sent what it lacks.
        self.links.said().published = true;
        self.wake();
        Ok(())
    }

    /// The public half of the author's key.
    pub(super) fn author_key(&self) -> Result<SigningKey, String> {
        let signer = SoftSigner::new(None, &AUTHOR_SEED).map_err(|e| e.to_string())?;
        Ok(signer.public())
    }

    pub(super) fn wake(&mut self) {
        self.due = Some(self.now());
    }

    fn power(&mut self, which: &Which, on: bool) -> Result<(), Trouble> {
        let now = self.now();
        self.each(which, |host| {
            if on && !host.powered {
                host.start(now);
            } else if !on {
                host.cut_power();
            }
        })
    }

    fn each(&mut self, which: &Which, act: impl Fn(&mut Host)) -> Result<(), Trouble> {
        match which {
            Which::Every(n) => self.hosts.values_mut().skip(n - 1).step_by(*n).for_each(act),
            Which::Named(names) => {
                for name in names {
                    let host = self.hosts.values_mut().find(|host| host.name.as_str() == name);
                    act(host.ok_or_else(|| Trouble::Step(format!("there is no machine {name}")))?);
                }
            }
        }
        self.wake();
        Ok(())
    }

    /// Lets time pass, from one instant at which something is due to the next.
    async fn advance(&mut self, until: Timestamp, said: &mut Vec<String>) -> Result<(), Trouble> {
        self.settle(said).await?;
        while self.now() < until {
            let due = self.due.filter(|_| self.engine.is_some());
            let hosts = self.hosts.values().filter_map(Host::wakes);
            let next = hosts
                .chain(due)
                .filter(|at| *at > self.now())
                .min()
                .unwrap_or(until)
                .min(until);
            let by = next.duration_since(self.now());
            self.clock
                .advance(Duration::try_from(by).unwrap_or(Duration::from_secs(1)));
            self.settle(said).await?;
        }
        Ok(())
    }

    /// Everybody does what is due now, until nobody has anything left.
    pub(super) async fn settle(&mut self, said: &mut Vec<String>) -> Result<(), Trouble> {
        for _ in 0..ROUNDS {
            let mut moved = self.pass_if_due().await?;
            moved |= self.hosts_act().await?;
            self.tell(said).await?;
            if !moved {
                return Ok(());
            }
        }
        Err(Trouble::Step(format!(
            "at {} everybody goes on acting and nothing comes of it: a fault of the simulation or of the engine",
            self.now()
        )))
    }

    async fn pass_if_due(&mut self) -> Result<bool, Trouble> {
        let now = self.now();
        let connected = self
            .hosts
            .values()
            .filter(|host| host.reachable())
            .map(|host| host.id)
            .collect();
        self.links.said().connected = connected;
        if self.due.is_none_or(|due| due > now) {
            return Ok(false);
        }
        let Some(engine) = &mut self.engine else {
            return Ok(false);
        };
        let since = processor();
        let passed = AssertUnwindSafe(engine.pass()).catch_unwind().await;
        self.costs.passes += processor().saturating_sub(since);
        let Ok(next) = passed else {
            self.died += 1;
            self.die().await?;
            self.serve()?;
            return Ok(true);
        };
        // One that is due now was just made: what it waits for is a second away.
        self.due = next.map(|at| at.max(later(now, Duration::from_secs(1))));
        self.meet().await?;
        Ok(true)
    }

    /// Machines of the newest tree that are not here yet come up; orders are where hosts can have them.
    async fn meet(&mut self) -> Result<(), Trouble> {
        let now = self.now();
        if let Some(roster) = self.health.roster() {
            let fleet = &roster.fleet.fleet;
            for node in roster.nodes.values().filter(|node| node.enrolled) {
                let host = || Host::new(node.id, node.name.clone(), fleet.clone(), now);
                self.hosts.entry(node.id).or_insert_with(host);
            }
        }
        if !std::mem::take(&mut self.links.said().published) {
            return Ok(());
        }
        let store = self.store()?.clone();
        if let Some(stored) = store.newest_epoch().await?
            && let Some(epoch) = payload::<Epoch>(&stored.envelope)
        {
            self.epochs.insert(stored.digest, epoch.clone());
            self.newest_epoch = Some(epoch);
        }
        self.list.read(&store).await?;
        let since = processor();
        for id in self.hosts.keys() {
            let known = self.declarations.get(id).map_or(0, |d| d.sequence);
            if let Some(stored) = store.newest_declaration(*id).await?
                && stored.number > known
                && let Some(declaration) = payload::<Declaration>(&stored.envelope)
            {
                self.declarations.insert(*id, declaration);
            }
        }
        self.costs.orders += processor().saturating_sub(since);
        Ok(())
    }

    async fn hosts_act(&mut self) -> Result<bool, Trouble> {
        let now = self.now();
        let serving = self.engine.is_some();
        // Who has nothing to do says so less often, as often as keeps it present: a night is to pass in a moment.
        let heartbeat = self.health.roster().map_or(30, |tree| {
            let fleet = &tree.fleet;
            fleet.heartbeat_secs.max(QUIET_SECS.min(fleet.present_secs / 3))
        });
        let looks = std::mem::take(&mut self.links.said().looks);
        let steady = self.clock.moment().steady;
        let mut made = Vec::new();
        for host in self.hosts.values_mut().filter(|host| host.powered) {
            let hears = host.linked && serving;
            host.live(steady, self.list.record(host.id).filter(|_| hears));
            let newest = self.declarations.get(&host.id).filter(|_| hears);
            let epochs = self
                .newest_epoch
                .as_ref()
                .filter(|_| hears)
                .map(|e| (e, &self.epochs));
            let news = host.act(now, newest, epochs);
            if hears && news {
                made.push(host.report(Cause::Change, now));
            }
            if serving && host.heartbeat_due(now, heartbeat) {
                made.push(host.report(Cause::Heartbeat, now));
            }
        }
        for (id, look) in looks {
            if let Some(host) = self.hosts.get_mut(&id).filter(|host| host.reachable()) {
                made.push(host.report(Cause::Look(look), now));
            }
        }
        let any = !made.is_empty();
        for together in made.chunks(TOGETHER) {
            let stored = together.iter().filter_map(|report| {
                let envelope = format!("{} {}", report.node, report.counter);
                let (reports, _) = self.reports.as_ref()?;
                Some(reports.take(report.node, report.counter, envelope, report.clone()))
            });
            let stored: Vec<_> = stored.collect();
            let since = processor();
            futures_util::future::join_all(stored).await;
            self.costs.reports += processor().saturating_sub(since);
        }
        if any {
            self.wake();
        }
        Ok(any)
    }

    /// Says the transitions that were not said yet.
    async fn tell(&mut self, said: &mut Vec<String>) -> Result<(), Trouble> {
        let store = self.store()?.clone();
        let mut deliveries = store.deliveries(20).await?;
        deliveries.reverse();
        for delivery in deliveries {
            let told = self.told.entry(delivery.commit.to_string()).or_default();
            if usize::try_from(delivery.transitions).unwrap_or(0) <= *told {
                continue;
            }
            let transitions = store.transitions_of(&delivery.commit).await?;
            let number = self.forge.number_of(&delivery.commit).unwrap_or(0);
            for transition in transitions.iter().skip(*told) {
                said.push(show::transition(number, &delivery, transition));
            }
            *told = transitions.len();
        }
        Ok(())
    }
}

fn later(at: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::from_secs(1));
    at.checked_add(by).unwrap_or(at)
}
