//! The packet filter of a machine in memory: nft as far as the host uses it, and ufw. Strict as the rest of it.

use std::collections::BTreeMap;

use serde_json::json;

use crate::edge::disk::{Disk as _, NewFile, Owner, SimDisk, atomic};
use crate::pure::filter::AWAY;
use crate::pure::filter::links::Links;
use crate::pure::target_path::TargetPath;

/// Where ufw keeps whether it is on.
const UFW_CONF: &str = "/etc/ufw/ufw.conf";

/// A packet filter in memory.
#[derive(Debug, Default)]
pub struct Nft {
    /// The machine has no such program.
    pub is_missing: bool,
    /// The text of the host's own table, as it was loaded; none where there is none.
    pub table: Option<String>,
    /// nft takes nothing that is to be loaded.
    pub refuses: bool,
    /// The version that it says it is.
    pub version: u32,
    /// The machine has the command `ufw`.
    pub has_ufw: bool,
    /// ufw's rules are in the kernel.
    pub is_ufw_loaded: bool,
    /// What other command lines say.
    pub answers: BTreeMap<String, String>,
    /// The kernel's files of legacy tables.
    pub legacy: BTreeMap<String, String>,
    /// The machine's links.
    pub links: Links,
}

/// The exit code, what is said, and what was done, in words.
type Ran = (i32, String, Option<String>);

fn read(disk: Option<&SimDisk>, path: &str) -> Option<String> {
    let bytes = disk?.read(&TargetPath::parse(path).ok()?).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

impl Nft {
    /// Runs a command line that is about the filter.
    pub(super) fn run(&mut self, argv: &[&str], disk: Option<&SimDisk>) -> Option<Ran> {
        if let Some(said) = self.answers.get(&argv.join(" ")) {
            return Some((0, said.clone(), None));
        }
        match argv {
            ["nft", ..] if self.is_missing => None,
            ["nft", arguments @ ..] => self.nft(arguments, disk),
            ["ufw", ..] if !self.has_ufw => None,
            ["ufw", "--version"] => Some((0, "ufw 0.36.2".to_owned(), None)),
            ["ufw", "disable"] => self.ufw("no", disk?),
            ["ufw", "--force", "enable"] => self.ufw("yes", disk?),
            _ => None,
        }
    }

    fn nft(&mut self, arguments: &[&str], disk: Option<&SimDisk>) -> Option<Ran> {
        let head = json!({ "metainfo": { "version": format!("1.0.{}", self.version) } });
        let listed = |objects: Vec<serde_json::Value>| {
            let all: Vec<_> = std::iter::once(head.clone()).chain(objects).collect();
            Some((0, json!({ "nftables": all }).to_string(), None))
        };
        let done = |what: &str| Some((0, String::new(), Some(what.to_owned())));
        match arguments {
            ["-j", "list", "tables"] => listed(match &self.table {
                None => Vec::new(),
                Some(_) => vec![json!({ "table": { "family": "inet", "name": "meshplan", "handle": 7 } })],
            }),
            ["-j", "list", "table", "inet", "meshplan"] => match &self.table {
                None => Some((1, "Error: No such file or directory".to_owned(), None)),
                // Another version writes the same rules otherwise.
                Some(text) => listed(vec![json!({ "rule": { "expr": [text, self.version] } })]),
            },
            ["-s", "list", "table", "inet", "meshplan"] => self.table.clone().map(|text| (0, text, None)),
            ["-c", "-f", path] | ["-f", path] => {
                let text = read(disk, path);
                if self.refuses || text.is_none() {
                    return Some((1, "Error: syntax error, unexpected string".to_owned(), None));
                }
                if arguments.len() == 3 {
                    return Some((0, String::new(), None));
                }
                self.table = text;
                done("load the filter")
            }
            [words] if *words == AWAY => {
                self.table = None;
                done("the filter goes")
            }
            [words] => {
                let text = words.strip_prefix(AWAY)?.strip_prefix("; ")?;
                self.table = Some(text.to_owned());
                done("load a table")
            }
            _ => None,
        }
    }

    fn ufw(&mut self, enabled: &str, disk: &SimDisk) -> Option<Ran> {
        let conf = format!("ENABLED={enabled}\n");
        let file = NewFile {
            bytes: conf.as_bytes(),
            mode: 0o644,
            owner: Owner::default(),
        };
        atomic::put_file(disk, &TargetPath::parse(UFW_CONF).ok()?, &file, None).ok()?;
        self.is_ufw_loaded = enabled == "yes";
        let what = if self.is_ufw_loaded { "ufw on" } else { "ufw off" };
        Some((0, String::new(), Some(what.to_owned())))
    }
}
