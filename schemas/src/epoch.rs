//! The epoch: a numbered signed envelope that carries policy (SG-2), and which epoch a host runs (EP-3).

use std::collections::BTreeSet;

use schemars::JsonSchema;
use semver::Version;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::digest::Digest;
use crate::envelope::Payload;
use crate::ident::{CommitId, FleetName, KeyId, NodeId, ResourceName, RoleName};

/// What an epoch carries. Fields of which no requirement is built yet are absent from the JSON until then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Epoch {
    /// Version of the formats.
    pub schema: u32,
    /// Whose order this is.
    pub fleet: FleetName,
    /// Raised only by the offline roots (SG-11).
    pub era: u64,
    /// Unix seconds.
    pub issued_at: i64,
    /// Names of fields that a reader must know or else refuse the order (SG-1).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub must_understand: Vec<String>,
    /// The number.
    pub epoch: u64,
    /// The author who issued it.
    pub author: KeyId,
    /// Whom it addresses.
    pub targeting: Targeting,
    /// Hosts older than this do not take it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub min_daemon_version: Option<Version>,
    /// The commit-confirm window in seconds.
    pub confirm_secs: u32,
    /// As in a declaration: what proves that the machine of the reconciler can still be reached (EP-2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm_probe: Option<ResourceName>,
    /// One TOML text for everybody: `[base.<section>]` and `[roles.<role>.<section>]`.
    pub policy: String,
    /// The older epochs that still stand once this one is issued, newest first.
    #[serde(default)]
    pub in_force: Vec<InForce>,
    /// On a release: until when it is watched, unix seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch_until: Option<i64>,
    /// The rollout that it belongs to.
    pub rollout_id: String,
    /// The rollout's phase.
    pub phase: Phase,
    /// No window holds it back (abort, roll-back).
    #[serde(default)]
    pub urgent: bool,
    /// Known-bad digests that this order tries again (DL-14).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub again: Vec<Digest>,
    /// Proof in the approved manifest (SG-6), once thresholds are built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<serde_json::Value>,
    /// The commit that asked for it.
    pub commit: CommitId,
}

impl Payload for Epoch {
    const TYPE: &'static str = "application/vnd.meshplan.epoch+json";
}

impl Epoch {
    /// How long a node that is left behind waits before it follows to this epoch, in seconds since it first saw it (UC-1).
    ///
    /// The watch is counted in its whole length from there: whoever sees an epoch sees it after it was signed, so that
    /// `watch_until` has passed by then, whatever the node's clock says.
    #[must_use]
    pub fn follow_secs(&self, grace_secs: u32) -> i64 {
        let watch = self
            .watch_until
            .map_or(0, |until| until.saturating_sub(self.issued_at));
        watch.max(i64::from(grace_secs))
    }
}

/// An older epoch that still stands (SG-2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InForce {
    /// Its number.
    pub epoch: u64,
    /// The digest of its payload.
    pub digest: Digest,
    /// Whom it addresses.
    pub targeting: Targeting,
}

/// The phase of a rollout (RO-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The new policy, to the canaries.
    Canary,
    /// The same bytes, to everyone.
    Release,
    /// The former policy, to whom the new one was sent.
    Abort,
}

/// Whom an epoch addresses: the intersection of what is given; nothing given is everyone (SG-2).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Targeting {
    /// Nodes with one of these roles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roles: Option<Vec<RoleName>>,
    /// These nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<NodeId>>,
    /// A share of the fleet by hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
}

/// A share of the fleet: the nodes whose hash is below `upto` (SG-2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Share {
    /// Makes the choice another one for each delivery.
    pub salt: String,
    /// Exclusive bound; text, as JSON numbers end at 2^53.
    #[serde(with = "crate::epoch::u64_text")]
    #[schemars(with = "String")]
    pub upto: u64,
}

/// `u64` as decimal text in JSON.
pub mod u64_text {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    /// Writes the decimal text.
    ///
    /// # Errors
    /// As the serializer.
    pub fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }
    /// Reads the decimal text.
    ///
    /// # Errors
    /// The text is not a decimal number of 64 bits.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

/// A node's place in shares with this salt: the first 8 bytes of SHA-256(salt, uuid) as a big-endian number.
#[must_use]
pub fn share_place(salt: &str, node: NodeId) -> u64 {
    let digest = Sha256::new()
        .chain_update(salt.as_bytes())
        .chain_update(node.0.as_bytes())
        .finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    u64::from_be_bytes(first)
}

