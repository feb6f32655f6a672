//! Values sealed to one node: what a declaration carries of secrets (FR-9, SG-4).
//!
//! RFC 9180 in base mode with X25519-HKDF-SHA256, HKDF-SHA256 and ChaCha20-Poly1305, to the node's transport key. What
//! is authenticated beside the value says where it belongs: fleet, era, node, sequence, resource, content digest. So a
//! ciphertext that somebody moves to another node, another resource or another order opens nowhere; who made it is
//! said by the signature of the declaration around it. Invariant: no value is ever in an error or in a `Debug` text.

use data_encoding::BASE64;
use hpke::aead::ChaCha20Poly1305;
use hpke::kdf::HkdfSha256;
use hpke::kem::X25519HkdfSha256;
use hpke::{Deserializable as _, OpModeR, OpModeS, Serializable as _, single_shot_open, single_shot_seal};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::declaration::Declaration;
use crate::digest::Digest;
use crate::ident::{FleetName, NodeId, ResourceName};
use crate::key::TransportKey;
use crate::session::LinkSecret;

type Kem = X25519HkdfSha256;

/// What the key schedule is bound to (RFC 9180, section 5.1): a transport key is used for nothing else in this way.
const INFO: &[u8] = b"meshplan/sealed/v1";

/// A value that one node can open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SealedValue {
    /// The resource that it is for.
    pub resource: ResourceName,
    /// Its content digest, by which the resource names it.
    pub value: Digest,
    /// The encapsulated key, in base64.
    pub enc: String,
    /// The ciphertext with its tag, in base64.
    pub ciphertext: String,
}

/// Why a value was not sealed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// No randomness.
    #[error("the system gave no random bytes: {0}")]
    Random(String),
    /// The key is no key.
    #[error("a value cannot be sealed to {0}")]
    Key(TransportKey),
}

/// Why a value does not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The declaration has no such value for this resource.
    #[error("the declaration carries no sealed value for it")]
    Missing,
    /// Not base64, or no key.
    #[error("its sealed value is damaged")]
    Damaged,
    /// Another key, another place, or other bytes.
    #[error("its sealed value does not open with this machine's transport key")]
    Closed,
}

/// Where sealed values belong: one declaration.
#[derive(Debug, Clone, Copy)]
pub struct Place<'d> {
    /// Whose order.
    pub fleet: &'d FleetName,
    /// See [`Declaration::era`].
    pub era: u64,
    /// For whom.
    pub node: NodeId,
    /// The number of the order.
    pub sequence: u64,
}

impl<'d> Place<'d> {
    /// The place that a declaration is.
    #[must_use]
    pub fn of(declaration: &'d Declaration) -> Self {
        Self {
            fleet: &declaration.fleet,
            era: declaration.era,
            node: declaration.node,
            sequence: declaration.sequence,
        }
    }

    /// What is authenticated: a JSON array, so that no two places read the same.
    fn bound(&self, resource: &ResourceName, value: Digest) -> Vec<u8> {
        let parts = (self.fleet, self.era, self.node, self.sequence, resource, value);
        // Names and numbers can always be written.
        serde_json::to_vec(&parts).unwrap_or_default()
    }

    /// Seals a value to a node's key for a resource: another ciphertext each time.
    ///
    /// # Errors
    /// [`SealError`].
    pub fn seal(
        &self,
        key: &TransportKey,
        resource: &ResourceName,
        value: Digest,
        bytes: &[u8],
    ) -> Result<SealedValue, SealError> {
        // The crate would panic where there is none.
        getrandom::fill(&mut [0; 1]).map_err(|e| SealError::Random(e.to_string()))?;
        let to =
            <Kem as hpke::Kem>::PublicKey::from_bytes(key.as_bytes()).map_err(|_| SealError::Key(*key))?;
        let bound = self.bound(resource, value);
        let (enc, ciphertext) =
            single_shot_seal::<ChaCha20Poly1305, HkdfSha256, Kem>(&OpModeS::Base, &to, INFO, bytes, &bound)
                .map_err(|_| SealError::Key(*key))?;
        Ok(SealedValue {
            resource: resource.clone(),
            value,
            enc: BASE64.encode(&enc.to_bytes()),
            ciphertext: BASE64.encode(&ciphertext),
        })
    }

