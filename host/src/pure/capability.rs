//! What a machine can do, from what it answered (HR-10): questions as bytes and words, answers read, names given.
//!
//! It stands alone because a module is refused by these names, so what counts as a yes is decided here and tested
//! without the daemon. A yes comes from the thing itself; a client on disk proves nothing. Invariant: no answer is no
//! capability.

use meshplan_schemas::resource::accounts::Manager as Word;

/// The units that hold a machine's uplink, as the service manager names them, and what each is called here.
pub const UPLINKS: [(&str, &str); 3] = [
    ("NetworkManager.service", "uplink-networkmanager"),
    ("systemd-networkd.service", "uplink-systemd-networkd"),
    ("dhcpcd.service", "uplink-dhcpcd"),
];

/// The package managers that the host knows.
pub const MANAGERS: [Manager; 5] = [
    Manager::new("package-apt", "apt-get", &["apt "]),
    Manager::new("package-dnf", "dnf", &["dnf", "4.", "5."]),
    Manager::new("package-pacman", "pacman", &["Pacman v"]),
    Manager::new("package-apk", "apk", &["apk-tools "]),
    Manager::new("package-zypper", "zypper", &["zypper "]),
];

/// What is asked for the rules of the kernel's packet filter, and shows them.
pub const NFT: Manager = Manager::new(NFTABLES, "nft", &["nftables v"]);
const NFTABLES: &str = "nftables";

/// What the machine must be able to do for a kind of resource, whatever its module says.
#[must_use]
pub fn of_kind(kind: &str) -> Option<&'static str> {
    (kind == "filter").then_some(NFTABLES)
}

/// The capability that a package manager is.
#[must_use]
pub fn capability_of(manager: Word) -> String {
    format!("package-{manager}")
}

/// A program that does something for the host: asked for its version, and known by how it answers. `pacman` is also a
/// game.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manager {
    /// The capability.
    pub capability: &'static str,
    /// The program, asked with `--version`.
    pub program: &'static str,
    /// One of these stands in its answer.
    says: &'static [&'static str],
}

impl Manager {
    const fn new(capability: &'static str, program: &'static str, says: &'static [&'static str]) -> Self {
        Self {
            capability,
            program,
            says,
        }
    }

    /// Whether it is that manager which ended well and said this.
    #[must_use]
    pub fn known_by(&self, said: &str) -> bool {
        let line = |line: &str, word: &str| {
            // pacman puts a picture before its name.
            line.trim_start_matches(|c: char| !c.is_alphanumeric())
                .starts_with(word)
        };
        said.lines()
            .take(4)
            .any(|l| self.says.iter().any(|word| line(l, word)))
    }
}

/// What was found out of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answers {
    /// systemd is what has booted the machine.
    pub systemd: bool,
    /// Docker's API, or Podman's compatible one, answered.
    pub container_runtime: bool,
    /// `/dev/kvm` could be opened.
    pub virtualisation: bool,
    /// The kernel answered for its packet filter, and so did the program that loads rules.
    pub nftables: bool,
    /// The kernel has WireGuard.
    pub wireguard: bool,
    /// What `systemctl is-active` printed for [`UPLINKS`], a line each in their order.
    pub uplinks: String,
    /// The capabilities of the package managers that answered.
    pub managers: Vec<&'static str>,
}

/// What of these a machine lacks that can do those, in a sentence; none when it can do all.
#[must_use]
pub fn lacking(required: &[String], there: &[String]) -> Option<String> {
    let lacks: Vec<&str> = required
        .iter()
        .filter(|name| !there.contains(name))
        .map(String::as_str)
        .collect();
    (!lacks.is_empty()).then(|| format!("this machine lacks {}", lacks.join(", ")))
}

