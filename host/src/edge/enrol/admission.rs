//! What a machine believes of its admission: as much as the token's authors have signed. Pure.

use meshplan_schemas::envelope::Envelope;
use meshplan_schemas::fleet_list::{Author, FleetHead, ProofError, ProvenLeaf};
use meshplan_schemas::ident::{NodeId, NodeName};
use meshplan_schemas::judge::{self, Known, Refusal};
use meshplan_schemas::key::{SigningKey, TransportKey};
use meshplan_schemas::report::Marks;
use meshplan_schemas::session::token::{Token, author_fingerprint};

/// An admission as the reconciler claims it.
#[derive(Debug, Clone, PartialEq)]
pub struct Admitted {
    /// The record's uuid.
    pub node: NodeId,
    /// The node's name.
    pub name: NodeName,
    /// The head's envelope, exact text.
    pub head: String,
    /// The record with its proof.
    pub record: ProvenLeaf,
}

/// Why an admission is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    /// The list has none of the authors that the token names.
    #[error(
        "the fleet list names none of the authors that the token names; if the fleet changed its authors since, ask for a new token"
    )]
    Authors,
    /// The list is refused.
    #[error("the fleet list is refused: {0}")]
    Head(String),
    /// The record is not in the list.
    #[error("the record is refused: {0}")]
    Proof(#[from] ProofError),
    /// The record is another machine's.
    #[error("the record that was sent has other {0} than this machine")]
    Other(&'static str),
}

/// Checks head, proof and record. A head must be signed by as many of the token's authors as it says itself.
pub(super) fn verify(
    token: &Token,
    claim: &Admitted,
    transport: TransportKey,
    signing: SigningKey,
) -> Result<FleetHead, AdmissionError> {
    let authors = token_authors(token, claim.head.as_bytes())?;
    let judged = |threshold| {
        judge::fleet_head(
            claim.head.as_bytes(),
            &Known {
                fleet: &token.fleet,
                node: Some(claim.node),
                authors: &authors,
                threshold,
                timestamp_keys: &[],
                marks: &Marks::default(),
                in_force: &[],
                version: &semver::Version::new(0, 0, 0),
                trusted_now: None,
            },
        )
        .map_err(|reasons| AdmissionError::Head(text(&reasons)))
    };
    // The threshold is read only from a head that one of the authors has signed.
    let threshold = judged(1)?.payload.threshold;
    let head = judged(threshold.max(1))?.payload;
    let leaf = claim.record.open(&head)?;
    if leaf.transport_key != transport || leaf.signing_key != signing {
        return Err(AdmissionError::Other("keys"));
    }
    if leaf.id != claim.node || leaf.name != claim.name {
        return Err(AdmissionError::Other("name or id"));
    }
    Ok(head)
}

/// The authors of a head that the token names, read without belief: a key whose SHA-256 stands in the token is the
/// one that was meant, whoever brings it.
fn token_authors(token: &Token, head: &[u8]) -> Result<Vec<Author>, AdmissionError> {
    let malformed = |why: String| AdmissionError::Head(why);
    let envelope = Envelope::read(head).map_err(|e| malformed(e.to_string()))?;
    let payload: FleetHead =
        serde_json::from_slice(&envelope.payload).map_err(|e| malformed(e.to_string()))?;
    let authors: Vec<Author> = payload
        .authors
        .into_iter()
        .filter(|author| token.authors.contains(&author_fingerprint(&author.key)))
        .collect();
    if authors.is_empty() {
        return Err(AdmissionError::Authors);
    }
    Ok(authors)
}

fn text(reasons: &[Refusal]) -> String {
    let reasons: Vec<String> = reasons.iter().map(ToString::to_string).collect();
    reasons.join("; ")
}

#[cfg(test)]
mod tests {
    use meshplan_schemas::digest::Digest;
    use meshplan_schemas::envelope::{Signer as _, SoftSigner, seal};
    use meshplan_schemas::fleet_list::{Leaf, ListSettings, UpdateClass};
    use meshplan_schemas::merkle::{Tree, leaf_hash};
    use meshplan_schemas::session::LinkSecret;

    use super::*;

    fn author(seed: u8) -> SoftSigner {
        SoftSigner::new(None, &[seed; 32]).unwrap()
    }
    fn keys() -> (TransportKey, SigningKey) {
        (
            LinkSecret::from_bytes(&[1; 32]).unwrap().public(),
            author(2).public(),
        )
    }
    fn token() -> Token {
        Token {
            link: "direct".into(),
            fleet: "nexus0".parse().unwrap(),
            addresses: vec![],
            reconciler_key: LinkSecret::from_bytes(&[9; 32]).unwrap().public(),
            authors: vec![author_fingerprint(&author(7).public())],
            invite: "i".into(),
            secret: "s".into(),
        }
    }
    /// An admission by a head that `signer` signs and that names `listed` as its authors.
    fn claim(signer: &SoftSigner, listed: &[&SoftSigner], threshold: u32) -> Admitted {
        let (transport_key, signing_key) = keys();
        let leaf = Leaf {
            id: NodeId(uuid::Uuid::from_u128(5)),
            name: "ace".parse().unwrap(),
            transport_key,
            signing_key,
            next_transport_key: None,
            next_signing_key: None,
            rotations: vec![],
            address: None,
            lifeline: false,
            valid_to: 0,
            update_class: UpdateClass::Required,
            pinned: false,
        };
        let bytes = leaf.bytes().unwrap();
        let tree = Tree::new(vec![leaf_hash(&bytes)]);
        let head = FleetHead {
            schema: 1,
            fleet: "nexus0".parse().unwrap(),
            era: 1,
            issued_at: 0,
            must_understand: vec![],
            revision: 4,
            previous: None,
            commit: "a".repeat(40).parse().unwrap(),
            authors: listed
                .iter()
                .map(|s| Author {
                    id: s.key_id(),
                    key: s.public(),
                })
                .collect(),
            roots: vec![],
            threshold,
            root_threshold: 0,
            reconcilers: vec![],
            rotations: vec![],
            records_root: Digest(tree.root()),
            records_count: 1,
            wrapped_root: None,
            timestamp_keys: vec![],
            revoked: vec![],
            oldest_accepted: 1,
            settings: ListSettings {
                left_behind_grace_secs: 0,
                lifeline_secs: 0,
                require_trusted_clock_for_scheduled_activation: false,
            },
        };
        Admitted {
            node: leaf.id,
            name: leaf.name,
            head: String::from_utf8(seal(&head, signer).unwrap()).unwrap(),
            record: ProvenLeaf {
                leaf: String::from_utf8(bytes).unwrap(),
                revision: 4,
                index: 0,
                path: vec![],
            },
        }
    }
    fn verified(claim: &Admitted) -> Result<(), AdmissionError> {
        let (transport, signing) = keys();
        verify(&token(), claim, transport, signing).map(|_| ())
    }

    // holds: LK-3
    #[test]
    fn a_list_that_the_tokens_authors_have_signed_is_believed() {
        assert_eq!(verified(&claim(&author(7), &[&author(7)], 1)), Ok(()));
    }

    // holds: LK-3
    #[test]
    fn a_list_of_other_authors_or_with_too_few_signatures_is_not() {
        let strangers = claim(&author(8), &[&author(8)], 1);
        assert_eq!(verified(&strangers), Err(AdmissionError::Authors));
        // Names the right author and is signed by somebody else.
        let forged = claim(&author(8), &[&author(7), &author(8)], 1);
        assert!(matches!(verified(&forged), Err(AdmissionError::Head(_))));
        let two_needed = claim(&author(7), &[&author(7)], 2);
        assert!(matches!(verified(&two_needed), Err(AdmissionError::Head(_))));
    }

    // holds: LK-3
    #[test]
    fn a_record_of_another_machine_or_outside_the_list_is_not_taken() {
        let good = claim(&author(7), &[&author(7)], 1);
        let other = author(3).public();
        assert_eq!(
            verify(&token(), &good, keys().0, other).map(|_| ()),
            Err(AdmissionError::Other("keys"))
        );
        let mut renamed = good.clone();
        renamed.name = "eve".parse().unwrap();
        assert_eq!(verified(&renamed), Err(AdmissionError::Other("name or id")));
        let mut outside = good;
        outside.record.leaf = outside.record.leaf.replace("ace", "eve");
        assert!(matches!(verified(&outside), Err(AdmissionError::Proof(_))));
    }
}
