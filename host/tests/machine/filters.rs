//! The machine's filter: on a machine in memory, and with nft itself in a network of its own.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use meshplan_host::edge::disk::{Disk as _, NewFile, Owner, RealDisk, atomic};
use meshplan_host::edge::filters;
use meshplan_host::edge::machine::{End, Machine, Recovered, Setup};
use meshplan_host::edge::system::RealSystem;
use meshplan_host::kinds::Reach;
use meshplan_host::pure::filter::links::Link;
use meshplan_schemas::declaration::Mode;
use meshplan_schemas::report::{FilterOwner, Outcome};
use meshplan_schemas::resource::Resource;
use serde_json::{Value, json};

use crate::things::{outcomes, reason, resource};
use crate::world::{Decl, World, because, file, path, settle};

const CONF: &str = "/etc/ufw/ufw.conf";

pub(crate) fn filter(accept: &Value) -> Resource {
    resource("filter", "filter", json!({ "accept": accept }))
}

pub(crate) fn change(sequence: u64, ports: &[&str]) -> Decl {
    let accept = json!([{ "protocol": "tcp", "ports": ports }]);
    Decl::new(sequence).with("net", vec![file("motd", "/etc/motd", "a\n"), filter(&accept)])
}

/// A machine with one physical device.
pub(crate) fn world() -> World {
    let world = World::new();
    let eth0 = Link {
        index: 2,
        is_physical: true,
        ..Link::default()
    };
    world.system.with(|sim| {
        sim.disk = Some(world.root.clone());
        sim.nft.links.all.insert("eth0".to_owned(), eth0);
    });
    world
}

pub(crate) fn machine(world: &World) -> Machine {
    let mut machine = world.machine();
    machine.tell_abilities(vec!["nftables".to_owned()]);
    machine
}

pub(crate) fn loaded(world: &World) -> String {
    world.system.with(|sim| sim.nft.table.clone().unwrap_or_default())
}

/// The machine has ufw, on.
pub(crate) fn with_ufw(world: &World) {
    for folder in ["/etc", "/etc/ufw"] {
        atomic::put_folder(&world.root, &path(folder), 0o755, Owner::default()).unwrap();
    }
    let on = NewFile {
        bytes: b"ENABLED=yes\n",
        mode: 0o644,
        owner: Owner::default(),
    };
    atomic::put_file(&world.root, &path(CONF), &on, None).unwrap();
    world.system.with(|sim| {
        sim.nft.has_ufw = true;
        sim.nft.is_ufw_loaded = true;
    });
}

pub(crate) fn is_ufw_on(world: &World) -> bool {
    let conf = world.root.read(&path(CONF)).unwrap();
    let loaded = world.system.with(|sim| sim.nft.is_ufw_loaded);
    assert_eq!(loaded, conf == b"ENABLED=yes\n");
    loaded
}

// holds: HK-11, HR-2, HR-3
#[test]
fn the_filter_is_loaded_once_and_ten_more_times_load_nothing() {
    let world = world();
    let mut machine = machine(&world);
    let applied = settle(&mut machine, &change(1, &["22"]));
    assert_eq!(
        outcomes(&applied),
        [
            ("net.motd".to_owned(), Outcome::Created),
            ("net.filter".to_owned(), Outcome::Created)
        ]
    );
    assert_eq!(world.system.acts(), ["load the filter"]);
    for sequence in 2..12 {
        let applied = settle(&mut machine, &change(sequence, &["22"]));
        assert_eq!((applied.end, applied.lines), (End::Converged, Vec::new()));
    }
    assert_eq!(world.system.acts(), Vec::<String>::new());
    // Somebody takes it away.
    world.system.with(|sim| sim.nft.table = None);
    let repaired = machine.repair(&change(11, &["22"]).get(), 30).unwrap();
    assert_eq!(
        outcomes(&repaired),
        [("net.filter".to_owned(), Outcome::DriftRepaired)]
    );
    let without = Decl::new(12).with("net", vec![file("motd", "/etc/motd", "a\n")]);
    let applied = settle(&mut machine, &without);
    assert!(reason(&applied, "net.filter").starts_with("the machine's filter is taken away"));
    assert_eq!(world.targets().get("/etc/meshplan-filter.nft"), None);
    assert_eq!(loaded(&world), "");
}