/// The names of what the machine can do, in the order of the alphabet.
#[must_use]
pub fn names(answers: &Answers) -> Vec<String> {
    let flags = [
        (answers.systemd, "systemd"),
        (answers.container_runtime, "container-runtime"),
        (answers.virtualisation, "virtualisation"),
        (answers.nftables, NFTABLES),
        (answers.wireguard, "kernel-wireguard"),
    ];
    let flags = flags.into_iter().filter(|(yes, _)| *yes).map(|(_, name)| name);
    let uplinks = UPLINKS.iter().zip(answers.uplinks.lines());
    let uplinks = uplinks
        .filter(|(_, line)| line.trim() == "active")
        .map(|((_, name), _)| *name);
    let mut names: Vec<String> = flags
        .chain(uplinks)
        .chain(answers.managers.iter().copied())
        .map(str::to_owned)
        .collect();
    names.sort_unstable();
    names
}

/// What a container runtime is asked over its socket.
pub const PING: &[u8] = b"GET /_ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// Whether this is the answer of a runtime that works: status 200 and the word of that path.
#[must_use]
pub fn pinged(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let status = head.split(' ').nth(1);
    head.starts_with("HTTP/1.") && status == Some("200") && body.lines().any(|line| line.trim() == "OK")
}

/// Asks the kernel for the generation of its nftables rules: `NFT_MSG_GETGEN` of the subsystem 10 (linux/netfilter).
#[must_use]
pub fn nftables_question() -> Vec<u8> {
    const GETGEN: u16 = 10 << 8 | 16;
    // struct nfgenmsg: any family, version 0, no resource.
    message(GETGEN, &[0; 4])
}

/// Asks the kernel for a family of generic netlink: `CTRL_CMD_GETFAMILY` (linux/genetlink.h). A kernel that has it as a
/// module loads it for the question.
#[must_use]
pub fn family_question(name: &str) -> Vec<u8> {
    const CTRL: u16 = 0x10;
    const GETFAMILY: u8 = 3;
    const NAME: u16 = 2;
    let mut body = vec![GETFAMILY, 1, 0, 0];
    // With its closing zero.
    let len = u16::try_from(4 + name.len() + 1).unwrap_or(u16::MAX);
    body.extend_from_slice(&len.to_ne_bytes());
    body.extend_from_slice(&NAME.to_ne_bytes());
    body.extend_from_slice(name.as_bytes());
    body.push(0);
    while body.len() % 4 != 0 {
        body.push(0);
    }
    message(CTRL, &body)
}

