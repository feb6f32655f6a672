//! DSSE: the signed wrapper of every order (SG-1).
//!
//! An [`Envelope`] is what the Dead Simple Signing Envelope specification calls one: payload bytes, their type,
//! signatures over `PAE(type, payload)`. The exact bytes that arrived are what is stored and relayed; nothing is
//! ever encoded again. Reading a payload out of an envelope goes through [`crate::judge`], which checks first.

use data_encoding::BASE64;
use ed25519_dalek::Signer as _;
use serde::{Deserialize, Serialize};

use crate::digest::{Digest, canonical};
use crate::ident::KeyId;
use crate::key::SigningKey;
use crate::limits::{ENVELOPE_BYTES, KEY_ID_BYTES, SIGNATURES};

/// Something that is signed: it knows its own media type.
pub trait Payload: Serialize + for<'de> Deserialize<'de> {
    /// `application/vnd.meshplan.X+json`.
    const TYPE: &'static str;
}

/// One signature of an envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// Whose, as the signer says; proves nothing by itself.
    pub key_id: KeyId,
    /// The 64 bytes of the Ed25519 signature.
    pub bytes: Vec<u8>,
}

/// A read envelope. Reading checks the form only; the signatures are checked by [`Envelope::signed_by`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// The media type that is covered by the signatures.
    pub payload_type: String,
    /// The payload's exact bytes.
    pub payload: Vec<u8>,
    /// At least one.
    pub signatures: Vec<Signature>,
}

/// Why bytes are no envelope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// Larger than [`ENVELOPE_BYTES`].
    #[error("the envelope has {0} bytes; at most {ENVELOPE_BYTES} are read")]
    TooLarge(usize),
    /// Not the JSON of a DSSE envelope.
    #[error("not a DSSE envelope: {0}")]
    Form(String),
    /// `payload` or `sig` is not base64.
    #[error("the field `{0}` is not base64")]
    Base64(&'static str),
    /// More than [`SIGNATURES`].
    #[error("the envelope carries {0} signatures; at most {SIGNATURES} are read")]
    TooMany(usize),
    /// A key id above [`KEY_ID_BYTES`].
    #[error("a key id has {0} bytes; at most {KEY_ID_BYTES} are read")]
    KeyId(usize),
    /// No signature at all.
    #[error("the envelope carries no signature")]
    Unsigned,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    payload: String,
    #[serde(rename = "payloadType")]
    payload_type: String,
    signatures: Vec<WireSignature>,
}

#[derive(Serialize, Deserialize)]
struct WireSignature {
    keyid: String,
    sig: String,
}

/// The pre-authentication encoding of DSSE 1.0: what a signature covers.
#[must_use]
pub fn pae(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut out = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len()).into_bytes();
    out.extend_from_slice(payload);
    out
}

impl Envelope {
    /// Reads the JSON form. Standard and URL-safe base64 are both taken, as the specification asks.
    ///
    /// # Errors
    /// [`EnvelopeError`]; nothing of the payload is looked at.
    pub fn read(bytes: &[u8]) -> Result<Self, EnvelopeError> {
        if bytes.len() > ENVELOPE_BYTES {
            return Err(EnvelopeError::TooLarge(bytes.len()));
        }
        let wire: Wire = serde_json::from_slice(bytes).map_err(|e| EnvelopeError::Form(e.to_string()))?;
        if wire.signatures.is_empty() {
            return Err(EnvelopeError::Unsigned);
        }
        if wire.signatures.len() > SIGNATURES {
            return Err(EnvelopeError::TooMany(wire.signatures.len()));
        }
        if let Some(long) = wire.signatures.iter().find(|s| s.keyid.len() > KEY_ID_BYTES) {
            return Err(EnvelopeError::KeyId(long.keyid.len()));
        }
        let signatures = wire
            .signatures
            .into_iter()
            .map(|s| {
                Ok(Signature {
                    key_id: KeyId(s.keyid),
                    bytes: base64("sig", &s.sig)?,
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            payload_type: wire.payload_type,
            payload: base64("payload", &wire.payload)?,
            signatures,
        })
    }

    /// The digest of the payload's bytes: what other orders cite.
    #[must_use]
    pub fn payload_digest(&self) -> Digest {
        Digest::of(&self.payload)
    }

    /// Whether one of the signatures is a valid one by `key`, whatever its key id says (SG-1: strict).
    #[must_use]
    pub fn signed_by(&self, key: &SigningKey) -> bool {
        let Ok(key) = ed25519_dalek::VerifyingKey::from_bytes(key.as_bytes()) else {
            return false;
        };
        let message = pae(&self.payload_type, &self.payload);
        self.signatures.iter().any(|s| {
            ed25519_dalek::Signature::from_slice(&s.bytes)
                .is_ok_and(|signature| key.verify_strict(&message, &signature).is_ok())
        })
    }

    /// The JSON form; only for an envelope made here. One that arrived is kept as the bytes that arrived.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let wire = Wire {
            payload: BASE64.encode(&self.payload),
            payload_type: self.payload_type.clone(),
            signatures: self
                .signatures
                .iter()
                .map(|s| WireSignature {
                    keyid: s.key_id.0.clone(),
                    sig: BASE64.encode(&s.bytes),
                })
                .collect(),
        };
        serde_json::to_vec(&wire).unwrap_or_default()
    }
}

fn base64(field: &'static str, text: &str) -> Result<Vec<u8>, EnvelopeError> {
    BASE64
        .decode(text.as_bytes())
        .or_else(|_| data_encoding::BASE64URL.decode(text.as_bytes()))
        .map_err(|_| EnvelopeError::Base64(field))
}