// holds: HK-11, HR-5, HR-13, HR-14
#[test]
fn a_filter_that_nobody_confirms_goes_back_to_the_one_before_also_after_a_power_cut() {
    let world = world();
    let mut machine = machine(&world);
    let second = change(1, &["80"]);
    machine.apply(&second.get(), second.digest(), 10).unwrap();
    machine.revert(&because("no"), 20).unwrap();
    assert_eq!(
        (loaded(&world), world.targets().get("/etc/meshplan-filter.nft")),
        (String::new(), None)
    );
    settle(&mut machine, &change(2, &["22"]));
    let first = loaded(&world);
    let second = change(3, &["80"]);
    machine.apply(&second.get(), second.digest(), 10).unwrap();
    assert_ne!(loaded(&world), first);
    machine.revert(&because("no"), 20).unwrap();
    assert_eq!(loaded(&world), first);
    let second = change(4, &["80"]);
    machine.apply(&second.get(), second.digest(), 10).unwrap();
    drop(machine);
    // With the power what the kernel had is gone; the unit of the package loads the file that stands there then.
    world.system.with(|sim| sim.nft.table = None);
    let (mut machine, recovery) = world.open_under("another");
    assert!(
        matches!(recovery.window, Recovered::Reverted { .. }),
        "{recovery:?}"
    );
    assert_eq!(loaded(&world), first);
    machine.tell_abilities(vec!["nftables".to_owned()]);
    let applied = settle(&mut machine, &change(5, &["22"]));
    assert_eq!(
        (applied.end, applied.lines),
        (End::Converged, Vec::new()),
        "and it is known again"
    );
}

// holds: HK-11, HR-10
#[test]
fn a_machine_that_cannot_load_a_filter_refuses_its_module_by_name_and_does_the_others() {
    let world = world();
    let mut machine = world.machine();
    let decl = change(1, &["22"]).with("base", vec![file("f", "/f", "x")]);
    let applied = settle(&mut machine, &decl);
    let said = "module net is refused: this machine lacks nftables";
    assert_eq!(reason(&applied, "net.filter"), said);
    assert_eq!(reason(&applied, "net.motd"), said);
    assert!(world.targets().contains_key("/f"));
    assert_eq!(loaded(&world), "");
}

// holds: HK-11
#[test]
fn a_machine_without_an_outward_link_says_so_at_every_look_and_is_converged() {
    let world = world();
    world.system.with(|sim| sim.nft.links.all.clear());
    let mut machine = machine(&world);
    settle(&mut machine, &change(1, &["22"]));
    for sequence in 2..4 {
        let applied = settle(&mut machine, &change(sequence, &["22"]));
        assert_eq!(applied.end, End::Converged);
        assert_eq!(outcomes(&applied), [("net.filter".to_owned(), Outcome::Skipped)]);
        assert!(reason(&applied, "net.filter").contains("no outward link"));
    }
    let repaired = machine.repair(&change(3, &["22"]).get(), 30).unwrap();
    assert!(repaired.end == End::Converged && !repaired.failed);
    assert!(reason(&repaired, "net.filter").contains("no outward link"));
    assert_eq!(loaded(&world), "");
}

// holds: HK-11, HR-8
#[test]
fn beside_a_found_firewall_the_filter_is_held_until_its_module_is_taken_and_then_retires_it() {
    let world = world();
    with_ufw(&world);
    let mut machine = machine(&world);
    let mut decl = change(1, &["22"]);
    decl.declaration.adopted = true;
    let applied = settle(&mut machine, &decl);
    let held = &applied.held[0].reason;
    assert!(held.contains("net is assigned and not taken"), "{held}");
    assert!(held.contains("refuses the rest on eth0"), "{held}");
    assert!(
        held.contains("once its module is taken, ufw, which is active, is retired"),
        "{held}"
    );
    assert!(is_ufw_on(&world) && loaded(&world).is_empty());
    // Only looked at: what a take would do is said.
    decl.declaration.take = vec!["net".parse().unwrap()];
    decl.declaration.mode = Mode::Observe;
    decl.declaration.sequence = 2;
    let applied = settle(&mut machine, &decl);
    assert!(reason(&applied, "net.filter").contains("ufw, which is active, is retired"));
    assert!(is_ufw_on(&world));

    decl.declaration.mode = Mode::Apply;
    decl.declaration.sequence = 3;
    machine.apply(&decl.get(), decl.digest(), 10).unwrap();
    assert_eq!(world.system.acts(), ["load the filter", "ufw off"]);
    // Nobody confirms: the found one is on again before the filter goes.
    machine.revert(&because("no"), 20).unwrap();
    assert_eq!(world.system.acts(), ["ufw on", "the filter goes"]);
    assert!(is_ufw_on(&world) && loaded(&world).is_empty());

    decl.declaration.sequence = 4;
    settle(&mut machine, &decl);
    assert!(!is_ufw_on(&world));
    // Turned on again by somebody, it is retired again, and that is said.
    with_ufw(&world);
    let repaired = machine.repair(&decl.get(), 30).unwrap();
    assert_eq!(
        outcomes(&repaired),
        [("net.filter".to_owned(), Outcome::DriftRepaired)]
    );
    assert!(reason(&repaired, "net.filter").contains("ufw, which is active, is retired"));
    assert!(!is_ufw_on(&world));
    let mut without = Decl::new(5).with("net", vec![file("motd", "/etc/motd", "a\n")]);
    without.declaration.adopted = true;
    without.declaration.take = vec!["net".parse().unwrap()];
    let applied = settle(&mut machine, &without);
    assert!(reason(&applied, "net.filter").contains("ufw is active again, as it was found"));
    assert!(is_ufw_on(&world));
}

