//! Every kind of page 06 composes into a resource that a host can read back.
#![expect(clippy::unwrap_used, reason = "a test says why by failing")]

use std::sync::Arc;

use meshplan_reconciler::pure::compose::{Composed, TreeError, compose_tree};
use meshplan_reconciler::pure::source_tree::{EntryKind, SourceTree};
use meshplan_schemas::document::module::Entry;
use meshplan_schemas::resource::programs::{Restart, Run, Witness};
use meshplan_schemas::resource::{Ask, Kind};

const FLEET: &str = r#"schema = 1
fleet = "museum"
branch = "main"
[[authors]]
id = "example"
key = "ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
"#;
const PLAN: &str = "covers = [\"*\"]\n[[stage]]\nname = \"rest\"\nrest = true\n";
const KINDS: &str = r#"
[[bundle]]
id = "site"
path = "/srv/site"
source = "site"
[[process]]
id = "app"
command = ["./app"]
bundle = "site"
prepares = ["./migrate"]
replaces = ["old", "gone.db"]
[[container]]
id = "db"
name = "database"
image = "db:15"
networks = ["back"]
mounts = [{ volume = "data", target = "/data" }, { source = "/srv", target = "/a" }]
ports = [{ host = 5432, address = "127.0.0.1" }]
healthcheck = { command = ["/bin/true"] }
[[process]]
id = "backup"
command = ["/bin/backup"]
run = "scheduled"
calendar = "daily"
while_stopped = ["db", "app"]
[[user]]
id = "web"
[[group]]
id = "staff"
[[package]]
id = "nginx"
[[archive]]
id = "tools"
path = "/opt/tools"
source = "files/tools.tar.gz"
[[service]]
id = "nginx-unit"
unit = "nginx.service"
state = "running"
[[network]]
id = "back"
name = "backend"
[[volume]]
id = "data"
[[filter]]
id = "filter"
accept = [{ protocol = "tcp", ports = [22, "80-81"] }]
[[private_network]]
id = "mesh"
interface = "wg0"
address_var = "wg"
[[sysctl]]
id = "forward"
key = "net/ipv4/ip_forward"
value = "1"
[[kernel-module]]
id = "wireguard"
[[action]]
id = "step"
command = ["/bin/step"]
[[upgrade]]
id = "security"
[[reboot]]
id = "reboot"
[[file]]
id = "conf"
path = "/etc/app.conf"
content = "x"
[[directory]]
id = "dir"
path = "/srv/dir"
[[link]]
id = "link"
path = "/srv/link"
target = "dir"
[[probe]]
id = "works"
container = "db"
"#;

fn composed(module: &str) -> Result<Composed, TreeError> {
    let node = |n: u32| {
        format!(
            "id = \"0192f0c1-0000-7000-8000-00000000000{n}\"\nmodules = [\"m\"]\n[vars]\nwg = \"10.8.0.{n}/24\"\n"
        )
    };
    let files = [
        ("fleet.toml", FLEET.to_owned()),
        ("plans/default.toml", PLAN.to_owned()),
        ("nodes/ace.toml", node(1)),
        ("nodes/bea.toml", node(2)),
        ("modules/m/module.toml", module.to_owned()),
        ("modules/m/files/tools.tar.gz", "x".to_owned()),
        ("modules/m/site/app", "x".to_owned()),
        ("modules/m/site/migrate", "x".to_owned()),
    ];
    let entry = |(path, text): (&str, String)| (path.into(), EntryKind::Blob, Arc::from(text.into_bytes()));
    let (tree, findings) = SourceTree::from_entries(files.into_iter().map(entry).collect());
    assert_eq!(findings, []);
    compose_tree(&tree, None, None)
}

fn kinds(composed: &Composed, node: usize) -> Vec<(String, Kind)> {
    let node = composed.nodes.values().nth(node).unwrap();
    let (_, content) = node.modules.values().next().unwrap();
    (content.resources.iter())
        .map(|resource| (resource.name.id.to_string(), resource.read().unwrap()))
        .collect()
}

