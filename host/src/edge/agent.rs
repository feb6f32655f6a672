//! The agent as it runs: events of link, machine, probes and time in, what was decided carried out.
//!
//! It stands alone because it has no opinions: what follows from an event is decided in [`crate::pure::agent`], and
//! carried out here in its order. The machine works on a thread of its own, one job at a time, so that a long apply
//! never keeps the link from being heard. Invariant: nothing is begun whose intent is not on disk.

mod carry;
mod fetching;
mod open;
mod pausing;
mod presence;
mod unwritten;
mod worker;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use meshplan_schemas::envelope::SoftSigner;
use meshplan_schemas::report::Paused;
use meshplan_schemas::wire::{FromHost, ToHost};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::capabilities::{Asker, PATIENCE};
use super::clock::Clock;
use super::disk::{Disk, DiskError, LockError, StateLock};
use super::identity::IdentityError;
use super::journal::Journal;
use super::link::{Followed, LinkEvent, MembershipError, RENEWED, ToLink, routes_of};
use super::machine::{Machine, MachineError};
use super::marks::{MarksFile, Pair};
use super::pause::Watch;
use super::reporter::Reporter;
use crate::pure::agent::{Agent, Entry, Event, Job};
use crate::pure::confirm::Way;
use crate::pure::outbound;
use crate::pure::standing::Standing;

pub(crate) use carry::{REQUESTS, TAKE};
use fetching::Fetching;
pub use open::machine_setup;
pub use presence::Presence;
use unwritten::Unwritten;

/// How the agent is started.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The tree that declarations speak of.
    pub root: PathBuf,
    /// The state folder.
    pub state_dir: PathBuf,
    /// A second place for the effective policy, inside the root.
    pub policy_out: Option<PathBuf>,
    /// Stands above the policy's, in seconds.
    pub reconcile_secs: Option<u32>,
    /// When it ends by itself.
    pub until: Until,
}

/// When the agent ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// When it is told to.
    Stopped,
    /// When nothing is left to do (`apply --once`).
    Rest,
}

