//! Which machine a token admits, and the record that comes of it (LK-3, FG-5).
//!
//! A token is used once. The machine that used it may ask again with the same message id and keys, as often as answers
//! get lost; it is enrolled once. The caller is told "refused" and nothing more; the operator is told why.

use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::{ModuleName, NodeId, NodeName, RoleName};
use meshplan_schemas::key::{SigningKey, TransportKey};
use meshplan_schemas::session::token::{machine_fingerprint, secret_hash};
use meshplan_schemas::wire::{FromEnrolling, ToEnrolling};
use serde::{Deserialize, Serialize};
use toml_edit::{Array, DocumentMut, value};

/// An invitation as the store keeps it; the token itself is not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InviteRow {
    /// Its id, in lists and in the token.
    pub id: String,
    /// [`secret_hash`] of the token's secret; the store looks it up by this.
    pub secret_hash: Digest,
    /// The name that the machine gets.
    pub name: NodeName,
    /// The uuid that its record gets, or has where the record is there already.
    pub node: NodeId,
    /// Roles of the new record.
    pub roles: Vec<RoleName>,
    /// Modules of the new record.
    pub modules: Vec<ModuleName>,
    /// Unix seconds.
    pub created_at: i64,
    /// Unix seconds; from then on the token is refused.
    pub expires_at: i64,
    /// The token is itself the consent: the admission is merged without a person (journaled).
    pub admit: bool,
    /// Who used it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Used>,
}

/// The use of an invitation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// The machine's message id; it polls with it.
    pub message_id: String,
    /// The machine's session key.
    pub transport_key: TransportKey,
    /// The machine's signing key.
    pub signing_key: SigningKey,
    /// What it said that it can do.
    pub capabilities: Vec<String>,
    /// Unix seconds.
    pub at: i64,
}

/// What a machine asks for: [`FromEnrolling::Enrol`], read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnrolRequest {
    /// The same over its retries.
    pub message_id: String,
    /// By which the store finds the invitation.
    pub secret_hash: Digest,
    /// The machine's session key.
    pub transport_key: TransportKey,
    /// The machine's signing key.
    pub signing_key: SigningKey,
    /// What it can do.
    pub capabilities: Vec<String>,
}

impl EnrolRequest {
    /// The request in a message; none in another message.
    #[must_use]
    pub fn of(said: FromEnrolling) -> Option<Self> {
        match said {
            FromEnrolling::Enrol {
                message_id,
                secret,
                transport_key,
                signing_key,
                capabilities,
                host_version: _,
            } => Some(Self {
                message_id,
                secret_hash: secret_hash(&secret),
                transport_key,
                signing_key,
                capabilities,
            }),
            FromEnrolling::Poll { .. } | FromEnrolling::Unknown => None,
        }
    }
}

/// A machine that may become a node: what the admission's branch or pull request is made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    /// The invitation.
    pub invite: String,
    /// The node's name.
    pub name: NodeName,
    /// Its uuid.
    pub node: NodeId,
    /// Roles of a new record.
    pub roles: Vec<RoleName>,
    /// Modules of a new record.
    pub modules: Vec<ModuleName>,
    /// The machine's session key.
    pub transport_key: TransportKey,
    /// The machine's signing key.
    pub signing_key: SigningKey,
    /// What machine and pull request both show.
    pub fingerprint: String,
    /// What the machine can do.
    pub capabilities: Vec<String>,
    /// To be merged without a person.
    pub admit: bool,
}

impl Admission {
    /// The machine's answer while the admission waits.
    #[must_use]
    pub fn waiting(&self) -> ToEnrolling {
        ToEnrolling::Waiting {
            name: self.name.clone(),
            fingerprint: self.fingerprint.clone(),
        }
    }
}