#[test]
fn every_kind_composes_and_reads_back_with_its_names_resolved() {
    let composed = composed(KINDS).unwrap();
    let kinds = kinds(&composed, 0);
    for word in Entry::KINDS {
        assert!(
            kinds.iter().any(|(_, kind)| kind.word() == *word),
            "no {word} was composed"
        );
        assert!(Kind::WORDS.contains(word));
    }
    assert_eq!(Kind::WORDS.len(), Entry::KINDS.len());
    let of = |id: &str| {
        kinds
            .iter()
            .find(|(of, _)| of == id)
            .map(|(_, kind)| kind)
            .unwrap()
    };
    // A step of the same build comes before the daemon that it prepares (HK-6).
    assert_eq!((kinds[1].0.as_str(), kinds[2].0.as_str()), ("app-prepare", "app"));
    let (Kind::Process(step), Kind::Process(app)) = (of("app-prepare"), of("app")) else {
        unreachable!("these are processes")
    };
    assert_eq!(
        (step.run, step.restart, step.command[0].as_str()),
        (Run::Once, Restart::Never, "./migrate")
    );
    assert_eq!(
        step.prepares_for.as_ref().map(ToString::to_string).as_deref(),
        Some("app")
    );
    assert_eq!(
        (app.run, app.restart, app.witness),
        (Run::Daemon, Restart::Always, Witness::None)
    );
    let replaced: Vec<String> = app.replaces.iter().map(ToString::to_string).collect();
    assert_eq!(replaced, ["m.old", "gone.db"]);
    let Kind::Container(db) = of("db") else {
        unreachable!("a container")
    };
    assert_eq!(db.name, "database");
    assert_eq!(db.networks.iter().collect::<Vec<_>>(), ["backend"]);
    assert!(
        db.mounts
            .iter()
            .any(|mount| mount.volume.as_deref() == Some("data"))
    );
    let port = db.ports.first().unwrap();
    assert_eq!((port.host, port.container), (5432, 5432));
    let Kind::Sysctl(forward) = of("forward") else {
        unreachable!("a setting")
    };
    assert_eq!(forward.key, "net.ipv4.ip_forward");
    let Kind::Probe(works) = of("works") else {
        unreachable!("a probe")
    };
    assert_eq!(works.ask, Ask::Container("database".to_owned()));
}

#[test]
fn a_private_network_is_each_nodes_own() {
    let composed = composed(KINDS).unwrap();
    let network = |node| match kinds(&composed, node).into_iter().find(|(id, _)| id == "mesh") {
        Some((_, Kind::PrivateNetwork(network))) => network,
        _ => unreachable!("a private network"),
    };
    let (ace, bea) = (network(0), network(1));
    assert_eq!(
        (ace.address.as_str(), bea.address.as_str()),
        ("10.8.0.1/24", "10.8.0.2/24")
    );
    assert_eq!(ace.peers.len(), 1);
    assert_eq!(ace.peers[0].address, bea.address);
}

#[test]
fn an_order_that_nobody_changed_changes_no_digest() {
    let again = KINDS.replace(
        "{ volume = \"data\", target = \"/data\" }, { source = \"/srv\", target = \"/a\" }",
        "{ source = \"/srv\", target = \"/a\" }, { volume = \"data\", target = \"/data\" }",
    );
    assert_ne!(again, KINDS);
    let digest = |text: &str| {
        let composed = composed(text).unwrap();
        composed
            .nodes
            .values()
            .next()
            .unwrap()
            .modules
            .values()
            .next()
            .unwrap()
            .0
    };
    assert_eq!(digest(KINDS), digest(&again));
    assert_ne!(
        digest(KINDS),
        digest(&KINDS.replace("/srv\", target", "/srv/x\", target"))
    );
}
