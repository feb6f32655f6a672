//! Asks the machine what it can do and whether its clock is kept (HR-10, HR-11).
//!
//! Each thing is asked itself: sockets, the kernel, the service manager, the package managers. What cannot change
//! without its file is remembered by that file's stat, so that a report starts a few programs at most and a heartbeat
//! none. The asking is a thread's, bounded: a daemon that hangs keeps no report waiting for longer than
//! [`PATIENCE`], and until it answers the former answer stands. A root that is not the machine's own has no daemons:
//! nothing is asked but its files.

mod kernel;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::command::{self, Command, How};
use super::disk::{Disk, RealDisk};
use super::filters::{self, Filters};
use super::system::RealSystem;
use crate::kinds::Reach;
use crate::pure::capability::{Answers, MANAGERS, Manager, NFT, PING, UPLINKS, names, pinged};

/// How long a report waits for answers.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// The same until there is a former answer that could stand.
const FIRST: Duration = Duration::from_secs(6);
/// How long each thing may take to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Where runtimes of containers listen.
const SOCKETS: [&str; 2] = ["/run/docker.sock", "/run/podman/podman.sock"];
/// Bytes of a runtime's answer that are looked at.
const ANSWER_BYTES: u64 = 4096;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// The names (HR-10), in the order of the alphabet.
    pub capabilities: Vec<String>,
    /// Whether somebody keeps the kernel's time; none when nobody could say.
    pub synchronised: Option<bool>,
    /// What refuses traffic (HK-11); nothing where it was not asked for.
    pub filters: Filters,
}

/// Asks, and remembers.
#[derive(Debug)]
pub struct Asker {
    root: PathBuf,
    /// The state folder, where it is asked what refuses traffic.
    state: Option<Arc<dyn Disk>>,
    found: Found,
    answered: bool,
    asking: Option<Receiver<(Found, Remembered)>>,
    remembered: Remembered,
}

/// What a program file answered, as long as it is the same file.
pub(crate) type Remembered = BTreeMap<&'static str, (Stamp, bool)>;

/// By what a file is known to be unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp {
    path: PathBuf,
    place: (u64, u64),
    bytes: u64,
    changed: (i64, i64),
}

impl Stamp {
    /// The program that a search finds, and its stamp.
    fn of(program: &str, search: &str) -> Option<Self> {
        search
            .split(':')
            .filter(|folder| !folder.is_empty())
            .find_map(|folder| {
                let path = Path::new(folder).join(program);
                let stat = std::fs::metadata(&path).ok().filter(|s| s.is_file())?;
                Some(Self {
                    path,
                    place: (stat.dev(), stat.ino()),
                    bytes: stat.size(),
                    changed: (stat.ctime(), stat.ctime_nsec()),
                })
            })
    }
}

impl Asker {
    /// Nothing was asked yet.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            state: None,
            found: Found::default(),
            answered: false,
            asking: None,
            remembered: Remembered::new(),
        }
    }

    /// The same, which asks also what refuses traffic; what the host did about found firewalls is in its state folder.
    #[must_use]
    pub fn with_filters(self, state: Arc<dyn Disk>) -> Self {
        Self {
            state: Some(state),
            ..self
        }
    }

    /// What was found last.
    #[must_use]
    pub fn last(&self) -> &Found {
        &self.found
    }

    /// Begins to ask, unless an asking is under way; its answer is taken by the next [`Asker::afresh`].
    pub fn begin(&mut self) {
        if self.root != Path::new("/") || self.asking.is_some() {
            return;
        }
        let (answer, asking) = sync_channel(1);
        let mut remembered = self.remembered.clone();
        let state = self.state.clone();
        let thread = std::thread::Builder::new().name("capabilities".to_owned());
        let begun = thread.spawn(move || {
            // A runtime of its own: the agent's is busy with whoever waits for this.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                let (mut found, has_nftables) = runtime.block_on(ask(&mut remembered));
                if let Some(state) = state {
                    found.filters = filters_of(&*state, has_nftables);
                }
                // Nobody waits any more only when the host ends.
                let _ended = answer.send((found, remembered));
            }
        });
        match begun {
            Ok(_) => self.asking = Some(asking),
            Err(error) => tracing::warn!(%error, "the machine cannot be asked what it can do"),
        }
    }

    /// Asks now and waits for so long; what was found, or the former answer where this one does not come in time.
    pub fn afresh(&mut self, patience: Duration) -> &Found {
        if self.root == Path::new("/") {
            self.begin();
            self.take(if self.answered {
                patience
            } else {
                patience.max(FIRST)
            });
        } else {
            let answers = Answers {
                systemd: booted_systemd(&self.root),
                ..Answers::default()
            };
            self.found.capabilities = names(&answers);
        }
        &self.found
    }

    fn take(&mut self, patience: Duration) {
        let Some(asking) = &self.asking else { return };
        match asking.recv_timeout(patience) {
            Ok((found, remembered)) => {
                (self.found, self.remembered) = (found, remembered);
                self.answered = true;
            }
            Err(RecvTimeoutError::Timeout) => {
                tracing::warn!("something on this machine does not answer; the former capabilities stand");
                return;
            }
            Err(RecvTimeoutError::Disconnected) => tracing::warn!("the machine could not be asked"),
        }
        self.asking = None;
    }
}

