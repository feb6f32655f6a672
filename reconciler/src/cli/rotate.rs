//! `meshplan fleet rotate plan`: writes the schedule of a rotation into rotations.toml of a fleet's folder (RT-2).
//!
//! It works beside a clone and asks nobody: the entry is an order when it is merged, and not before.

use std::io::Write;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args as ClapArgs, Subcommand};
use jiff::Timestamp;
use meshplan_schemas::document::NodeFile;
use meshplan_schemas::document::rotations::RotationKind;
use meshplan_schemas::document::texts::SecretName;
use meshplan_schemas::finding::did_you_mean;
use meshplan_schemas::ident::{KeyId, NodeName, RoleName};
use serde_json::json;
use toml_edit::{Item, Table, value};

use super::change::{Change, schema_line};
use super::exit::Exit;
use super::in_place;
use crate::edge::clock::Clock;
use crate::pure::parse::{Documents, parse};

const FILE: &str = "rotations.toml";
/// How long an id may be: it is a name like that of a role.
const ID_CHARS: usize = 63;
const NOT_WALKED: &str =
    "this version checks rotations and does not walk them: the reconciler refuses a commit that has any";

/// Rotations of keys and of the mesh secret.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do with rotations.
#[derive(Debug, Clone, Subcommand)]
pub enum Verb {
    /// Writes the entry of a rotation to rotations.toml: published now, activated after the time that `[rotation]` of
    /// fleet.toml gives, retired by a later commit.
    Plan(Plan),
}

/// What moves, whose, and when.
#[derive(Debug, Clone, ClapArgs)]
pub struct Plan {
    /// What moves.
    #[arg(value_name = "KIND", value_parser = PossibleValuesParser::new(words()).try_map(kind))]
    pub kind: RotationKind,
    /// The node whose key it is.
    #[arg(group = "whose")]
    pub node: Option<NodeName>,
    /// The keys of every node with this role.
    #[arg(long, group = "whose", value_name = "ROLE")]
    pub role: Option<RoleName>,
    /// The keys of every node.
    #[arg(long, group = "whose")]
    pub all: bool,
    /// The new mesh secret: `secrets/NAME.age`, which is there.
    #[arg(long, value_name = "NAME")]
    pub secret: Option<SecretName>,
    /// When the new one is told: unix seconds, or a date-time with an offset; now where it is left out.
    #[arg(long, value_name = "T", value_parser = instant)]
    pub publish: Option<i64>,
    /// When the new one is used; 0 is not decided yet.
    #[arg(long, value_name = "T", value_parser = instant)]
    pub activate: Option<i64>,
    /// The fleet's repository.
    #[arg(long, default_value = ".")]
    pub dir: PathBuf,
}

fn words() -> impl Iterator<Item = &'static str> {
    RotationKind::WORDS.iter().map(|(word, _)| *word)
}

fn kind(word: String) -> Result<RotationKind, String> {
    let found = RotationKind::WORDS.iter().find(|(known, _)| *known == word);
    found.map(|(_, kind)| *kind).ok_or(word)
}

/// Unix seconds, or a date-time with an offset (FR-13).
fn instant(text: &str) -> Result<i64, String> {
    let secs = match text.parse::<i64>() {
        Ok(secs) if secs >= 0 && Timestamp::from_second(secs).is_ok() => Some(secs),
        Ok(_) => None,
        Err(_) => text.parse::<Timestamp>().ok().map(Timestamp::as_second),
    };
    secs.ok_or_else(|| {
        "an instant is unix seconds, or a date-time with an offset, as in `2026-11-02T08:00:00+01:00`"
            .to_owned()
    })
}