/// struct nlmsghdr (netlink(7)) and a body.
fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    const REQUEST: u16 = 1;
    let len = u32::try_from(16 + body.len()).unwrap_or(u32::MAX);
    let mut bytes = len.to_ne_bytes().to_vec();
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&REQUEST.to_ne_bytes());
    // Sequence 1, port 0: the kernel.
    bytes.extend_from_slice(&1_u32.to_ne_bytes());
    bytes.extend_from_slice(&0_u32.to_ne_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// Whether the kernel's answer is one: anything that is not an error.
#[must_use]
pub fn answered(reply: &[u8]) -> bool {
    const ERROR: u16 = 2;
    match reply.get(4..6) {
        Some(kind) if reply.len() >= 16 => u16::from_ne_bytes([kind[0], kind[1]]) != ERROR,
        _ => false,
    }
}

/// How far a verified order may be issued ahead of a clock that is right, in seconds: signers' clocks differ.
const SIGNERS_DIFFER_SECS: i64 = 300;

/// Whether the clock is known to be right (HR-11, SG-11): the kernel's time is kept by somebody (`synchronised`, none
/// when nobody could say), and it is not behind what was signed by those whom this host believes. None: not known.
#[must_use]
pub fn clock_trusted(synchronised: Option<bool>, now: i64, newest_issued_at: Option<i64>) -> Option<bool> {
    let behind = |issued_at: i64| issued_at > now.saturating_add(SIGNERS_DIFFER_SECS);
    if newest_issued_at.is_some_and(behind) {
        return Some(false);
    }
    synchronised
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: HR-10
    #[test]
    fn each_answer_gives_its_name_and_no_answer_gives_none() {
        assert_eq!(names(&Answers::default()), Vec::<String>::new());
        let all = Answers {
            systemd: true,
            container_runtime: true,
            virtualisation: true,
            nftables: true,
            wireguard: true,
            uplinks: "active\ninactive\nactive\n".to_owned(),
            managers: vec!["package-apt"],
        };
        let expected = [
            "container-runtime",
            "kernel-wireguard",
            "nftables",
            "package-apt",
            "systemd",
            "uplink-dhcpcd",
            "uplink-networkmanager",
            "virtualisation",
        ];
        assert_eq!(names(&all), expected);
    }

    // holds: HR-10
    #[test]
    fn only_active_is_active() {
        for (printed, expected) in [
            ("activating\nfailed\nunknown\n", vec![]),
            ("inactive\nactive\ninactive\n", vec!["uplink-systemd-networkd"]),
            ("Failed to connect to bus: Connection refused\n", vec![]),
        ] {
            let answers = Answers {
                uplinks: printed.to_owned(),
                ..Answers::default()
            };
            assert_eq!(names(&answers), expected, "{printed}");
        }
    }

    // holds: HR-10
    #[test]
    fn a_package_manager_is_known_by_what_it_says_and_not_by_its_name() {
        let all = Word::WORDS.iter().map(|(_, word)| capability_of(*word));
        assert!(all.eq(MANAGERS.iter().map(|manager| manager.capability.to_owned())));
        let table = [
            ("apt-get", "apt 2.6.1 (amd64)\nSupported modules:\n", true),
            ("dnf", "4.14.0\n  Installed: dnf-0:4.14.0\n", true),
            ("dnf", "dnf5 version 5.2.6.2\ndnf5 plugin API version 2.0\n", true),
            (
                "pacman",
                "\n .--.                  Pacman v6.0.2 - libalpm v13.0.2\n/ _.-' .-.\n",
                true,
            ),
            ("pacman", "Pac-Man arcade 1.0\n", false),
            ("apk", "apk-tools 2.14.4, compiled for x86_64.\n", true),
            ("zypper", "zypper 1.14.68\n", true),
            ("zypper", "", false),
            ("nft", "nftables v1.0.6 (Lester Gooch #5)\n", true),
            ("nft", "nft: not the one\n", false),
        ];
        for (program, said, known) in table {
            let mut all = MANAGERS.iter().chain([&NFT]);
            let manager = all.find(|m| m.program == program).unwrap();
            assert_eq!(manager.known_by(said), known, "{program}: {said}");
        }
    }

    // holds: HR-10
    #[test]
    fn a_runtime_has_answered_when_it_says_ok() {
        let docker = b"HTTP/1.1 200 OK\r\nApi-Version: 1.43\r\nContent-Length: 2\r\n\r\nOK";
        assert!(pinged(docker));
        assert!(pinged(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nOK\r\n0\r\n\r\n"
        ));
        assert!(!pinged(b"HTTP/1.1 500 Internal Server Error\r\n\r\nOK"));
        assert!(!pinged(b"HTTP/1.1 200 OK\r\n\r\n<html>"));
        assert!(!pinged(b"HTTP/1.1 200 OK\r\n"));
        assert!(!pinged(b""));
    }

    // holds: HR-10
    #[test]
    fn questions_to_the_kernel_are_whole_messages_and_its_errors_are_a_no() {
        for question in [nftables_question(), family_question("wireguard")] {
            let len = u32::from_ne_bytes(question[..4].try_into().unwrap());
            assert_eq!(usize::try_from(len).unwrap(), question.len());
            assert_eq!(question.len() % 4, 0);
        }
        assert!(answered(&message(0x10, &[0; 20])));
        assert!(!answered(&message(2, &(-2_i32).to_ne_bytes())));
        assert!(!answered(&[]));
        assert!(!answered(&[0; 6]));
    }

    // holds: HR-11, SG-11
    #[test]
    fn a_clock_is_trusted_when_it_is_kept_and_not_behind_what_was_signed() {
        assert_eq!(clock_trusted(None, 1000, None), None);
        assert_eq!(clock_trusted(Some(true), 1000, Some(900)), Some(true));
        assert_eq!(clock_trusted(Some(true), 1000, Some(1300)), Some(true));
        assert_eq!(clock_trusted(Some(true), 1000, Some(1301)), Some(false));
        assert_eq!(
            clock_trusted(None, 1000, Some(90_000)),
            Some(false),
            "it is behind, whoever keeps it"
        );
        assert_eq!(clock_trusted(Some(false), 1000, None), Some(false));
    }
}
