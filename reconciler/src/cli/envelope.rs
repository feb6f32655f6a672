//! `meshplan envelope show|verify FILE|-`: explains any envelope to a person (SG-10).
//!
//! `show` says what stands in it and believes nothing; `verify` judges it as a host would that knows what the command
//! line says: a head that is trusted, or a fleet and keys.

mod explain;

use std::io::{Read as _, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args as ClapArgs, Subcommand};
use meshplan_schemas::declaration::Declaration;
use meshplan_schemas::envelope::{Envelope, Payload as _};
use meshplan_schemas::epoch::Epoch;
use meshplan_schemas::fleet_list::{Author, FleetHead};
use meshplan_schemas::ident::{FleetName, KeyId, NodeId};
use meshplan_schemas::judge::{self, Judged, Known, Refusal};
use meshplan_schemas::key::SigningKey;
use meshplan_schemas::limits::ENVELOPE_BYTES;
use meshplan_schemas::report::{Mark, Marks, Report};
use meshplan_schemas::timestamp::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::exit::Exit;
use crate::edge::clock::Clock;
use explain::{Row, plain};

/// Explains signed envelopes.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do with an envelope.
#[derive(Debug, Clone, Subcommand)]
pub enum Verb {
    /// Says what stands in an envelope: type, number, author, what it would do. Believes nothing.
    Show(Look),
    /// Judges an envelope as a host would, and says every reason for which it is refused. Ends with 1 when it is.
    Verify(Look),
}

/// Which envelope, and what is known.
#[derive(Debug, Clone, ClapArgs)]
pub struct Look {
    /// The envelope's file; `-` is the standard input.
    pub file: PathBuf,
    /// A head of the fleet list that is trusted: whose authors, timestamp keys and fleet count.
    #[arg(long, value_name = "FILE")]
    pub head: Option<PathBuf>,
    /// The fleet that it must be of.
    #[arg(long)]
    pub fleet: Option<FleetName>,
    /// A key that may sign: `ed25519:...`, or `name=ed25519:...`; may be given several times.
    #[arg(long = "author-key", value_name = "KEY", value_parser = author)]
    pub author_keys: Vec<Author>,
    /// The node that judges.
    #[arg(long, value_name = "UUID")]
    pub node: Option<NodeId>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

fn author(text: &str) -> Result<Author, String> {
    // A key's base64 may end in `=`, so the name is what stands before the key's prefix.
    let (name, key) = match text.split_once("=ed25519:") {
        Some((name, key)) => (Some(name), format!("ed25519:{key}")),
        None => (None, text.to_owned()),
    };
    let key: SigningKey = key.parse().map_err(|e| format!("{e}"))?;
    let id = name.map_or_else(|| key.id(), |name| KeyId(name.to_owned()));
    Ok(Author { id, key })
}

/// Runs the command.
///
/// # Errors
/// A file cannot be read, or nothing can be written to `out`.
pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let (look, judges) = match &args.verb {
        Verb::Show(look) => (look, false),
        Verb::Verify(look) => (look, true),
    };
    let bytes = read(&look.file)?;
    let known = Knowledge::of(look)?;
    if judges && known.authors.is_empty() {
        writeln!(
            out,
            "nothing is known by which it could be judged; give `--head FILE`, or `--fleet NAME` and `--author-key KEY`"
        )?;
        return Ok(Exit::Usage);
    }
    let envelope = match Envelope::read(&bytes) {
        Ok(envelope) => envelope,
        Err(why) => {
            if look.json {
                let judged =
                    json!({ "taken": false, "reasons": [{ "code": "malformed", "text": why.to_string() }] });
                writeln!(
                    out,
                    "{}",
                    serde_json::to_string_pretty(&json!({ "judged": judged }))?
                )?;
            } else {
                writeln!(out, "refused: {why}")?;
            }
            return Ok(Exit::No);
        }
    };
    let verdict = (!known.authors.is_empty()).then(|| known.judge(&envelope, &bytes));
    let rows = explain::rows(&envelope, &known.authors_and_clocks());
    if look.json {
        let payload: Value = serde_json::from_slice(&envelope.payload).unwrap_or(Value::Null);
        let whole = json!({
            "type": envelope.payload_type,
            "says": rows,
            "payload_digest": envelope.payload_digest(),
            "payload": payload,
            "judged": verdict,
        });
        writeln!(out, "{}", serde_json::to_string_pretty(&whole)?)?;
    } else {
        for Row { what, says } in &rows {
            writeln!(out, "{what:<14}{}", plain(says))?;
        }
        match &verdict {
            Some(verdict) => verdict.print(out)?,
            None => writeln!(out, "\nnot judged: `meshplan envelope verify` judges it")?,
        }
    }
    Ok(match verdict {
        Some(verdict) if judges && !verdict.taken => Exit::No,
        _ => Exit::Done,
    })
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let most = u64::try_from(ENVELOPE_BYTES)?.saturating_add(1);
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        std::io::stdin()
            .lock()
            .take(most)
            .read_to_end(&mut bytes)
            .context("cannot read the standard input")?;
    } else {
        std::fs::File::open(path)
            .and_then(|file| file.take(most).read_to_end(&mut bytes))
            .with_context(|| format!("cannot read {}", path.display()))?;
    }
    Ok(bytes)
}

