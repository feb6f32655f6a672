//! Opening: the lock first, then what is on disk, then the machine, which finishes what a crash left.

use std::path::Path;

use super::*;
use crate::edge::boot;
use crate::edge::deadline;
use crate::edge::disk::RealDisk;
use crate::edge::identity::Identity;
use crate::edge::link::{Followed, Membership};
use crate::edge::machine::{LedgerState, Recovered, Recovery};
use crate::edge::marks::{self, Held};
use crate::edge::orders;
use crate::edge::sealed;
use crate::edge::system::{NoSystem, RealSystem, System};
use crate::edge::window::Order;
use crate::pure::agent::{Given, Started, StartedWindow};
use crate::pure::orders::{Anchor, Orders, Slot};
use crate::pure::target_path::TargetPath;
use meshplan_schemas::report::{Mark, Marks};
use meshplan_schemas::session::LinkSecret;

/// How long another host may take to give the lock back: `status` looks whether it is held.
const LOCK: Duration = Duration::from_millis(500);
/// How long a host that is to stay waits for `apply --once`, which may have a window open.
const ONCE: Duration = Duration::from_secs(1800);

impl Shell {
    pub(super) fn open(
        setup: Setup,
        clock: Clock,
    ) -> Result<(Self, Membership, LinkSecret, Event), RunError> {
        if let Err(error) = sealed::leave_no_core() {
            tracing::warn!(%error, "a crash of this process may leave its memory on the disk");
        }
        let membership = Membership::load(&setup.state_dir);
        if matches!(membership, Ok(None)) && !setup.state_dir.join("window").exists() {
            return Err(RunError::NotEnrolled);
        }
        let lock = lock(&setup.state_dir, setup.until)?;
        let now = clock.now().as_second();
        let boot_id = boot::boot_id().map_err(|source| RunError::System {
            what: "the kernel does not tell its boot id",
            source,
        })?;
        let machine_setup = machine_setup(&setup, &boot_id)?;
        let (disk, system) = (
            Arc::clone(&machine_setup.state),
            Arc::clone(&machine_setup.system),
        );

        // The machine first: a window of before is closed before anything else (EP-2), keys and membership that
        // cannot be read included.
        let (mut machine, recovery) = Machine::open(machine_setup, now)?;
        let membership = membership?.ok_or(RunError::NotEnrolled)?;
        membership.check()?;
        let identity = Identity::load(&setup.state_dir)?;
        machine.tell_keys(vec![identity.transport.clone()]);
        machine.tell_dead_man(deadline::of(system, &setup.root, &setup.state_dir));
        orders::prepare(&*disk)?;
        let mut broken = Vec::new();
        let (mut held, words) = orders::load(&*disk);
        broken.extend(words);
        // What is in force is kept out of what commands say from the first of them on (HR-11).
        for kept in [&held.declaration, &held.trying, &held.confirmed]
            .into_iter()
            .flatten()
        {
            drop(sealed::open(
                &kept.payload,
                std::slice::from_ref(&identity.transport),
            ));
        }
        let (standing, words) = orders::load_standing(&*disk);
        broken.extend(words);
        let (known_bad, words) = orders::load_known_bad(&*disk);
        broken.extend(words);
        let mut pair = marks::marks();
        let marks = match pair.read(&*disk) {
            Held::Value(file, words) => {
                broken.extend(words);
                Some((file.marks, file.anchor))
            }
            // A head without numbers is a loss as well: only enrolment comes before both.
            Held::Never if held.head.is_none() && held.declaration.is_none() && held.epochs.is_empty() => {
                enrolled(&*disk, &mut held, &mut pair)?
            }
            Held::Never => {
                broken.push("both files with the highest numbers are gone".to_owned());
                None
            }
            Held::Lost(why) => {
                broken.push(format!("both files with the highest numbers are lost: {why}"));
                None
            }
        };
        let (reporter, words) = Reporter::open(Arc::clone(&disk), now)?;
        broken.extend(words);

        let instance = boot::instance();
        let started = Event::Started(Box::new(started(recovery, &held, broken)));
        let agent = Agent::new(
            Given {
                fleet: membership.fleet.clone(),
                node: membership.node,
                version: boot::version(),
                orders: held,
                marks,
                standing,
                known_bad,
                reconcile_secs: setup.reconcile_secs,
                instance: instance.clone(),
                boot_id: boot_id.clone(),
            },
            now,
        );
        let (probed, answers) = mpsc::unbounded_channel();
        let mut asker = Asker::new(&setup.root).with_filters(Arc::clone(&disk));
        // While the start goes on, so that the first report need not wait.
        asker.begin();
        let shell = Self {
            journal: Journal::at(&setup.state_dir),
            presence: Presence::new(&setup.state_dir, setup.until, now),
            setup,
            clock,
            agent,
            disk,
            marks: pair,
            reporter,
            signer: identity.signing,
            started_at: now,
            instance,
            boot_id,
            unwritten: Unwritten::default(),
            asker,
            to_link: VecDeque::new(),
            followed: watch::channel(Followed::default()).0,
            renewing: 0,
            machine: Some(machine),
            jobs: VecDeque::new(),
            fetching: Fetching::default(),
            pause: Watch::default(),
            shown: None,
            probed,
            answers,
            _lock: lock,
        };
        Ok((shell, membership, identity.transport, started))
    }
}

