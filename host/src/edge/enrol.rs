//! Enrolment from the machine's side (LK-3): keys, token, admission, membership.
//!
//! The keys are made here and stay here. The token's secret leaves only inside a session whose other side has proven
//! the reconciler's key. What comes back is believed only as far as the token's authors have signed it. The
//! membership is written last: a machine that has one is enrolled, whatever cut the work short before.

mod admission;

use std::path::{Path, PathBuf};
use std::time::Duration;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::NodeName;
use meshplan_schemas::session::token::{Token, machine_fingerprint};
use meshplan_schemas::session::{self, Initiator, Session, SessionError};
use meshplan_schemas::wire::{FromEnrolling, ToEnrolling};

pub use admission::{AdmissionError, Admitted};

use super::identity::{Identity, IdentityError, keep};
use super::link::backoff::Backoff;
use super::link::dial::{self, DialError, Open, Reader, Socket, Writer};
use super::link::{DIRECT, MEMBERSHIP_FILE, Membership, MembershipError};

/// The head of the fleet list that this machine trusts, exact text, in the state folder.
pub const TRUST_FILE: &str = "trust.json";
/// This node's record with its proof, in the state folder.
pub const RECORD_FILE: &str = "record.json";

/// Between two questions whether the admission was merged.
const POLL: Duration = Duration::from_secs(2);
/// For an answer inside the session.
const ANSWER: Duration = Duration::from_secs(30);

/// Why a machine is not enrolled.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// It is a member already.
    #[error(
        "this machine is `{name}` of the fleet `{fleet}` already; to enrol it anew, stop its host and move {state_dir} away first"
    )]
    Already {
        /// The fleet.
        fleet: String,
        /// The node's name.
        name: String,
        /// The state folder.
        state_dir: PathBuf,
    },
    /// The token is for another kind of link.
    #[error("the token is for the link kind `{0}`, which this host lacks; nothing was sent")]
    Kind(String),
    /// The keys.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A membership that is there and cannot be read.
    #[error(transparent)]
    Membership(#[from] MembershipError),
    /// No address answers with the pinned key.
    #[error(
        "no address of the token answers with the reconciler's key, so the secret was not sent: {0}; if the reconciler has new keys, ask for a new token"
    )]
    Pin(String),
    /// Refused; the reconciler does not say why.
    #[error(
        "the reconciler refused the token: it was used by another machine, has expired, or was never given out; the reconciler's log says which"
    )]
    Refused,
    /// What came back is not to be believed.
    #[error("the admission is not to be believed, and nothing was kept: {0}")]
    Admission(#[from] AdmissionError),
    /// The state folder.
    #[error("cannot write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The system.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// What the machine says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// What it can do (HR-10).
    pub capabilities: Vec<String>,
    /// The host's version.
    pub host_version: String,
}

/// How far it is, for the person who waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The keys are there; the pull request must show the same fingerprint.
    Keys {
        /// Of both keys.
        fingerprint: String,
    },
    /// The reconciler has taken it down; the admission waits to be merged.
    Waiting {
        /// The name that the token fixes.
        name: NodeName,
        /// Of both keys, as this machine computes it.
        fingerprint: String,
    },
    /// An attempt did not work; another follows.
    Again {
        /// Why.
        why: String,
        /// After how long.
        after: Duration,
    },
}

/// Enrols this machine; returns when it is admitted and its membership is on disk. Waits as long as it takes: the
/// caller bounds it, and may call again with the same token, which continues.
///
/// # Errors
/// [`EnrolError`]; a reconciler that cannot be reached is none, it is tried again and `say` hears of it.
pub async fn enrol(
    token: &Token,
    state_dir: &Path,
    machine: &Machine,
    mut say: impl FnMut(Step),
) -> Result<Membership, EnrolError> {
    if let Some(member) = Membership::load(state_dir)? {
        return Err(EnrolError::Already {
            fleet: member.fleet.to_string(),
            name: member.name.to_string(),
            state_dir: state_dir.to_owned(),
        });
    }
    if token.link != DIRECT {
        return Err(EnrolError::Kind(token.link.clone()));
    }
    let identity = Identity::load_or_make(state_dir)?;
    let (transport, signing) = identity.public();
    say(Step::Keys {
        fingerprint: machine_fingerprint(&transport, &signing),
    });
    let mut backoff = Backoff::default();
    loop {
        match round(token, &identity, machine, &mut say).await? {
            Round::Admitted(admitted) => return write_down(token, state_dir, &admitted),
            Round::Again { why, after } => {
                let after = after.unwrap_or_else(|| backoff.next());
                say(Step::Again { why, after });
                tokio::time::sleep(after).await;
            }
        }
    }
}

enum Round {
    Admitted(Box<Admitted>),
    Again { why: String, after: Option<Duration> },
}