/// What the command line says that is known.
struct Knowledge {
    fleet: Option<FleetName>,
    authors: Vec<Author>,
    timestamp_keys: Vec<Author>,
    threshold: u32,
    marks: Marks,
    node: Option<NodeId>,
}

#[derive(Debug, Serialize)]
struct Reason {
    code: &'static str,
    text: String,
}

#[derive(Debug, Serialize)]
struct Outcome {
    taken: bool,
    duplicate: bool,
    reasons: Vec<Reason>,
}

impl Outcome {
    fn of<P>(judged: Result<Judged<P>, Vec<Refusal>>) -> Self {
        let reasons = |reasons: Vec<Refusal>| {
            reasons
                .iter()
                .map(|reason| Reason {
                    code: reason.code(),
                    text: reason.to_string(),
                })
                .collect()
        };
        match judged {
            Ok(judged) => Self {
                taken: true,
                duplicate: judged.duplicate,
                reasons: vec![],
            },
            Err(refusals) => Self {
                taken: false,
                duplicate: false,
                reasons: reasons(refusals),
            },
        }
    }

    fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        match (self.taken, self.duplicate) {
            (true, false) => writeln!(out, "\nwould be taken"),
            (true, true) => writeln!(out, "\nis known already, byte for byte"),
            (false, _) => {
                writeln!(out, "\nwould be refused:")?;
                self.reasons
                    .iter()
                    .try_for_each(|reason| writeln!(out, "  {}: {}", reason.code, plain(&reason.text)))
            }
        }
    }
}

impl Knowledge {
    fn of(look: &Look) -> anyhow::Result<Self> {
        let mut known = Self {
            fleet: look.fleet.clone(),
            authors: look.author_keys.clone(),
            timestamp_keys: look.author_keys.clone(),
            threshold: 1,
            marks: Marks::default(),
            node: look.node,
        };
        let Some(path) = &look.head else {
            return Ok(known);
        };
        let bytes = read(path)?;
        let name = path.display();
        let envelope = Envelope::read(&bytes).with_context(|| format!("{name} is no head"))?;
        anyhow::ensure!(
            envelope.payload_type == FleetHead::TYPE,
            "{name} is no head of a fleet list but `{}`",
            plain(&envelope.payload_type)
        );
        let head: FleetHead =
            serde_json::from_slice(&envelope.payload).with_context(|| format!("{name} is no head"))?;
        known.fleet = known.fleet.or(Some(head.fleet));
        known.authors.extend(head.authors);
        known.timestamp_keys.extend(head.timestamp_keys);
        known.threshold = head.threshold.max(1);
        known.marks.era = head.era;
        known.marks.revision = Some(Mark {
            number: head.revision,
            digest: envelope.payload_digest(),
        });
        Ok(known)
    }

    fn authors_and_clocks(&self) -> Vec<Author> {
        [self.authors.clone(), self.timestamp_keys.clone()].concat()
    }