/// A host that stays waits for one that ends by itself, and says so; another that stays is refused.
fn lock(state_dir: &Path, until: Until) -> Result<StateLock, RunError> {
    let began = std::time::Instant::now();
    let mut said = false;
    loop {
        let busy = match StateLock::take(state_dir) {
            Err(busy @ LockError::Busy(_)) => busy,
            other => return Ok(other?),
        };
        let waited = began.elapsed();
        if waited >= LOCK {
            let stays = Presence::read(state_dir).is_some_and(|other| other.stays());
            if until == Until::Rest || stays || waited >= ONCE {
                return Err(busy.into());
            }
            if !said {
                said = true;
                let secs = ONCE.as_secs();
                tracing::info!("{busy} and ends by itself; waiting for it, for {secs} s at most");
            }
        }
        std::thread::sleep(LOCK / 20);
    }
}

/// What the machine is opened with, for work or to look only.
///
/// # Errors
/// Root or state folder cannot be opened; `--policy-out` is no path inside the root.
pub fn machine_setup(setup: &Setup, boot_id: &str) -> Result<crate::edge::machine::Setup, RunError> {
    let inside = |path: &Path| -> Option<TargetPath> {
        let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let (root, path) = (real(&setup.root), real(path));
        let below = path.strip_prefix(root).ok()?;
        TargetPath::parse(&format!("/{}", below.to_str()?)).ok()
    };
    let policy_out = match &setup.policy_out {
        None => None,
        Some(path) => Some(policy_path(path)?),
    };
    let system: Arc<dyn System> = if setup.root == Path::new("/") {
        Arc::new(RealSystem::new(&setup.root))
    } else {
        Arc::new(NoSystem)
    };
    Ok(crate::edge::machine::Setup {
        root: Arc::new(RealDisk::open(&setup.root)?),
        system,
        state: Arc::new(RealDisk::open(&setup.state_dir)?),
        state_inside: inside(&setup.state_dir),
        boot_id: boot_id.to_owned(),
        policy_out,
    })
}

/// `--policy-out` is a path as the machine sees it, inside the root.
fn policy_path(path: &Path) -> Result<TargetPath, RunError> {
    let text = path.to_str().unwrap_or_default();
    TargetPath::parse(text).map_err(|e| RunError::Path(format!("--policy-out: {e}")))
}

/// The first start after the enrolment: its list and record are taken over, and the marks begin with them.
fn enrolled(
    disk: &dyn Disk,
    held: &mut Orders,
    pair: &mut Pair<MarksFile>,
) -> Result<Option<(Marks, Option<Anchor>)>, RunError> {
    let (head, record) = orders::enrolled(disk);
    for (slot, text) in [(Slot::Head, head), (Slot::Record, record)] {
        if let Some(text) = text {
            orders::keep(disk, slot, &text)?;
        }
    }
    *held = orders::load(disk).0;
    let Some(head) = &held.head else {
        return Ok(None);
    };
    let file = MarksFile {
        marks: Marks {
            era: head.payload.era,
            revision: Some(Mark {
                number: head.payload.revision,
                digest: head.digest,
            }),
            ..Marks::default()
        },
        anchor: Some(Anchor::of(&head.payload)),
    };
    pair.write(disk, &file)?;
    Ok(Some((file.marks, file.anchor)))
}

fn started(recovery: Recovery, held: &Orders, broken: Vec<String>) -> Started {
    let window = match recovery.window {
        Recovered::Clean => StartedWindow::Clean,
        Recovered::Reverted { reason, lines, .. } | Recovered::FinishedRevert { reason, lines, .. } => {
            StartedWindow::Reverted { reason, lines }
        }
        Recovered::FinishedConfirm(_) => StartedWindow::Confirmed,
        Recovered::StillOpen(window) => StartedWindow::StillOpen {
            declaration: match window.order {
                Order::Declaration { digest, .. } => Some(digest),
                Order::Policy { .. } => None,
            },
            opened_at: window.opened_at,
            deadline: window.confirm_deadline.unwrap_or(window.apply_deadline),
        },
    };
    let (mut confirmed, mut policy, mut ledger_lost) = (None, None, None);
    match recovery.ledger {
        LedgerState::Known(ledger) => {
            confirmed = ledger.confirmed.map(|c| c.digest);
            policy = ledger.policy.map(|p| (p.epoch, p.digest));
        }
        LedgerState::Unknown { why } => ledger_lost = Some(why),
        LedgerState::Fresh => {
            if held.confirmed.is_some() {
                ledger_lost = Some("it is gone".to_owned());
            }
        }
    }
    Started {
        window,
        confirmed,
        policy,
        ledger_lost,
        taken_back: recovery.taken_back,
        broken,
    }
}