/// Why the agent does not run, or runs no longer.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Not a member of a fleet.
    #[error("this machine is in no fleet yet; enrol it with `meshplan-host enrol TOKEN`")]
    NotEnrolled,
    /// The membership.
    #[error(transparent)]
    Membership(#[from] MembershipError),
    /// The keys.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Another host runs.
    #[error("{0}; `meshplan-host status` tells how it stands")]
    Lock(#[from] LockError),
    /// The state folder, or the root.
    #[error("{what}")]
    Folder {
        /// What was tried, where.
        what: String,
        /// Why not.
        source: std::io::Error,
    },
    /// A path of the command line that is none inside the root.
    #[error("{0}")]
    Path(String),
    /// The state cannot be kept: nothing more is begun.
    #[error("the state folder cannot be written, so nothing more is done")]
    State(#[from] DiskError),
    /// The machine cannot be opened.
    #[error("the machine cannot be opened")]
    Machine(#[from] MachineError),
    /// A job of the machine panicked; a start recovers what it left.
    #[error("a job of the machine broke off: {0}")]
    Broke(String),
    /// The system.
    #[error("{what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },
}

/// The agent with its hands.
pub struct Shell {
    setup: Setup,
    clock: Clock,
    agent: Agent,
    disk: Arc<dyn Disk>,
    marks: Pair<MarksFile>,
    reporter: Reporter,
    journal: Journal,
    presence: Presence,
    signer: SoftSigner,
    started_at: i64,
    instance: String,
    boot_id: String,
    unwritten: Unwritten,
    /// What the machine can do.
    asker: Asker,
    /// Words that the link has not taken yet, in order.
    to_link: VecDeque<ToLink>,
    /// The ways to reconcilers that the trusted head names, and what the policy tolerates of them.
    followed: watch::Sender<Followed>,
    /// Renewals that the link has not answered: a session that comes up before that is one of before.
    renewing: u32,
    /// None while it works.
    machine: Option<Machine>,
    jobs: VecDeque<Job>,
    /// What an order needs and is being fetched.
    fetching: Fetching,
    /// What was seen of a pause.
    pause: Watch,
    /// The pause that whoever logs in reads of; none before it was looked at.
    shown: Option<Option<Paused>>,
    /// Where probes that were asked answer.
    probed: mpsc::UnboundedSender<Event>,
    answers: mpsc::UnboundedReceiver<Event>,
    _lock: StateLock,
}

type Running = JoinHandle<(Machine, Option<crate::pure::agent::Done>)>;

/// Runs the agent until it is told to stop (or to its rest); how the node stood at the end.
///
/// # Errors
/// [`RunError`].
pub async fn run(setup: Setup, clock: Clock) -> Result<Standing, RunError> {
    let (mut shell, membership, transport, started) = Shell::open(setup, clock)?;
    let system = |what| move |source| RunError::System { what, source };
    let mut term = signal(SignalKind::terminate()).map_err(system("cannot listen for SIGTERM"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(system("cannot listen for SIGINT"))?;
    let (link, mut events) = super::link::spawn_following(membership, transport, shell.followed.subscribe())?;
    shell.presence.write();
    shell.event(started)?;
    let mut running: Option<Running> = None;
    let mut stopping = false;
    let mut due = Instant::now() + shell.sleep();
    loop {
        shell.fetch_on()?;
        shell.collect_artifacts();
        if running.is_none() && !stopping {
            running = shell.begin();
        }
        let rest =
            shell.setup.until == Until::Rest && shell.agent.at_rest(shell.now()) && shell.jobs.is_empty();
        if running.is_none() && (stopping || rest) {
            break;
        }
        // An instant, not a pause: words that come every second must not put the deadline off for ever.
        due = due.min(Instant::now() + shell.sleep());
        let fetch_due = shell.fetching.due();
        tokio::select! {
            event = events.recv() => match event {
                Some(event) => shell.link_event(event)?,
                None => return Err(RunError::Broke("the link ended by itself".to_owned())),
            },
            Some(event) = shell.answers.recv() => shell.event(event)?,
            Some((order, worked)) = shell.fetching.worked() => shell.fetch_worked(order, worked)?,
            // Looked at anew at the head of the loop.
            () = until(fetch_due) => {}
            permit = link.reserve(), if !shell.to_link.is_empty() => {
                if let (Ok(permit), Some(word)) = (permit, shell.to_link.pop_front()) {
                    permit.send(word);
                }
            }
            done = join(&mut running) => {
                let (mut machine, done) = done.map_err(|e| RunError::Broke(e.to_string()))?;
                running = None;
                if let Some(words) = machine.unguarded() {
                    shell.journal.write(shell.now(), &unguarded(words));
                }
                shell.machine = Some(machine);
                if let Some(done) = done {
                    shell.event(Event::Done(Box::new(done)))?;
                }
            }
            () = tokio::time::sleep_until(due) => {
                if running.is_none() && shell.agent.standing().window.is_none() && shell.clock.set_anew() {
                    let now = shell.now();
                    shell.agent.clock_was_set(now);
                }
                shell.write_again()?;
                shell.event(Event::Tick)?;
                shell.report_event(outbound::Event::Tick, "");
                due = Instant::now() + shell.sleep();
            }
            _ = term.recv() => stopping = true,
            _ = interrupt.recv() => stopping = true,
        }
    }
    shell.presence.stopped();
    tracing::info!("stopped");
    Ok(shell.agent.standing().clone())
}

/// What the journal says of a window that only the host can take back (HR-13).
fn unguarded(words: String) -> Entry {
    Entry {
        event: "window.unguarded".to_owned(),
        number: None,
        words,
    }
}

/// Waits for an instant; for ever where there is none.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Waits for the job that runs; for ever when none does.
async fn join(running: &mut Option<Running>) -> <Running as Future>::Output {
    match running {
        Some(handle) => handle.await,
        None => std::future::pending().await,
    }
}

impl Shell {
    fn now(&self) -> i64 {
        self.clock.now().as_second()
    }

    fn sleep(&self) -> Duration {
        let now = self.now();
        // A pause comes as a file, without a word: it is looked for before each decision, and nothing wakes for it alone.
        let mut wake = self.agent.next_wake(now);
        if !self.reporter.is_empty() {
            wake = wake.min(now.saturating_add(1));
        }
        Duration::from_secs(
            u64::try_from(wake.saturating_sub(now))
                .unwrap_or(1)
                .clamp(1, 3600),
        )
    }

    /// Gives the machine its next job.
    fn begin(&mut self) -> Option<Running> {
        let mut machine = self.machine.take()?;
        let Some(job) = self.jobs.pop_front() else {
            self.machine = Some(machine);
            return None;
        };
        let now = self.now();
        let clock = self.clock;
        if job.requires_something() {
            machine.tell_abilities(self.asker.afresh(PATIENCE).capabilities.clone());
        }
        machine.tell_time(move || clock.now().as_second());
        Some(tokio::task::spawn_blocking(move || {
            let done = worker::work(&mut machine, job, now);
            (machine, done)
        }))
    }

    fn event(&mut self, event: Event) -> Result<(), RunError> {
        let now = self.now();
        self.look_for_pause(now);
        let effects = self.agent.on(event, now);
        self.show_pause();
        self.carry(effects, now)?;
        let followed = Followed {
            routes: self.agent.trusted_head().map(routes_of).unwrap_or_default(),
            tolerance: self.agent.duties().link,
        };
        self.followed.send_if_modified(|before| {
            let moved = *before != followed;
            *before = followed;
            moved
        });
        Ok(())
    }

    /// What a report's way asks for is said.
    fn report_event(&mut self, event: outbound::Event, reason: &str) {
        let now = self.now();
        let said = self.reporter.on(event, now, reason);
        self.say(said);
    }

    fn say(&mut self, words: impl IntoIterator<Item = FromHost>) {
        self.to_link
            .extend(words.into_iter().map(|word| ToLink::Say(Box::new(word))));
    }

    fn link_event(&mut self, event: LinkEvent) -> Result<(), RunError> {
        match event {
            // Made before the change that the renewal followed; it is being dropped.
            LinkEvent::Up(_) if self.renewing > 0 => Ok(()),
            LinkEvent::Up(way) => {
                self.presence.up(self.now());
                self.fetch_linked(true);
                // A tree beside the machine's own has no links that could be shut (EP-2).
                let way = if self.setup.root == Path::new("/") {
                    way
                } else {
                    Way::Far
                };
                self.event(Event::LinkUp(way))?;
                self.report_event(outbound::Event::Up, "");
                Ok(())
            }
            LinkEvent::Down { why } => {
                if why == RENEWED {
                    self.renewing = self.renewing.saturating_sub(1);
                }
                self.presence.down(self.now(), &why);
                self.fetch_linked(false);
                // What was not said is not said in another session: its first word is Hello.
                self.to_link.retain(|word| *word == ToLink::Renew);
                self.report_event(outbound::Event::Down, "");
                self.event(Event::LinkDown)
            }
            LinkEvent::Message(word) => self.heard(*word),
        }
    }

    fn heard(&mut self, word: ToHost) -> Result<(), RunError> {
        match word {
            ToHost::Order { envelope } => {
                let lacking = unwritten::lacking(&*self.disk, envelope.len());
                self.agent.lacks_room(lacking);
                self.event(Event::Order(envelope))
            }
            ToHost::Record { record } => self.event(Event::Record(Box::new(record))),
            ToHost::Current => self.event(Event::Current),
            ToHost::Look { id } => self.event(Event::Look(id)),
            ToHost::Restarting { secs } => self.event(Event::Restarting { secs }),
            ToHost::Heartbeat { secs } => self.event(Event::Heartbeat { secs }),
            ToHost::Ack { counter } => {
                self.report_event(outbound::Event::Ack(counter), "");
                Ok(())
            }
            ToHost::Reject { counter, reason } => {
                self.report_event(outbound::Event::Reject(counter), &reason);
                Ok(())
            }
            ToHost::Busy { retry_after_ms } => {
                self.report_event(outbound::Event::Busy { retry_after_ms }, "");
                Ok(())
            }
            ToHost::Piece {
                artifact,
                offset,
                size_bytes,
                bytes,
            } => self.fetch_piece(artifact, (offset, size_bytes), &bytes),
            ToHost::NoArtifact { artifact } => self.fetch_absent(artifact),
            ToHost::Unknown => Ok(()),
        }
    }
}