    fn judge(&self, envelope: &Envelope, bytes: &[u8]) -> Outcome {
        // Without `--fleet` the envelope's own word is taken: then this one reason cannot be told.
        let claimed = |field: &str| {
            let payload: Value = serde_json::from_slice(&envelope.payload).unwrap_or(Value::Null);
            payload.get(field).and_then(Value::as_str).map(str::to_owned)
        };
        let fleet = self.fleet.clone().or_else(|| claimed("fleet")?.parse().ok());
        let Some(fleet) = fleet else {
            return Outcome {
                taken: false,
                duplicate: false,
                reasons: vec![Reason {
                    code: "malformed",
                    text: "the payload names no fleet".to_owned(),
                }],
            };
        };
        // The version of the package is always one.
        let version = env!("CARGO_PKG_VERSION")
            .parse()
            .unwrap_or(semver::Version::new(0, 0, 0));
        let known = Known {
            fleet: &fleet,
            node: self.node,
            authors: &self.authors,
            threshold: self.threshold,
            timestamp_keys: &self.timestamp_keys,
            marks: &self.marks,
            in_force: &[],
            version: &version,
            trusted_now: Some(Clock::system().now().as_second()),
        };
        match envelope.payload_type.as_str() {
            Epoch::TYPE => Outcome::of(judge::epoch(bytes, &known)),
            Declaration::TYPE => Outcome::of(judge::declaration(bytes, &known)),
            FleetHead::TYPE => Outcome::of(judge::fleet_head(bytes, &known)),
            Timestamp::TYPE => Outcome::of(judge::timestamp(bytes, &known)),
            Report::TYPE => {
                let node = self.node.or_else(|| claimed("node")?.parse().ok());
                let keys: Vec<SigningKey> = self.authors.iter().map(|author| author.key).collect();
                let node = node.unwrap_or(NodeId(uuid::Uuid::nil()));
                Outcome::of(judge::report(bytes, &fleet, node, &keys))
            }
            other => Outcome {
                taken: false,
                duplicate: false,
                reasons: vec![Reason {
                    code: "malformed",
                    text: format!("no order and no report is of the type `{other}`"),
                }],
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vectors() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/vectors")
    }

    fn ran(verb: fn(Look) -> Verb, name: &str, head: Option<&str>) -> (Exit, String) {
        let look = Look {
            file: vectors().join(name).join("envelope.json"),
            head: head.map(|name| vectors().join(name).join("envelope.json")),
            fleet: None,
            author_keys: vec![],
            node: None,
            json: false,
        };
        let mut out = Vec::new();
        let exit = run(&Args { verb: verb(look) }, &mut out).unwrap();
        (exit, String::from_utf8(out).unwrap())
    }

    // holds: SG-10
    #[test]
    fn each_kind_is_explained_with_type_number_and_author() {
        for (name, expected) in [
            ("ok-epoch", ["epoch 7", "author-1", "everyone"]),
            ("ok-declaration", ["sequence 12", "author-1", "0192f0c1-"]),
            ("ok-fleet-list", ["revision 3", "author-1", "0 records"]),
            ("ok-timestamp", ["timestamp", "timestamp-1", "revision 3"]),
            ("ok-report", ["report 7", "node", "0192f0c1-"]),
        ] {
            let (exit, text) = ran(Verb::Show, name, None);
            assert_eq!(exit, Exit::Done);
            for word in expected {
                assert!(text.contains(word), "{name} does not say {word:?}:\n{text}");
            }
        }
    }

    // holds: SG-10
    #[test]
    fn an_envelope_is_judged_against_a_head_and_every_reason_is_said() {
        let head = Some("ok-fleet-list");
        let (exit, text) = ran(Verb::Verify, "ok-epoch", head);
        assert_eq!(exit, Exit::Done, "{text}");
        assert!(text.contains("would be taken"));
        let (exit, text) = ran(Verb::Verify, "several-reasons", head);
        assert_eq!(exit, Exit::No);
        for reason in [
            "other_fleet: an order of the fleet `nexus1`",
            "policy: the policy is refused",
        ] {
            assert!(text.contains(reason), "{text}");
        }
        let (exit, text) = ran(Verb::Verify, "flipped-payload-bit", head);
        assert_eq!(exit, Exit::No);
        assert!(text.contains("the bytes or the signature were changed"), "{text}");
        let (exit, text) = ran(Verb::Verify, "truncated", head);
        assert_eq!(exit, Exit::No);
        assert!(text.contains("not a DSSE envelope"), "{text}");
    }

    #[test]
    fn verify_without_anything_known_says_what_to_give() {
        let (exit, text) = ran(Verb::Verify, "ok-epoch", None);
        assert_eq!(exit, Exit::Usage);
        assert!(text.contains("--head"));
    }

    #[test]
    fn a_key_may_have_a_name() {
        let key = "ed25519:iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w=";
        assert_eq!(author(&format!("me={key}")).unwrap().id.0, "me");
        assert_eq!(author(key).unwrap().id.0.len(), 16);
        assert!(author("me=x25519:AAAA").is_err());
    }
}