/// Whether this is the run in a network of its own; else the test has run there.
fn in_a_network_of_its_own(test: &str) -> bool {
    const INSIDE: &str = "MESHPLAN_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let lacks = ["nft", "ip", "unshare", "mount", "bash", "timeout"]
        .into_iter()
        .find(|program| Command::new(program).arg("--version").output().is_err());
    let why = match lacks {
        Some(program) => format!("this machine has no {program}"),
        None if !rustix::process::geteuid().is_root() => "it needs root".to_owned(),
        None => {
            let ended = Command::new("unshare")
                .args(["--net", "--mount", "--propagation", "private", "--"])
                .arg(std::env::current_exe().unwrap())
                .args(["--exact", test, "--nocapture"])
                .env(INSIDE, "yes")
                .output()
                .unwrap();
            let said = format!(
                "{}{}",
                String::from_utf8_lossy(&ended.stdout),
                String::from_utf8_lossy(&ended.stderr)
            );
            assert!(ended.status.success() && said.contains("1 passed"), "{said}");
            return false;
        }
    };
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
    println!("skipped: {why}");
    false
}

fn shell(script: &str) -> String {
    let ended = Command::new("bash").args(["-ec", script]).output().unwrap();
    let err = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{script}: {err}");
    String::from_utf8_lossy(&ended.stdout).into_owned()
}

/// Whether an address answers to a connection from another machine.
fn answers(from: &str, address: &str, port: u16) -> bool {
    let script = format!("timeout 1 bash -c 'exec 3<>/dev/tcp/{address}/{port}'");
    Command::new("ip")
        .args(["netns", "exec", from, "bash", "-c", &script])
        .output()
        .unwrap()
        .status
        .success()
}

/// A machine between one outside, by which its default route leads, and one inside that it forwards for.
const NETWORK: &str = "
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /run
cp /etc/passwd /etc/group /run
mount -t tmpfs tmpfs /etc
mv /run/passwd /run/group /etc
ip link set lo up
for peer in outside inside; do
  ip netns add $peer
  ip link add to_$peer type veth peer name here netns $peer
  ip link set to_$peer up
  ip -n $peer link set here up
  ip -n $peer link set lo up
done
ip addr add 10.9.0.1/24 dev to_outside
ip -6 addr add fd09::1/64 dev to_outside nodad
ip addr add 10.8.0.1/24 dev to_inside
ip route add default via 10.9.0.2
ip -n outside addr add 10.9.0.2/24 dev here
ip -n outside -6 addr add fd09::2/64 dev here nodad
ip -n outside route add 10.8.0.0/24 via 10.9.0.1
ip -n inside addr add 10.8.0.2/24 dev here
ip -n inside route add default via 10.8.0.1
echo 1 > /proc/sys/net/ipv4/ip_forward
nft 'table ip publish { chain pre { type nat hook prerouting priority dstnat; iifname \"to_outside\" tcp dport 8080 dnat to 10.8.0.2:80; }; }'
nft 'table inet banned { chain early { type filter hook input priority -10; ip saddr 192.0.2.1 drop; }; }'
";