/// What refuses traffic on the machine itself.
fn filters_of(state: &dyn Disk, has_nftables: bool) -> Filters {
    let root = match RealDisk::open(Path::new("/")) {
        Ok(root) => root,
        Err(e) => {
            let unread = crate::pure::filter::whose::unread("filters", &e.to_string());
            return Filters {
                lines: vec![unread],
                ..Filters::default()
            };
        }
    };
    let reach = Reach {
        root: &root,
        system: &RealSystem::new(Path::new("/")),
        state,
    };
    filters::read(reach, has_nftables)
}

/// What was found, and whether the kernel has nftables at all.
async fn ask(remembered: &mut Remembered) -> (Found, bool) {
    let search = std::env::var("PATH").unwrap_or_default();
    let systemd = booted_systemd(Path::new("/"));
    let sockets = SOCKETS.map(Path::new);
    let has_nftables = kernel::has_nftables();
    let (container_runtime, uplinks, synchronised, (managers, has_nft)) = tokio::join!(
        runtime_answers(&sockets),
        uplinks(systemd),
        synchronised(systemd),
        async {
            let managers = managers(remembered, &search).await;
            (managers, has_nftables && has(&NFT, remembered, &search).await)
        },
    );
    let answers = Answers {
        systemd,
        container_runtime,
        virtualisation: std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/kvm")
            .is_ok(),
        nftables: has_nft,
        wireguard: kernel::has_family("wireguard"),
        uplinks,
        managers,
    };
    let found = Found {
        capabilities: names(&answers),
        synchronised,
        filters: Filters::default(),
    };
    (found, has_nftables)
}

/// systemd's own test whether it is the one that booted the machine (sd_booted(3)).
fn booted_systemd(root: &Path) -> bool {
    root.join("run/systemd/system").is_dir()
}

/// Whether a runtime of containers answers on one of these sockets.
async fn runtime_answers(sockets: &[&Path]) -> bool {
    for socket in sockets {
        let asked = async {
            let mut stream = UnixStream::connect(socket).await?;
            stream.write_all(PING).await?;
            let mut answer = Vec::new();
            stream.take(ANSWER_BYTES).read_to_end(&mut answer).await?;
            std::io::Result::Ok(pinged(&answer))
        };
        if matches!(tokio::time::timeout(ANSWER, asked).await, Ok(Ok(true))) {
            return true;
        }
    }
    false
}

async fn run(argv: &[&str]) -> command::Ended {
    let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
    command::run(Command {
        argv: &argv,
        root: Path::new("/"),
        timeout: ANSWER,
    })
    .await
}

/// What the service manager says of [`UPLINKS`]; its exit code is a no of any of them.
async fn uplinks(systemd: bool) -> String {
    if !systemd {
        return String::new();
    }
    let units = UPLINKS.map(|(unit, _)| unit);
    run(&[&["systemctl", "is-active"], &units[..]].concat())
        .await
        .said
}

/// Whether the kernel's time is kept, whoever keeps it: timedated reads it from the kernel (adjtimex(2)).
async fn synchronised(systemd: bool) -> Option<bool> {
    if !systemd {
        return None;
    }
    let ended = run(&["timedatectl", "show", "--property=NTPSynchronized", "--value"]).await;
    match (ended.how, ended.said.trim()) {
        (How::Exited(0), "yes") => Some(true),
        (How::Exited(0), "no") => Some(false),
        _ => None,
    }
}