impl InviteRow {
    /// The admission that came of it; none before it was used.
    #[must_use]
    pub fn admission(&self) -> Option<Admission> {
        let used = self.used.as_ref()?;
        Some(Admission {
            invite: self.id.clone(),
            name: self.name.clone(),
            node: self.node,
            roles: self.roles.clone(),
            modules: self.modules.clone(),
            transport_key: used.transport_key,
            signing_key: used.signing_key,
            fingerprint: machine_fingerprint(&used.transport_key, &used.signing_key),
            capabilities: used.capabilities.clone(),
            admit: self.admit,
        })
    }
}

/// What follows from a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Taken: store the row, whose `used` is set, in the transaction that stores the admission; then answer.
    First(Box<InviteRow>, Admission),
    /// The same machine once more: answer as before, store nothing.
    Again(Admission),
    /// Answer [`ToEnrolling::Refused`]; the reason is for the operator alone.
    Refused(RefusedEnrolment),
}

/// Why a machine is not admitted, for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RefusedEnrolment {
    /// No invitation has this secret.
    #[error("the token is unknown: it was never made here, or its invitation was taken back")]
    Unknown,
    /// Too late.
    #[error("the token of the invitation {invite} for `{name}` has expired at {expires_at}; make a new one")]
    Expired {
        /// The invitation.
        invite: String,
        /// The node's name.
        name: NodeName,
        /// Unix seconds.
        expires_at: i64,
    },
    /// Another machine was faster, or the token leaked.
    #[error(
        "the token of the invitation {invite} for `{name}` was used before by the machine {fingerprint}; if that is not the machine you know, do not merge its admission"
    )]
    Used {
        /// The invitation.
        invite: String,
        /// The node's name.
        name: NodeName,
        /// Of the machine that used it.
        fingerprint: String,
    },
    /// A record has one of the keys (FR-5).
    #[error(
        "the machine that used the invitation {invite} brings a key of the node `{node}`: its disk may be a copy; remove the state folder on one of the two and enrol it again"
    )]
    KeyKnown {
        /// The invitation.
        invite: String,
        /// Whose key it is.
        node: NodeName,
    },
}

/// Decides a request. `row` is the invitation with the request's secret hash; `key_of` the node whose record has one of
/// the two keys, when it is another than the invitation's.
#[must_use]
pub fn check(
    request: &EnrolRequest,
    row: Option<&InviteRow>,
    key_of: Option<&NodeName>,
    now: i64,
) -> Verdict {
    let Some(row) = row.filter(|row| row.secret_hash == request.secret_hash) else {
        return Verdict::Refused(RefusedEnrolment::Unknown);
    };
    if let Some((used, admission)) = row.used.as_ref().zip(row.admission()) {
        let same = used.message_id == request.message_id
            && used.transport_key == request.transport_key
            && used.signing_key == request.signing_key;
        return if same {
            Verdict::Again(admission)
        } else {
            Verdict::Refused(RefusedEnrolment::Used {
                invite: row.id.clone(),
                name: row.name.clone(),
                fingerprint: admission.fingerprint,
            })
        };
    }
    if now >= row.expires_at {
        return Verdict::Refused(RefusedEnrolment::Expired {
            invite: row.id.clone(),
            name: row.name.clone(),
            expires_at: row.expires_at,
        });
    }
    if let Some(node) = key_of.filter(|node| **node != row.name) {
        return Verdict::Refused(RefusedEnrolment::KeyKnown {
            invite: row.id.clone(),
            node: node.clone(),
        });
    }
    let mut row = row.clone();
    row.used = Some(Used {
        message_id: request.message_id.clone(),
        transport_key: request.transport_key,
        signing_key: request.signing_key,
        capabilities: request.capabilities.clone(),
        at: now,
    });
    match row.admission() {
        Some(admission) => Verdict::First(Box::new(row), admission),
        None => Verdict::Refused(RefusedEnrolment::Unknown),
    }
}