// holds: HK-11
#[test]
fn with_nft_itself_what_is_declared_gets_in_from_outside_and_nothing_else_does() {
    let test = "filters::with_nft_itself_what_is_declared_gets_in_from_outside_and_nothing_else_does";
    if !in_a_network_of_its_own(test) {
        return;
    }
    shell(NETWORK);
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup {
        root: Arc::new(RealDisk::open(Path::new("/")).unwrap()),
        system: Arc::new(RealSystem::new(Path::new("/"))),
        state: Arc::new(RealDisk::open(folder.path()).unwrap()),
        state_inside: None,
        boot_id: "boot".to_owned(),
        policy_out: None,
    };
    let mut machine = Machine::open(setup, 0).unwrap().0;
    machine.tell_abilities(vec!["nftables".to_owned()]);
    let _listening = ["[::]:22", "[::]:80"].map(|address| TcpListener::bind(address).unwrap());
    let mut inside: Vec<_> = [22, 80]
        .map(|port| {
            let serve =
                format!("import socket, time; s = socket.create_server(('', {port})); time.sleep(600)");
            let mut command = Command::new("ip");
            command.args(["netns", "exec", "inside", "python3", "-c", &serve]);
            command.spawn().unwrap()
        })
        .into();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !(answers("outside", "10.8.0.2", 22) && answers("outside", "10.8.0.2", 80)) {
        assert!(
            std::time::Instant::now() < deadline,
            "the machine inside does not serve"
        );
    }
    let decl = |sequence, accept: &Value| Decl::new(sequence).with("net", vec![filter(accept)]);
    let from_outside = || {
        [
            ("10.9.0.1", 22),
            ("10.9.0.1", 80),
            ("fd09::1", 22),
            // Through the machine, and by a port that it publishes for the one inside.
            ("10.8.0.2", 22),
            ("10.8.0.2", 80),
            ("10.9.0.1", 8080),
        ]
        .map(|(address, port)| answers("outside", address, port))
    };
    assert_eq!(from_outside(), [true; 6]);
    let others = shell("nft list table ip publish; nft list table inet banned");

    let ssh = json!([{ "protocol": "tcp", "ports": ["22"] }]);
    let applied = settle(&mut machine, &decl(1, &ssh));
    assert!(applied.window_open() && !applied.failed, "{applied:?}");
    assert!(
        reason(&applied, "net.filter").contains("on to_outside"),
        "{applied:?}"
    );
    assert_eq!(from_outside(), [true, false, true, true, false, false]);
    assert!(
        answers("inside", "10.8.0.1", 80),
        "a link that leads nowhere else is not touched"
    );
    assert_eq!(
        shell("nft list table ip publish; nft list table inet banned"),
        others
    );
    let applied = settle(&mut machine, &decl(2, &ssh));
    assert_eq!((applied.end, applied.lines), (End::Converged, Vec::new()));

    // A change that locks people out goes back, and they get in again.
    let locked = decl(
        3,
        &json!([{ "protocol": "tcp", "ports": ["443"], "from": ["192.0.2.0/24", "2001:db8::/32"] }]),
    );
    machine.apply(&locked.get(), locked.digest(), 10).unwrap();
    assert_eq!(from_outside(), [false; 6]);
    machine.revert(&because("nobody gets in"), 20).unwrap();
    assert_eq!(from_outside(), [true, false, true, true, false, false]);

    // A range that has the published port; sources and the link narrow it.
    let published = json!([
        { "protocol": "tcp", "ports": ["8000-8100"], "interface": "to_outside" },
        { "protocol": "tcp", "ports": ["80"], "from": ["10.9.0.0/24"] },
        { "protocol": "udp" },
    ]);
    settle(&mut machine, &decl(4, &published));
    assert_eq!(from_outside(), [false, true, false, false, true, true]);
    settle(&mut machine, &decl(5, &json!([{}])));
    assert_eq!(from_outside(), [true; 6]);
    settle(&mut machine, &decl(6, &ssh));

    // Somebody opens it; and a start of the machine loads what stands in its file.
    for (at, script) in [
        (30, "nft insert rule inet meshplan input accept"),
        (31, "nft delete table inet meshplan"),
        (32, "nft flush chain inet meshplan forward"),
    ] {
        shell(script);
        let repaired = machine.repair(&decl(6, &ssh).get(), at).unwrap();
        assert_eq!(
            outcomes(&repaired),
            [("net.filter".to_owned(), Outcome::DriftRepaired)],
            "{script}"
        );
        assert_eq!(
            from_outside(),
            [true, false, true, true, false, false],
            "{script}"
        );
    }
    shell("nft delete table inet meshplan; nft -f /etc/meshplan-filter.nft");
    let repaired = machine.repair(&decl(6, &ssh).get(), 9000).unwrap();
    assert_eq!((repaired.end, repaired.lines), (End::Converged, Vec::new()));

    let root = RealDisk::open(Path::new("/")).unwrap();
    let read = filters::read(
        Reach {
            root: &root,
            system: &RealSystem::new(Path::new("/")),
            state: &root,
        },
        true,
    );
    let places: Vec<(&str, FilterOwner)> = read
        .lines
        .iter()
        .map(|line| (line.place.as_str(), line.whose))
        .collect();
    assert_eq!(
        places,
        [
            ("inet banned early", FilterOwner::Ban),
            ("inet meshplan input", FilterOwner::Host),
            ("inet meshplan forward", FilterOwner::Host)
        ]
    );
    settle(&mut machine, &Decl::new(7));
    assert_eq!(from_outside(), [true; 6]);
    assert_eq!(shell("nft list tables"), "table ip publish\ntable inet banned\n");
    assert!(!Path::new("/etc/meshplan-filter.nft").exists());
    for served in &mut inside {
        served.kill().unwrap();
        served.wait().unwrap();
    }
}
