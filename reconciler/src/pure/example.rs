//! A fleet of any size, the same for the same seed: for whoever wants to see how a large one feels, for benches and
//! for properties (FR-15).
//!
//! The one generator: `meshplan example fleet` writes what it makes, tests and benches compose it. Invariant: what it
//! makes checks and lints without a word, whatever the size and the seed.

use std::collections::BTreeSet;

use data_encoding::BASE64;
use ed25519_dalek::SigningKey;
use meshplan_schemas::ident::NodeId;
use uuid::Uuid;

/// Roles that the generated records carry.
const ROLES: [&str; 5] = ["edge", "relay", "store", "web", "dns"];
/// How many records one folder holds at most: what a forge's page and a person's editor still show.
const NODES_A_FOLDER: usize = 1000;
const SITES: [&str; 4] = ["ams", "bru", "cdg", "dub"];

/// splitmix64: enough chance for a fleet, and the same on every machine.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound.max(1)).unwrap_or(1);
        usize::try_from(self.next() % bound).unwrap_or(0)
    }
    fn bytes(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes());
        }
        bytes
    }
}

/// The files of a fleet with so many enrolled nodes: path and bytes, sorted by path.
///
/// Six modules: `base` is the same everywhere, `host` differs on every node, the others come by role and differ by
/// setting.
#[must_use]
pub fn generate(nodes: usize, seed: u64) -> Vec<(String, Vec<u8>)> {
    let mut chance = Chance(seed);
    let mut files = vec![
        ("fleet.toml".to_owned(), fleet(&mut chance)),
        (
            "policy/base.toml".to_owned(),
            "[scheduler]\nreconcile_secs = 300\n\n[qos]\nartifact_kib_per_sec = 8000\n".into(),
        ),
        ("plans/default.toml".to_owned(), PLAN.into()),
        ("modules/base/module.toml".to_owned(), BASE.into()),
        (
            "modules/base/files/motd".to_owned(),
            "This machine is kept by meshplan.\n".repeat(20),
        ),
        ("modules/host/module.toml".to_owned(), HOST.into()),
        ("modules/host/files/hosts.j2".to_owned(), HOSTS.into()),
    ];
    // A small fleet has no role that nobody carries.
    let roles = &ROLES[..nodes.clamp(1, ROLES.len())];
    for (at, role) in roles.iter().enumerate() {
        files.push((
            format!("policy/roles/{role}.toml"),
            format!("[scheduler]\nsplay_secs = {}\n", at + 1),
        ));
        files.push((format!("modules/{role}/module.toml"), role_module(role)));
        files.push((format!("modules/{role}/files/{role}.conf.j2"), ROLE_CONF.into()));
    }
    let mut short_ids = BTreeSet::new();
    files.extend((0..nodes).map(|at| record(at, roles, &mut short_ids, &mut chance)));
    files.sort();
    files
        .into_iter()
        .map(|(path, text)| (path, text.into_bytes()))
        .collect()
}

fn fleet(chance: &mut Chance) -> String {
    let key = SigningKey::from_bytes(&chance.bytes()).verifying_key();
    format!(
        "schema = 1\nfleet = \"generated\"\nbranch = \"main\"\n\n[[authors]]\nid = \"author\"\nkey = \"ed25519:{}\"\n\n\
         [vars]\ndomain = \"example.net\"\n",
        BASE64.encode(key.as_bytes())
    )
}

/// A uuid whose short id no other record has (FR-5).
fn fresh(at: usize, short_ids: &mut BTreeSet<String>, chance: &mut Chance) -> NodeId {
    loop {
        let low = u128::from(chance.next()) << 32 | u128::try_from(at).unwrap_or(0);
        let id = NodeId(Uuid::from_u128(0x0192_f0c1 << 96 | low));
        if short_ids.insert(id.short().to_string()) {
            return id;
        }
    }
}

fn record(
    at: usize,
    among: &[&str],
    short_ids: &mut BTreeSet<String>,
    chance: &mut Chance,
) -> (String, String) {
    let name = format!("n{at:05}");
    let site = SITES[chance.below(SITES.len())];
    let first = among[at % among.len()];
    let second = among[chance.below(among.len())];
    let roles = if first == second {
        format!("\"{first}\"")
    } else {
        format!("\"{first}\", \"{second}\"")
    };
    let uuid = fresh(at, short_ids, chance);
    let signing = SigningKey::from_bytes(&chance.bytes()).verifying_key();
    let text = format!(
        "id = \"{uuid}\"\nroles = [{roles}]\nmodules = [\"base\", \"host\"]\naddress = \"ws://{name}.example.net:7946/mesh\"\n\
         transport_key = \"x25519:{}\"\nsigning_key = \"ed25519:{}\"\n\n[vars]\nsite = \"{site}\"\nport = {}\n",
        BASE64.encode(&chance.bytes()),
        BASE64.encode(signing.as_bytes()),
        8000 + chance.below(10),
    );
    (format!("nodes/{:03}/{name}.toml", at / NODES_A_FOLDER), text)
}

fn role_module(role: &str) -> String {
    format!(
        "description = \"What the role {role} brings\"\nafter = [\"base\"]\nroles = [\"{role}\"]\n\n\
         [settings.port]\ntype = \"integer\"\ndefault = 8080\nmin = 1024\nmax = 65535\n\n\
         [[directory]]\nid = \"folder\"\npath = \"/etc/{role}\"\n\n\
         [[file]]\nid = \"conf\"\npath = \"/etc/{role}/{role}.conf\"\nsource = \"files/{role}.conf.j2\"\nmode = \"0640\"\n\n\
         [[probe]]\nid = \"up\"\ntcp = \"localhost:8080\"\n"
    )
}

const PLAN: &str = "covers = [\"*\"]\n\n[[stage]]\nname = \"canary\"\nshare = \"1%\"\n\
                    healthy = { times = 3, every_secs = 50, within_secs = 600 }\n\n\
                    [[stage]]\nname = \"rest\"\nrest = true\nbatch = \"25%\"\n";
const BASE: &str = "[[file]]\nid = \"motd\"\npath = \"/etc/motd\"\nsource = \"files/motd\"\n\n\
                    [[directory]]\nid = \"state\"\npath = \"/var/lib/base\"\nmode = \"0750\"\n";
const HOST: &str = "[[file]]\nid = \"hosts\"\npath = \"/etc/host.conf\"\nsource = \"files/hosts.j2\"\n";
const HOSTS: &str = "name = {{ node.name }}.{{ fleet.vars.domain }}\nsite = {{ node.vars.site }}\n\
                     {%- for role in node.roles %}\nrole = {{ role }}\n{%- endfor %}\n";
const ROLE_CONF: &str =
    "listen = {{ settings.port }}\n{%- for n in range(20) %}\nworker.{{ n }} = on\n{%- endfor %}\n";