/// Every address once.
async fn round(
    token: &Token,
    identity: &Identity,
    machine: &Machine,
    say: &mut impl FnMut(Step),
) -> Result<Round, EnrolError> {
    let mut reasons = Vec::new();
    let mut pinned_away = true;
    for address in &token.addresses {
        let (initiator, first) = Initiator::enrolment(&token.fleet, &token.reconciler_key)?;
        match dial::open(address, initiator, first).await {
            Ok(open) => return talk(Talk::new(open), token, identity, machine, say).await,
            Err(why) => {
                pinned_away &= matches!(why, DialError::Key(_) | DialError::Address(_));
                reasons.push(format!("{address}: {why}"));
            }
        }
    }
    let why = reasons.join("; ");
    if pinned_away {
        return Err(EnrolError::Pin(why));
    }
    Ok(Round::Again { why, after: None })
}

async fn talk(
    mut talk: Talk,
    token: &Token,
    identity: &Identity,
    machine: &Machine,
    say: &mut impl FnMut(Step),
) -> Result<Round, EnrolError> {
    let (transport_key, signing_key) = identity.public();
    let message_id = message_id(token, identity);
    let mut question = FromEnrolling::Enrol {
        message_id: message_id.clone(),
        secret: token.secret.clone(),
        transport_key,
        signing_key,
        capabilities: machine.capabilities.clone(),
        host_version: machine.host_version.clone(),
    };
    let mut said_waiting = false;
    loop {
        let answer = match talk.ask(&question).await? {
            Ok(answer) => answer,
            Err(why) => return Ok(Round::Again { why, after: None }),
        };
        match answer {
            ToEnrolling::Waiting { name, .. } => {
                if !said_waiting {
                    said_waiting = true;
                    say(Step::Waiting {
                        name,
                        fingerprint: machine_fingerprint(&transport_key, &signing_key),
                    });
                }
                tokio::time::sleep(POLL).await;
                question = FromEnrolling::Poll {
                    message_id: message_id.clone(),
                };
            }
            ToEnrolling::Admitted {
                name,
                node,
                head,
                record,
            } => {
                let claim = Admitted {
                    node,
                    name,
                    head,
                    record,
                };
                admission::verify(token, &claim, transport_key, signing_key)?;
                return Ok(Round::Admitted(Box::new(claim)));
            }
            ToEnrolling::Refused => return Err(EnrolError::Refused),
            ToEnrolling::Busy { retry_after_ms } => {
                return Ok(Round::Again {
                    why: "the reconciler is busy".to_owned(),
                    after: Some(Duration::from_millis(retry_after_ms.min(600_000))),
                });
            }
            ToEnrolling::Unknown => {
                return Ok(Round::Again {
                    why: "the reconciler's answer is of a newer build".to_owned(),
                    after: None,
                });
            }
        }
    }
}

/// The same over all retries of this machine with this token, also after a restart, and nobody else's.
fn message_id(token: &Token, identity: &Identity) -> String {
    let (transport, signing) = identity.public();
    let parts: [&[u8]; 4] = [
        b"meshplan enrolment\0",
        token.secret.as_bytes(),
        transport.as_bytes(),
        signing.as_bytes(),
    ];
    Digest::of(&parts.concat()).hex().chars().take(32).collect()
}

/// One question, one answer.
struct Talk {
    session: Session,
    reader: Reader,
    writer: Writer,
    opened: tokio::time::Instant,
}

impl Talk {
    fn new(open: Open) -> Self {
        Self {
            session: open.session,
            reader: open.reader,
            writer: open.writer,
            opened: tokio::time::Instant::now(),
        }
    }

    /// The inner error is one of the connection: another attempt may work.
    async fn ask(&mut self, question: &FromEnrolling) -> Result<Result<ToEnrolling, String>, EnrolError> {
        let bytes = session::encode(question)?;
        let frames = self.session.send(&bytes, self.opened.elapsed().as_secs())?;
        if let Err(why) = self.writer.send(frames).await {
            return Ok(Err(why));
        }
        let answer = async {
            loop {
                match self.reader.next().await {
                    Socket::Alive => {}
                    Socket::Closed(why) => return Err(why),
                    Socket::Frame(frame) => match self.session.receive(&frame) {
                        Ok(None) => {}
                        Ok(Some(message)) => {
                            return session::decode(&message).map_err(|e| e.to_string());
                        }
                        Err(why) => return Err(why.to_string()),
                    },
                }
            }
        };
        Ok(tokio::time::timeout(ANSWER, answer)
            .await
            .unwrap_or_else(|_| Err("no answer in time".to_owned())))
    }
}

fn write_down(token: &Token, state_dir: &Path, admitted: &Admitted) -> Result<Membership, EnrolError> {
    let membership = Membership {
        link: token.link.clone(),
        fleet: token.fleet.clone(),
        node: admitted.node,
        name: admitted.name.clone(),
        addresses: token.addresses.clone(),
        reconciler_key: token.reconciler_key,
    };
    let json = |value: serde_json::Result<String>| value.unwrap_or_default() + "\n";
    let files = [
        (TRUST_FILE, admitted.head.clone()),
        (RECORD_FILE, json(serde_json::to_string(&admitted.record))),
        // Last: it says that the rest is there.
        (MEMBERSHIP_FILE, json(serde_json::to_string_pretty(&membership))),
    ];
    for (name, text) in files {
        let path = state_dir.join(name);
        keep(&path, text.as_bytes()).map_err(|source| EnrolError::Write { path, source })?;
    }
    Ok(membership)
}