/// Signs bytes: the key file of a reconciler, or a node's own signing key. A seam: the other implementation is a
/// command outside (SG-7).
pub trait Signer {
    /// The key id that stands in the envelope.
    fn key_id(&self) -> KeyId;
    /// The public half.
    fn public(&self) -> SigningKey;
    /// The 64 bytes of an Ed25519 signature over `message`.
    ///
    /// # Errors
    /// The signer could not be reached or refused; the text says which.
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignError>;
}

/// A signer that did not sign.
#[derive(Debug, thiserror::Error)]
#[error("cannot sign: {0}")]
pub struct SignError(pub String);

/// A signing key held in this process. Zeroized when dropped (ed25519-dalek does).
pub struct SoftSigner {
    id: KeyId,
    key: ed25519_dalek::SigningKey,
}

impl SoftSigner {
    /// A signer from its 32-byte seed; `id` is an author's name, or the key's own id when none is given.
    ///
    /// # Errors
    /// The seed makes a key of low order, which cannot happen for an honest one.
    pub fn new(id: Option<KeyId>, seed: &[u8; 32]) -> Result<Self, crate::key::KeyError> {
        let key = ed25519_dalek::SigningKey::from_bytes(seed);
        let public = SigningKey::from_bytes(key.verifying_key().to_bytes())?;
        Ok(Self {
            id: id.unwrap_or_else(|| public.id()),
            key,
        })
    }
}

impl std::fmt::Debug for SoftSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SoftSigner({})", self.id)
    }
}

impl Signer for SoftSigner {
    fn key_id(&self) -> KeyId {
        self.id.clone()
    }
    fn public(&self) -> SigningKey {
        // The constructor has checked this very key.
        SigningKey::from_bytes(self.key.verifying_key().to_bytes()).expect("checked when the signer was made")
    }
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignError> {
        Ok(self.key.sign(message).to_bytes().to_vec())
    }
}

/// Makes the envelope of a payload: canonical bytes, one signature.
///
/// # Errors
/// The signer did not sign, or the payload cannot be written as canonical JSON.
pub fn seal<P: Payload>(payload: &P, signer: &dyn Signer) -> Result<Vec<u8>, SignError> {
    let bytes = canonical(payload).map_err(|e| SignError(e.to_string()))?;
    let signature = signer.sign(&pae(P::TYPE, &bytes))?;
    let envelope = Envelope {
        payload_type: P::TYPE.to_owned(),
        payload: bytes,
        signatures: vec![Signature {
            key_id: signer.key_id(),
            bytes: signature,
        }],
    };
    Ok(envelope.write())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Hello {
        world: u8,
    }
    impl Payload for Hello {
        const TYPE: &'static str = "application/vnd.meshplan.hello+json";
    }

    fn signer(seed: u8) -> SoftSigner {
        SoftSigner::new(None, &[seed; 32]).unwrap()
    }

    // holds: SG-1
    #[test]
    fn the_pae_is_the_specifications_example() {
        let expected = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world";
        assert_eq!(pae("http://example.com/HelloWorld", b"hello world"), expected);
    }

    #[test]
    fn signatures_and_their_key_ids_are_bounded() {
        let mut envelope = Envelope::read(&seal(&Hello { world: 1 }, &signer(1)).unwrap()).unwrap();
        let one = envelope.signatures[0].clone();
        envelope.signatures = vec![one.clone(); SIGNATURES];
        assert!(Envelope::read(&envelope.write()).is_ok());
        envelope.signatures.push(one.clone());
        assert_eq!(
            Envelope::read(&envelope.write()),
            Err(EnvelopeError::TooMany(SIGNATURES + 1))
        );
        envelope.signatures = vec![Signature {
            key_id: KeyId("k".repeat(KEY_ID_BYTES + 1)),
            ..one
        }];
        assert_eq!(
            Envelope::read(&envelope.write()),
            Err(EnvelopeError::KeyId(KEY_ID_BYTES + 1))
        );
    }

    // holds: SG-1
    #[test]
    fn one_flipped_bit_anywhere_in_payload_type_or_signature_is_seen() {
        let good = Envelope::read(&seal(&Hello { world: 1 }, &signer(1)).unwrap()).unwrap();
        assert!(good.signed_by(&signer(1).public()));
        assert!(!good.signed_by(&signer(2).public()));
        for bit in 0..good.payload.len() * 8 {
            let mut bad = good.clone();
            bad.payload[bit / 8] ^= 1 << (bit % 8);
            assert!(!bad.signed_by(&signer(1).public()));
        }
        for bit in 0..64 * 8 {
            let mut bad = good.clone();
            bad.signatures[0].bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!bad.signed_by(&signer(1).public()));
        }
        let mut other = good.clone();
        other.payload_type.push('x');
        assert!(!other.signed_by(&signer(1).public()));
    }

    #[test]
    fn what_is_no_envelope_says_why() {
        assert!(matches!(Envelope::read(b"{"), Err(EnvelopeError::Form(_))));
        let unsigned = br#"{"payload":"","payloadType":"x","signatures":[]}"#;
        assert_eq!(Envelope::read(unsigned), Err(EnvelopeError::Unsigned));
        let bad = br#"{"payload":"*","payloadType":"x","signatures":[{"keyid":"k","sig":""}]}"#;
        assert_eq!(Envelope::read(bad), Err(EnvelopeError::Base64("payload")));
    }
}