/// Why a machine's keys do not go into a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Not TOML.
    #[error("the record is no TOML: {0}")]
    Form(String),
    /// Another uuid.
    #[error("the record has the id {found}, the invitation is for {wanted}; an id never changes (FR-5)")]
    Id {
        /// The record's.
        found: String,
        /// The invitation's.
        wanted: NodeId,
    },
    /// Keys that are not this machine's.
    #[error("the record has another `{0}` already; a machine that enrols again gets a new record (RT-8)")]
    Keys(&'static str),
}

/// The text of `nodes/<name>.toml` with the machine's keys: a new record, or the invited one with its keys added and
/// everything else, comments and order too, as it was. The same text again when the keys are there already.
///
/// # Errors
/// [`RecordError`].
pub fn record_with_keys(existing: Option<&str>, admission: &Admission) -> Result<String, RecordError> {
    let mut record: DocumentMut = existing
        .unwrap_or_default()
        .parse()
        .map_err(|e: toml_edit::TomlError| RecordError::Form(e.to_string()))?;
    let wanted = admission.node.to_string();
    match record.get("id") {
        None => {
            record.insert("id", value(&wanted));
        }
        // The hyphenated lower-case form is not the only one of a uuid.
        Some(found) if found.as_str().and_then(|t| t.parse().ok()) == Some(admission.node) => {}
        Some(found) => {
            return Err(RecordError::Id {
                found: found.as_str().unwrap_or("(no text)").to_owned(),
                wanted: admission.node,
            });
        }
    }
    if existing.is_none() {
        let roles: Array = admission.roles.iter().map(|r| r.as_str()).collect();
        let modules: Array = admission.modules.iter().map(|m| m.as_str()).collect();
        record.insert("roles", value(roles));
        record.insert("modules", value(modules));
    }
    let keys = [
        ("transport_key", admission.transport_key.to_string()),
        ("signing_key", admission.signing_key.to_string()),
    ];
    for (name, key) in keys {
        match record.get(name) {
            None => {
                record.insert(name, value(key));
            }
            Some(found) if found.as_str() == Some(&key) => {}
            Some(_) => return Err(RecordError::Keys(name)),
        }
    }
    Ok(record.to_string())
}

#[cfg(test)]
mod tests {
    use meshplan_schemas::envelope::{Signer as _, SoftSigner};
    use meshplan_schemas::session::LinkSecret;

    use super::*;

    fn row() -> InviteRow {
        InviteRow {
            id: "i-1".into(),
            secret_hash: secret_hash("secret"),
            name: "ace".parse().unwrap(),
            node: NodeId(uuid::Uuid::from_u128(1)),
            roles: vec!["edge".parse().unwrap()],
            modules: vec!["base".parse().unwrap()],
            created_at: 0,
            expires_at: 100,
            admit: false,
            used: None,
        }
    }
    fn request(secret: &str, machine: u8) -> EnrolRequest {
        EnrolRequest::of(FromEnrolling::Enrol {
            message_id: format!("m-{machine}"),
            secret: secret.into(),
            transport_key: LinkSecret::from_bytes(&[machine; 32]).unwrap().public(),
            signing_key: SoftSigner::new(None, &[machine; 32]).unwrap().public(),
            capabilities: vec!["systemd".into()],
            host_version: "0.1.0".into(),
        })
        .unwrap()
    }
    fn first(row: &InviteRow, machine: u8) -> (InviteRow, Admission) {
        match check(&request("secret", machine), Some(row), None, 50) {
            Verdict::First(row, admission) => (*row, admission),
            other => panic!("{other:?}"),
        }
    }
    fn refused(verdict: Verdict) -> RefusedEnrolment {
        match verdict {
            Verdict::Refused(why) => why,
            other => panic!("{other:?}"),
        }
    }

