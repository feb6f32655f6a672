//! SHA-256 digests, and the one way in which a value becomes bytes that are hashed or signed.
//!
//! Canonical bytes are JSON with object keys in byte order, no white space, integers only: two builds that mean
//! the same value write the same bytes.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

mod canonical;

/// A SHA-256 digest; its text is `sha256:<64 hex digits>`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Digest(pub [u8; 32]);

/// The text is not `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a digest is `sha256:` and 64 lower-case hexadecimal digits")]
pub struct DigestError;

impl Digest {
    /// The digest of bytes as they are.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest of a value's canonical bytes.
    ///
    /// # Errors
    /// As [`canonical`].
    pub fn of_value<T: Serialize>(value: &T) -> Result<Self, serde_json::Error> {
        Ok(Self::of(&canonical(value)?))
    }

    /// The 64 hexadecimal digits without the prefix.
    #[must_use]
    pub fn hex(&self) -> String {
        data_encoding::HEXLOWER.encode(&self.0)
    }
}

/// The digest of bytes that come in pieces.
#[derive(Debug, Clone, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Takes the next bytes.
    pub fn take(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all that was taken.
    #[must_use]
    pub fn digest(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

/// The canonical bytes of a value.
///
/// # Errors
/// The value has a map whose keys are not text.
pub fn canonical<T: Serialize>(value: &T) -> Result<Vec<u8>, serde_json::Error> {
    canonical::bytes(value)
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}
impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
impl FromStr for Digest {
    type Err = DigestError;
    fn from_str(text: &str) -> Result<Self, DigestError> {
        let hex = text.strip_prefix("sha256:").ok_or(DigestError)?;
        let bytes = data_encoding::HEXLOWER
            .decode(hex.as_bytes())
            .map_err(|_| DigestError)?;
        Ok(Self(bytes.try_into().map_err(|_| DigestError)?))
    }
}
impl TryFrom<String> for Digest {
    type Error = DigestError;
    fn try_from(text: String) -> Result<Self, DigestError> {
        text.parse()
    }
}
impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_bytes_have_their_keys_in_order() {
        #[derive(Serialize)]
        struct Unordered {
            zebra: u8,
            ant: u8,
        }
        let bytes = canonical(&Unordered { zebra: 1, ant: 2 }).unwrap();
        assert_eq!(bytes, br#"{"ant":2,"zebra":1}"#);
    }

    #[test]
    fn bytes_in_pieces_have_the_digest_of_the_whole() {
        let mut hasher = Hasher::default();
        for piece in [&b"he"[..], b"", b"llo"] {
            hasher.take(piece);
        }
        assert_eq!(hasher.digest(), Digest::of(b"hello"));
    }

    #[test]
    fn the_text_form_comes_back() {
        let digest = Digest::of(b"");
        assert_eq!(digest.to_string().parse::<Digest>(), Ok(digest));
        assert!("sha256:00".parse::<Digest>().is_err());
        assert!("e3b0".parse::<Digest>().is_err());
    }
}