/// The capabilities of the package managers that answer; what one has answered is remembered.
pub(crate) async fn managers(remembered: &mut Remembered, search: &str) -> Vec<&'static str> {
    let mut found = Vec::new();
    for manager in &MANAGERS {
        if has(manager, remembered, search).await {
            found.push(manager.capability);
        }
    }
    found
}

async fn has(manager: &Manager, remembered: &mut Remembered, search: &str) -> bool {
    let Some(stamp) = Stamp::of(manager.program, search) else {
        remembered.remove(manager.program);
        return false;
    };
    if let Some((former, answer)) = remembered.get(manager.program)
        && *former == stamp
    {
        return *answer;
    }
    let program = stamp.path.to_string_lossy().into_owned();
    let ended = run(&[&program, "--version"]).await;
    let answer = ended.how == How::Exited(0) && manager.known_by(&ended.said);
    // One that was killed at its bound has not said what it is.
    if !matches!(ended.how, How::TimedOut) {
        remembered.insert(manager.program, (stamp, answer));
    }
    answer
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;

    use super::*;

    // holds: HR-10
    #[test]
    fn under_another_root_nothing_is_asked_but_its_files() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("usr/lib/systemd")).unwrap();
        let mut asker = Asker::new(root.path());
        assert_eq!(*asker.afresh(PATIENCE), Found::default());
        std::fs::create_dir_all(root.path().join("run/systemd/system")).unwrap();
        assert_eq!(asker.afresh(PATIENCE).capabilities, ["systemd"]);
        assert_eq!(asker.last().synchronised, None);
    }

    // holds: HR-10
    #[tokio::test]
    async fn a_runtime_is_one_that_answers_and_a_socket_alone_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        // Left behind by a daemon that is gone: bound, and nobody listens.
        drop(UnixListener::bind(path("dead")).unwrap());
        let lives = UnixListener::bind(path("lives")).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = lives.accept().unwrap();
            let mut asked = [0; 512];
            let len = stream.read(&mut asked).unwrap();
            assert!(asked[..len].starts_with(b"GET /_ping "));
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nOK").unwrap();
        });
        assert!(!runtime_answers(&[&path("none"), &path("dead")]).await);
        assert!(runtime_answers(&[&path("dead"), &path("lives")]).await);
    }

    // holds: HR-10
    #[tokio::test]
    async fn a_package_manager_is_asked_once_for_each_file_that_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let (program, count) = (dir.path().join("apt-get"), dir.path().join("count"));
        let write = |says: &str| {
            let script = format!("#!/bin/sh\necho asked >> {}\necho '{says}'\n", count.display());
            let beside = dir.path().join("beside");
            std::fs::write(&beside, script).unwrap();
            std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o755)).unwrap();
            std::fs::rename(&beside, &program).unwrap();
        };
        let asked = || {
            std::fs::read_to_string(&count)
                .unwrap_or_default()
                .lines()
                .count()
        };
        let (mut remembered, search) = (Remembered::new(), dir.path().to_string_lossy().into_owned());
        assert!(managers(&mut remembered, &search).await.is_empty());
        write("apt 2.6.1 (amd64)");
        for _ in 0..3 {
            assert_eq!(managers(&mut remembered, &search).await, ["package-apt"]);
        }
        assert_eq!(asked(), 1);
        write("something else");
        assert!(managers(&mut remembered, &search).await.is_empty());
        assert_eq!(asked(), 2);
        std::fs::remove_file(&program).unwrap();
        assert!(managers(&mut remembered, &search).await.is_empty());
        assert!(remembered.is_empty());
    }

    // holds: HR-10
    #[test]
    fn this_machine_answers_in_time_and_with_names_that_are_known() {
        let mut asker = Asker::new(Path::new("/"));
        let found = asker.afresh(Duration::from_secs(60)).clone();
        let known = |name: &String| {
            let of = [
                "systemd",
                "container-runtime",
                "virtualisation",
                "nftables",
                "kernel-wireguard",
            ];
            of.contains(&name.as_str()) || name.starts_with("uplink-") || name.starts_with("package-")
        };
        assert!(found.capabilities.iter().all(known), "{found:?}");
        assert!(asker.asking.is_none(), "it has not answered");
    }
}