    // holds: LK-3
    #[test]
    fn a_retry_with_the_same_message_id_enrols_once_also_after_the_expiry() {
        let (used, admission) = first(&row(), 1);
        for now in [51, 10_000] {
            let again = check(&request("secret", 1), Some(&used), None, now);
            assert_eq!(again, Verdict::Again(admission.clone()));
        }
        // Its own record has its keys by then.
        let name = row().name;
        let again = check(&request("secret", 1), Some(&used), Some(&name), 51);
        assert_eq!(again, Verdict::Again(admission));
    }

    // holds: LK-3
    #[test]
    fn used_expired_and_unknown_are_told_apart_to_the_operator() {
        let (used, admission) = first(&row(), 1);
        let why = refused(check(&request("secret", 2), Some(&used), None, 51));
        assert!(why.to_string().contains(&admission.fingerprint));
        let mut forged = request("secret", 2);
        forged.message_id = "m-1".into();
        let why = refused(check(&forged, Some(&used), None, 51));
        assert!(
            matches!(why, RefusedEnrolment::Used { .. }),
            "the id alone is not enough"
        );
        let why = refused(check(&request("secret", 1), Some(&row()), None, 100));
        assert!(matches!(why, RefusedEnrolment::Expired { .. }));
        let why = refused(check(&request("secret", 1), None, None, 50));
        assert_eq!(why, RefusedEnrolment::Unknown);
        let why = refused(check(&request("guess", 1), Some(&row()), None, 50));
        assert_eq!(why, RefusedEnrolment::Unknown);
    }

    // holds: FR-5
    #[test]
    fn a_machine_with_the_key_of_another_node_is_not_admitted() {
        let bob = "bob".parse().unwrap();
        let why = refused(check(&request("secret", 1), Some(&row()), Some(&bob), 50));
        assert!(why.to_string().contains("`bob`"));
    }

    // holds: FG-5
    #[test]
    fn a_new_record_has_what_the_token_fixes_and_the_machines_keys() {
        let (_, admission) = first(&row(), 1);
        let text = record_with_keys(None, &admission).unwrap();
        let record: toml::Table = toml::from_str(&text).unwrap();
        assert_eq!(
            record["id"].as_str(),
            Some("00000000-0000-0000-0000-000000000001")
        );
        assert_eq!(record["roles"].as_array().unwrap()[0].as_str(), Some("edge"));
        assert_eq!(
            record["transport_key"].as_str(),
            Some(&*admission.transport_key.to_string())
        );
        assert_eq!(
            record_with_keys(Some(&text), &admission).unwrap(),
            text,
            "again changes nothing"
        );
    }

    // holds: FG-5
    #[test]
    fn an_invited_record_gets_its_keys_and_keeps_its_comments() {
        let (_, admission) = first(&row(), 1);
        let invited = "# the one by the door\nid = \"00000000-0000-0000-0000-000000000001\"\nroles = [\"relay\"] # not edge\n\n[vars]\nsite = \"ams\"\n";
        let text = record_with_keys(Some(invited), &admission).unwrap();
        assert!(text.starts_with("# the one by the door\nid = "));
        assert!(text.contains("roles = [\"relay\"] # not edge\n"));
        assert!(!text.contains("modules"));
        let record: toml::Table = toml::from_str(&text).unwrap();
        assert_eq!(
            record["signing_key"].as_str(),
            Some(&*admission.signing_key.to_string())
        );
        assert_eq!(record["vars"]["site"].as_str(), Some("ams"));
    }

    // holds: FG-5, RT-8
    #[test]
    fn a_record_with_other_keys_or_another_id_is_left_alone() {
        let (_, admission) = first(&row(), 1);
        let (_, other) = first(&row(), 2);
        let text = record_with_keys(None, &other).unwrap();
        assert_eq!(
            record_with_keys(Some(&text), &admission),
            Err(RecordError::Keys("transport_key"))
        );
        let id = "id = \"00000000-0000-0000-0000-000000000002\"\n";
        assert!(matches!(
            record_with_keys(Some(id), &admission),
            Err(RecordError::Id { .. })
        ));
    }
}
