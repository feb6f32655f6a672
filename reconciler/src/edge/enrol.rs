//! Makes invitations: the randomness that [`crate::pure::enrol`] may not have (LK-3).

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use meshplan_schemas::fleet_list::Author;
use meshplan_schemas::ident::{FleetName, ModuleName, NameError, NodeId, NodeName, RoleName};
use meshplan_schemas::key::TransportKey;
use meshplan_schemas::session::token::{Token, author_fingerprint, secret_hash};

use crate::pure::enrol::InviteRow;

/// The most invitations that one command makes.
pub const INVITES: u32 = 10_000;

/// What is asked for: `meshplan fleet invite NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InviteSpec {
    /// The node's name; with `{n}` in it where several are made, counted from 1.
    pub name: String,
    /// How many.
    pub count: u32,
    /// Roles of the new records.
    pub roles: Vec<RoleName>,
    /// Modules of the new records.
    pub modules: Vec<ModuleName>,
    /// For how long the tokens hold, in seconds.
    pub expires_secs: u32,
    /// The token is itself the consent.
    pub admit: bool,
}

/// What every token of a fleet says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetFacts {
    /// The fleet.
    pub fleet: FleetName,
    /// Where hosts find the reconciler.
    pub addresses: Vec<String>,
    /// Its link key.
    pub link_key: TransportKey,
    /// The authors of the newest head.
    pub authors: Vec<Author>,
}

/// Why no invitation is made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InviteError {
    /// Not a node's name.
    #[error("`{name}` is no name of a node: {why}")]
    Name {
        /// The name.
        name: String,
        /// Why.
        why: NameError,
    },
    /// Several of one name.
    #[error("`--count {0}` needs a name with `{{n}}` in it, as in `kiosk-{{n}}`")]
    Pattern(u32),
    /// None, or too many.
    #[error("`--count {0}`: from 1 to {INVITES} tokens are made at once")]
    Count(u32),
    /// No randomness.
    #[error("the system gave no random bytes: {0}")]
    Random(String),
}

/// Makes one-time tokens, and the rows to store before a token is shown. `record_of` gives the uuid of a record that
/// is there already and has no keys yet.
///
/// # Errors
/// [`InviteError`]; nothing was made.
pub fn make_invites(
    spec: &InviteSpec,
    facts: &FleetFacts,
    record_of: impl Fn(&NodeName) -> Option<NodeId>,
    now: i64,
) -> Result<Vec<(Token, InviteRow)>, InviteError> {
    if spec.count == 0 || spec.count > INVITES {
        return Err(InviteError::Count(spec.count));
    }
    if spec.count > 1 && !spec.name.contains("{n}") {
        return Err(InviteError::Pattern(spec.count));
    }
    (1..=spec.count)
        .map(|n| {
            let name = spec.name.replace("{n}", &n.to_string());
            let name: NodeName = name.parse().map_err(|why| InviteError::Name { name, why })?;
            make_invite(spec, facts, record_of(&name), name, now)
        })
        .collect()
}

fn make_invite(
    spec: &InviteSpec,
    facts: &FleetFacts,
    node: Option<NodeId>,
    name: NodeName,
    now: i64,
) -> Result<(Token, InviteRow), InviteError> {
    let mut random = [0; 56];
    getrandom::fill(&mut random).map_err(|e| InviteError::Random(e.to_string()))?;
    let (secret, rest) = random.split_at(32);
    let (id, uuid) = rest.split_at(8);
    let secret = BASE64URL_NOPAD.encode(secret);
    let mut bytes = [0; 16];
    bytes.copy_from_slice(uuid);
    let fresh = NodeId(uuid::Builder::from_random_bytes(bytes).into_uuid());
    let row = InviteRow {
        id: HEXLOWER.encode(id),
        secret_hash: secret_hash(&secret),
        name,
        node: node.unwrap_or(fresh),
        roles: spec.roles.clone(),
        modules: spec.modules.clone(),
        created_at: now,
        expires_at: now.saturating_add(i64::from(spec.expires_secs)),
        admit: spec.admit,
        used: None,
    };
    let token = Token {
        link: "direct".to_owned(),
        fleet: facts.fleet.clone(),
        addresses: facts.addresses.clone(),
        reconciler_key: facts.link_key,
        authors: facts
            .authors
            .iter()
            .map(|author| author_fingerprint(&author.key))
            .collect(),
        invite: row.id.clone(),
        secret,
    };
    Ok((token, row))
}

#[cfg(test)]
mod tests {
    use meshplan_schemas::session::LinkSecret;

    use super::*;

    fn spec(name: &str, count: u32) -> InviteSpec {
        InviteSpec {
            name: name.into(),
            count,
            roles: vec![],
            modules: vec![],
            expires_secs: 60,
            admit: false,
        }
    }
    fn made(spec: &InviteSpec) -> Result<Vec<(Token, InviteRow)>, InviteError> {
        let facts = FleetFacts {
            fleet: "nexus0".parse().unwrap(),
            addresses: vec!["ws://127.0.0.1:7946/mesh".into()],
            link_key: LinkSecret::from_bytes(&[9; 32]).unwrap().public(),
            authors: vec![],
        };
        let known = |name: &NodeName| (name.as_str() == "ace").then(|| NodeId(uuid::Uuid::from_u128(7)));
        make_invites(spec, &facts, known, 1000)
    }

    // holds: LK-3
    #[test]
    fn a_token_proves_the_row_that_is_stored_and_the_row_does_not_give_it_away() {
        let made = made(&spec("kiosk-{n}", 3)).unwrap();
        let names: Vec<&str> = made.iter().map(|(_, row)| row.name.as_str()).collect();
        assert_eq!(names, ["kiosk-1", "kiosk-2", "kiosk-3"]);
        for (token, row) in &made {
            assert_eq!(secret_hash(&token.secret), row.secret_hash);
            assert_eq!(row.expires_at, 1060);
            assert!(!serde_json::to_string(row).unwrap().contains(&token.secret));
        }
        assert_ne!(made[0].0.secret, made[1].0.secret);
        assert_ne!(made[0].1.node, made[1].1.node);
    }

    // holds: LK-3
    #[test]
    fn an_invited_record_keeps_its_uuid() {
        let made = made(&spec("ace", 1)).unwrap();
        assert_eq!(made[0].1.node, NodeId(uuid::Uuid::from_u128(7)));
    }

    #[test]
    fn names_that_cannot_be_and_counts_that_make_no_sense_are_refused() {
        assert_eq!(made(&spec("kiosk", 2)), Err(InviteError::Pattern(2)));
        assert_eq!(made(&spec("kiosk", 0)), Err(InviteError::Count(0)));
        assert!(matches!(made(&spec("a.b", 1)), Err(InviteError::Name { .. })));
    }
}