/// Runs the command. [`Exit::Usage`] where what is asked for is no rotation of its kind, [`Exit::No`] where it names
/// what is not there or the fleet would not check with it; nothing is written then.
///
/// # Errors
/// A file cannot be read or written.
pub fn run(args: &Args, json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let Verb::Plan(plan) = &args.verb;
    if let Err(why) = fits(plan) {
        writeln!(out, "{why}")?;
        return Ok(Exit::Usage);
    }
    let Some(change) = Change::begin(&plan.dir, out)? else {
        return Ok(Exit::Usage);
    };
    let (documents, _) = parse(change.tree());
    match entry(plan, &documents, Clock::system().now().as_second()) {
        Ok(entry) => write(change, &entry, json, out),
        Err(why) => {
            writeln!(out, "{why}")?;
            Ok(Exit::No)
        }
    }
}

/// What to say next of arguments that make no rotation.
fn fits(plan: &Plan) -> Result<(), String> {
    let kind = plan.kind;
    let of_nodes = matches!(kind, RotationKind::NodeTransport | RotationKind::NodeSigning);
    let whose = plan.node.is_some() || plan.role.is_some() || plan.all;
    if of_nodes && !whose {
        return Err(format!("whose {kind}? Name a node, or say --role ROLE or --all"));
    }
    if whose && !of_nodes {
        return Err(format!(
            "{kind} is nobody's in particular: leave out the node, --role and --all"
        ));
    }
    match (&plan.secret, kind == RotationKind::MeshSecret) {
        (None, true) => {
            Err("which secret comes? `meshplan secret set NAME` makes one, --secret NAME takes it".to_owned())
        }
        (Some(_), false) => Err(format!("{kind} has no secret: leave out --secret")),
        _ => Ok(()),
    }
}

/// One rotation, as it is written.
struct Entry {
    id: String,
    kind: RotationKind,
    subject: Option<String>,
    next_key_id: Option<KeyId>,
    secret: Option<String>,
    publish_at: i64,
    activate_at: i64,
    /// What has to come before it can go on.
    missing: Option<String>,
}

/// The entry that is asked for, or what to do before there can be one.
fn entry(plan: &Plan, documents: &Documents, now: i64) -> Result<Entry, String> {
    let fleet = documents
        .fleet
        .as_ref()
        .and_then(|document| document.read.as_ref());
    let Some(fleet) = fleet else {
        return Err("fleet.toml does not read: `meshplan check` says why".to_owned());
    };
    let kind = plan.kind;
    let publish_at = plan.publish.unwrap_or(now);
    let after = i64::from(fleet.rotation.default_publish_to_activate_secs.0);
    let activate_at = plan.activate.unwrap_or(match publish_at {
        0 => 0,
        at => at.saturating_add(after),
    });
    let record = plan
        .node
        .as_ref()
        .map(|name| record(documents, name))
        .transpose()?;
    let subject = match (record, &plan.role) {
        (Some(record), _) => Some(record.id.value.to_string()),
        (None, Some(role)) => Some(format!("role:{role}")),
        (None, None) => plan.all.then(|| "all".to_owned()),
    };
    let next = record.map(|record| match kind {
        RotationKind::NodeTransport => record.next_transport_key.as_ref().map(|key| key.value.id()),
        _ => record.next_signing_key.as_ref().map(|key| key.value.id()),
    });
    let key = match kind {
        RotationKind::NodeTransport => "next_transport_key",
        _ => "next_signing_key",
    };
    let missing = match (&plan.node, &next) {
        (Some(node), Some(None)) => Some(format!(
            "the record of {node} has no `{key}` yet: before it can be used the node makes it and the record carries it"
        )),
        _ => None,
    };
    let secret = plan
        .secret
        .as_ref()
        .map(|name| sealed(documents, name))
        .transpose()?;
    let name = plan.node.as_ref().map(NodeName::as_str);
    let name = name.or(plan.role.as_ref().map(RoleName::as_str));
    let id = match name {
        Some(name) => format!("rot-{publish_at}-{kind}-{name}"),
        None => format!("rot-{publish_at}-{kind}"),
    };
    Ok(Entry {
        id: id.chars().take(ID_CHARS).collect(),
        kind,
        subject,
        next_key_id: next.flatten(),
        secret,
        publish_at,
        activate_at,
        missing,
    })
}