    /// Opens the value that a resource of this place names.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(
        &self,
        secret: &LinkSecret,
        sealed: &[SealedValue],
        resource: &ResourceName,
        value: Digest,
    ) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        let sealed = sealed
            .iter()
            .find(|sealed| sealed.resource == *resource && sealed.value == value)
            .ok_or(OpenError::Missing)?;
        let decode = |text: &str| BASE64.decode(text.as_bytes()).map_err(|_| OpenError::Damaged);
        let enc = <Kem as hpke::Kem>::EncappedKey::from_bytes(&decode(&sealed.enc)?)
            .map_err(|_| OpenError::Damaged)?;
        let ciphertext = decode(&sealed.ciphertext)?;
        let own =
            <Kem as hpke::Kem>::PrivateKey::from_bytes(secret.as_bytes()).map_err(|_| OpenError::Closed)?;
        let bound = self.bound(resource, value);
        single_shot_open::<ChaCha20Poly1305, HkdfSha256, Kem>(
            &OpModeR::Base,
            &own,
            &enc,
            INFO,
            &ciphertext,
            &bound,
        )
        .map(Zeroizing::new)
        .map_err(|_| OpenError::Closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &[u8] = b"correct horse";

    fn node(n: u8) -> NodeId {
        format!("0192f0c1-0000-7000-8000-{n:012}").parse().unwrap()
    }

    fn secret(n: u8) -> LinkSecret {
        LinkSecret::from_bytes(&[n; 32]).unwrap()
    }

    fn name(text: &str) -> ResourceName {
        text.parse().unwrap()
    }

    // holds: FR-9, SG-4
    #[test]
    fn a_value_opens_for_its_node_its_resource_and_its_order_alone() {
        let (fleet, other): (FleetName, FleetName) = ("lab".parse().unwrap(), "home".parse().unwrap());
        let place = Place {
            fleet: &fleet,
            era: 1,
            node: node(1),
            sequence: 17,
        };
        let (resource, value) = (name("web.key"), Digest::of(b"by which it is named"));
        let made = place.seal(&secret(1).public(), &resource, value, VALUE).unwrap();
        let sealed = [made.clone()];
        let opened = place.open(&secret(1), &sealed, &resource, value).unwrap();
        assert_eq!(*opened, VALUE);
        let open = |place: Place<'_>, key: u8| place.open(&secret(key), &sealed, &resource, value);
        assert_eq!(open(place, 2).unwrap_err(), OpenError::Closed, "another key");
        for elsewhere in [
            Place {
                node: node(2),
                ..place
            },
            Place {
                sequence: 18,
                ..place
            },
            Place { era: 2, ..place },
            Place {
                fleet: &other,
                ..place
            },
        ] {
            assert_eq!(
                open(elsewhere, 1).unwrap_err(),
                OpenError::Closed,
                "{elsewhere:?}"
            );
        }
        assert_eq!(
            place.open(&secret(1), &sealed, &name("web.cert"), value),
            Err(OpenError::Missing)
        );
        // Who writes another resource's name, or another digest, on it opens nothing either.
        let moved = SealedValue {
            resource: name("web.cert"),
            ..made.clone()
        };
        assert_eq!(
            place.open(&secret(1), &[moved], &name("web.cert"), value),
            Err(OpenError::Closed)
        );
        let another = Digest::of(b"another");
        let renamed = SealedValue {
            value: another,
            ..made.clone()
        };
        assert_eq!(
            place.open(&secret(1), &[renamed], &resource, another),
            Err(OpenError::Closed)
        );
        let damaged = SealedValue {
            enc: "AA==".to_owned(),
            ..made.clone()
        };
        assert_eq!(
            place.open(&secret(1), &[damaged], &resource, value),
            Err(OpenError::Damaged)
        );
        let again = place.seal(&secret(1).public(), &resource, value, VALUE).unwrap();
        assert_ne!(again, made, "the ciphertext is another each time");
    }

    // holds: FR-9
    #[test]
    fn what_is_printed_of_a_sealed_value_is_not_the_value() {
        let fleet = "lab".parse().unwrap();
        let place = Place {
            fleet: &fleet,
            era: 0,
            node: node(1),
            sequence: 1,
        };
        let made = place
            .seal(&secret(1).public(), &name("web.key"), Digest::of(b""), VALUE)
            .unwrap();
        let printed = format!("{made:?} {}", serde_json::to_string(&made).unwrap());
        assert!(!printed.contains("correct horse") && !printed.contains(&BASE64.encode(VALUE)));
    }
}