impl Targeting {
    /// Everyone.
    #[must_use]
    pub fn everyone() -> Self {
        Self::default()
    }
    /// Exactly these nodes.
    #[must_use]
    pub fn nodes(nodes: Vec<NodeId>) -> Self {
        Self {
            nodes: Some(nodes),
            ..Self::default()
        }
    }
    /// Whether every node that `other` addresses is certainly addressed here too: by their words alone, whatever nodes
    /// there are.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let roles = match (&self.roles, &other.roles) {
            (None, _) => true,
            (Some(wide), Some(narrow)) => narrow.iter().all(|role| wide.contains(role)),
            (Some(_), None) => false,
        };
        let nodes = match (&self.nodes, &other.nodes) {
            (None, _) => true,
            (Some(wide), Some(narrow)) => {
                let wide: BTreeSet<&NodeId> = wide.iter().collect();
                narrow.iter().all(|node| wide.contains(node))
            }
            (Some(_), None) => false,
        };
        let share = match (&self.share, &other.share) {
            (None, _) => true,
            (Some(wide), Some(narrow)) => wide.salt == narrow.salt && wide.upto >= narrow.upto,
            (Some(_), None) => false,
        };
        roles && nodes && share
    }
    /// Whether a node with these roles is addressed.
    #[must_use]
    pub fn addresses(&self, node: NodeId, roles: &[RoleName]) -> bool {
        self.roles
            .as_ref()
            .is_none_or(|wanted| wanted.iter().any(|r| roles.contains(r)))
            && self.nodes.as_ref().is_none_or(|wanted| wanted.contains(&node))
            && self
                .share
                .as_ref()
                .is_none_or(|s| share_place(&s.salt, node) < s.upto)
    }
}

/// The number and payload digest of the epoch that a node runs when `newest` is the newest that it has seen: that
/// one when it addresses the node, else the first entry of its `in_force` that does, else none (EP-3).
#[must_use]
pub fn epoch_to_run(
    newest: &Epoch,
    newest_digest: Digest,
    node: NodeId,
    roles: &[RoleName],
) -> Option<(u64, Digest)> {
    if newest.targeting.addresses(node, roles) {
        return Some((newest.epoch, newest_digest));
    }
    newest
        .in_force
        .iter()
        .find(|e| e.targeting.addresses(node, roles))
        .map(|e| (e.epoch, e.digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(n: u128) -> NodeId {
        NodeId(uuid::Uuid::from_u128(n))
    }

    // holds: SG-2
    #[test]
    fn targeting_is_the_intersection_of_what_is_given() {
        let edge: RoleName = "edge".parse().unwrap();
        let both = Targeting {
            roles: Some(vec![edge.clone()]),
            nodes: Some(vec![node(1)]),
            share: None,
        };
        assert!(both.addresses(node(1), std::slice::from_ref(&edge)));
        assert!(!both.addresses(node(1), &[]));
        assert!(!both.addresses(node(2), &[edge]));
        assert!(Targeting::everyone().addresses(node(9), &[]));
    }

    // holds: SG-2
    #[test]
    fn one_targeting_covers_another_when_it_addresses_whomever_that_one_does() {
        let edge: RoleName = "edge".parse().unwrap();
        let core: RoleName = "core".parse().unwrap();
        let share = |upto| Targeting {
            share: Some(Share {
                salt: "salt".into(),
                upto,
            }),
            ..Targeting::default()
        };
        let of = |roles: &[&RoleName]| Targeting {
            roles: Some(roles.iter().map(|r| (*r).clone()).collect()),
            ..Targeting::default()
        };
        let other_salt = Targeting {
            share: Some(Share {
                salt: "other".into(),
                upto: u64::MAX,
            }),
            ..Targeting::default()
        };
        let all = [
            Targeting::everyone(),
            share(0),
            share(u64::MAX / 3),
            share(u64::MAX),
            other_salt,
            of(&[&edge]),
            of(&[&core]),
            of(&[&edge, &core]),
            Targeting::nodes(vec![]),
            Targeting::nodes((0..40).map(node).collect()),
            Targeting::nodes((0..90).map(node).collect()),
            Targeting {
                share: share(u64::MAX / 3).share,
                ..of(&[&edge])
            },
        ];
        let roles = [vec![], vec![edge.clone()], vec![core.clone()], vec![edge, core]];
        let addressed = |t: &Targeting| -> Vec<bool> {
            let nodes = (0..90).flat_map(|n| roles.iter().map(move |r| (n, r)));
            nodes.map(|(n, r)| t.addresses(node(n), r)).collect()
        };
        let mut covering = 0;
        for wide in &all {
            assert!(wide.covers(wide) && Targeting::everyone().covers(wide));
            for narrow in all.iter().filter(|narrow| wide.covers(narrow)) {
                covering += 1;
                for (wide, narrow) in addressed(wide).into_iter().zip(addressed(narrow)) {
                    assert!(wide || !narrow);
                }
            }
        }
        // everyone all, each itself, and 12 by their words
        assert_eq!(covering, 12 + 11 + 12);
        assert!(!share(5).covers(&share(6)) && !share(5).covers(&Targeting::everyone()));
    }

    // holds: SG-2
    #[test]
    fn a_share_is_the_hash_of_salt_and_uuid_below_the_bound() {
        let place = share_place("salt", node(1));
        let mut message = b"salt".to_vec();
        message.extend_from_slice(node(1).0.as_bytes());
        assert_eq!(place.to_be_bytes(), Sha256::digest(&message)[..8]);
        let upto = |upto| Targeting {
            share: Some(Share {
                salt: "salt".into(),
                upto,
            }),
            ..Targeting::default()
        };
        assert!(!upto(place).addresses(node(1), &[]));
        assert!(upto(place + 1).addresses(node(1), &[]));
    }
}