/// The record of a node, or what to do about that there is none.
fn record<'d>(documents: &'d Documents, name: &NodeName) -> Result<&'d NodeFile, String> {
    let members = || documents.nodes.iter().filter(|node| !node.in_revoked);
    match members().find(|node| node.name == *name) {
        Some(node) => node.document.read.as_deref().ok_or_else(|| {
            format!(
                "{} does not read: `meshplan check` says why",
                node.document.source.file()
            )
        }),
        None => {
            let near = did_you_mean(name.as_str(), members().map(|node| node.name.as_str()));
            let next = near.unwrap_or_else(|| format!("`meshplan node add {name}` makes its record"));
            Err(format!("there is no node `{name}`: {next}"))
        }
    }
}

/// The path of a secret that is there.
fn sealed(documents: &Documents, name: &SecretName) -> Result<String, String> {
    documents.secrets.get(name).cloned().ok_or_else(|| {
        let near = did_you_mean(&name.0, documents.secrets.keys().map(|name| name.0.as_str()));
        let next = near.unwrap_or_else(|| format!("`meshplan secret set {name}` makes it"));
        format!("there is no secrets/{name}.age: {next}")
    })
}

fn write(mut change: Change, entry: &Entry, json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let fresh = schema_line(FILE, "rotations");
    let there = change.tree().get(FILE).map(|there| there.bytes.clone());
    let before = there.as_deref().unwrap_or(fresh.as_bytes());
    let text = in_place::edit(FILE, before, |document| {
        in_place::append(document, "rotations", entry.table())
    })?;
    change.write(FILE, text);
    let exit = change.carry_out(out)?;
    if exit != Exit::Done {
        return Ok(exit);
    }
    if json {
        let said = json!({
            "file": FILE, "id": entry.id, "kind": entry.kind, "subject": entry.subject, "next_key_id": entry.next_key_id,
            "secret": entry.secret, "publish_at": entry.publish_at, "activate_at": entry.activate_at, "retire_at": 0,
            "walked": false, "missing": entry.missing,
        });
        writeln!(out, "{}", serde_json::to_string_pretty(&said)?)?;
        return Ok(exit);
    }
    writeln!(
        out,
        "{FILE}: {}, published {}, activated {}; it retires when a later commit says so",
        entry.id,
        shown(entry.publish_at),
        shown(entry.activate_at)
    )?;
    if let Some(missing) = &entry.missing {
        writeln!(out, "{missing}")?;
    }
    writeln!(out, "{NOT_WALKED}")?;
    Ok(exit)
}

impl Entry {
    fn table(&self) -> Table {
        let mut table = Table::new();
        table["id"] = value(&self.id);
        table["kind"] = value(self.kind.word());
        let next = self.next_key_id.as_ref().map(|key| &key.0);
        let texts = [
            ("subject", self.subject.as_ref()),
            ("next_key_id", next),
            ("secret", self.secret.as_ref()),
        ];
        for (key, text) in texts {
            if let Some(text) = text {
                table[key] = value(text);
            }
        }
        table["publish_at"] = dated(self.publish_at);
        table["activate_at"] = dated(self.activate_at);
        table["retire_at"] = dated(0);
        table
    }
}

/// Unix seconds with the date beside them, which is what a person reads.
fn dated(secs: i64) -> Item {
    let mut item = value(secs);
    if let Some(value) = item.as_value_mut() {
        value.decor_mut().set_suffix(format!("  # {}", shown(secs)));
    }
    item
}

fn shown(secs: i64) -> String {
    match (secs, Timestamp::from_second(secs)) {
        (0, _) => "not yet".to_owned(),
        (_, Ok(at)) => at.to_string(),
        (_, Err(_)) => secs.to_string(),
    }
}
