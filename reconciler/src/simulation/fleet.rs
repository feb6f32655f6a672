//! The made-up fleet of `fleet of N machines`: one module, one plan, machines `n1` and on, all enrolled.

use std::collections::BTreeMap;
use std::sync::Arc;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::key::{SigningKey, TransportKey};

use super::forge::Files;

/// Records in one folder.
const A_FOLDER: usize = 1000;

/// The seed of the simulated author's key: it signs nothing outside of a simulation.
pub(super) const AUTHOR_SEED: [u8; 32] = [7; 32];

/// The author's public key.
pub(super) fn author_key() -> SigningKey {
    public(&AUTHOR_SEED)
}

fn public(seed: &[u8; 32]) -> SigningKey {
    let key = ed25519_dalek::SigningKey::from_bytes(seed)
        .verifying_key()
        .to_bytes();
    // A public key that was just derived is of no low order.
    SigningKey::from_bytes(key).unwrap_or_else(|_| author_key())
}

/// The files.
pub(super) fn made_up(machines: usize) -> Files {
    let mut files: Vec<(String, String)> = vec![
        (
            "fleet.toml".to_owned(),
            format!(
                "schema = 1\nfleet = \"rehearsal\"\nbranch = \"main\"\n\n[[authors]]\nid = \"reconciler\"\nkey = \"{}\"\n",
                author_key()
            ),
        ),
        ("policy/base.toml".to_owned(), "[scheduler]\nreconcile_secs = 300\n".to_owned()),
        (
            "modules/web/module.toml".to_owned(),
            "[[file]]\nid = \"page\"\npath = \"/srv/page\"\nsource = \"files/page\"\n".to_owned(),
        ),
        ("modules/web/files/page".to_owned(), "one\n".to_owned()),
        (
            "plans/default.toml".to_owned(),
            "covers = [\"*\"]\n\n[[stage]]\nname = \"canary\"\nnodes = [\"n1\"]\n\
             healthy = { times = 3, every_secs = 20, within_secs = 300 }\n\n[[stage]]\nname = \"rest\"\nrest = true\n\
             healthy = { times = 3, every_secs = 20, within_secs = 300 }\n"
                .to_owned(),
        ),
    ];
    for n in 1..=machines {
        files.push((record_path(n, machines), record(n)));
    }
    let bytes = |(path, text): (String, String)| (path, Arc::from(text.into_bytes()));
    files.into_iter().map(bytes).collect::<BTreeMap<_, _>>()
}

fn record_path(n: usize, machines: usize) -> String {
    if machines > A_FOLDER {
        format!("nodes/{:03}/n{n}.toml", n / A_FOLDER)
    } else {
        format!("nodes/n{n}.toml")
    }
}

/// A record with keys that follow from its number.
fn record(n: usize) -> String {
    let id = uuid::Uuid::from_u128(0x0192_f0c1_0000_7000_8000_0000_0000_0000 + n as u128);
    format!(
        "id = \"{id}\"\nmodules = [\"web\"]\n{}",
        keys(&format!("machine {n}"))
    )
}

/// The lines of a record that has its keys.
fn keys(of: &str) -> String {
    let seed = Digest::of(of.as_bytes()).0;
    // Of a digest nobody knows one of low order.
    let transport = TransportKey::from_bytes(Digest::of(&seed).0);
    let transport = transport.map_or_else(|_| String::new(), |key| key.to_string());
    format!(
        "transport_key = \"{transport}\"\nsigning_key = \"{}\"\n",
        public(&seed)
    )
}

/// A record of a folder that has no keys yet, with some: in a rehearsal every machine is there. None for any other file.
pub(super) fn enrolled(path: &str, bytes: &[u8]) -> Option<Arc<[u8]>> {
    let is_record =
        path.starts_with("nodes/") && path.ends_with(".toml") && !path.starts_with("nodes/revoked/");
    let text = std::str::from_utf8(bytes).ok().filter(|_| is_record)?;
    let table: toml::Table = toml::from_str(text).ok()?;
    let bare = !table.contains_key("transport_key") && !table.contains_key("signing_key");
    bare.then(|| Arc::from(format!("{}{text}", keys(path)).into_bytes()))
}
