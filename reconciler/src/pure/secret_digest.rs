//! The content digest of a secret: what sequences, diffs, approvals and known-bad go by, since the ciphertext is
//! another at each sealing (FR-9).
//!
//! `HMAC-SHA-256(key, value)`, where the key is `HMAC-SHA-256(identity, "meshplan/secret-digest/v1")` and the identity
//! is the text `AGE-SECRET-KEY-1...` without a line end. A bare hash would let whoever sees the digest try values; the
//! key is nobody's who cannot open the secret anyway.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use meshplan_schemas::digest::Digest;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

/// What the key is for: another use of the identity never has the same key.
const PURPOSE: &[u8] = b"meshplan/secret-digest/v1";

/// The key of content digests.
pub struct SecretDigestKey(Zeroizing<[u8; 32]>);

impl SecretDigestKey {
    /// Derives it from the text of an age identity.
    #[must_use]
    pub fn of_identity(identity: &[u8]) -> Self {
        Self(Zeroizing::new(mac(identity, PURPOSE)))
    }

    /// The content digest of a value.
    #[must_use]
    pub fn digest(&self, value: &[u8]) -> Digest {
        Digest(mac(self.0.as_slice(), value))
    }
}

impl fmt::Debug for SecretDigestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretDigestKey")
    }
}

fn mac(key: &[u8], message: &[u8]) -> [u8; 32] {
    // A key as HMAC has it: hashed where it is longer than a block, then filled with zeros (RFC 2104, section 2).
    let mut block = Zeroizing::new([0_u8; 64]);
    let hashed: Zeroizing<[u8; 32]> = Zeroizing::new(Sha256::digest(key).into());
    let key = if key.len() > block.len() {
        hashed.as_slice()
    } else {
        key
    };
    block.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    let mac = Hmac::<Sha256>::new((&*block).into());
    mac.chain_update(message).finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: FR-9
    #[test]
    fn the_digest_is_that_of_the_published_vectors() {
        let identity = b"AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";
        let key = SecretDigestKey::of_identity(identity);
        for (value, expected) in [
            (
                &b""[..],
                "68a1a78f4bcf827e4c22f3b50cc9aabf35538bc31e9c1cd00c4bb5cd154c9cd6",
            ),
            (
                b"hunter2",
                "39de7e1db71938f9a0d09c76363bfa622d090d5f704274e5f231a8dbc8af4963",
            ),
            (
                b"hunter2\n",
                "4b86365ebdac8eba3ac6d50a768ca6f9406491e0a01d2a60a863b61d4a47f74a",
            ),
        ] {
            assert_eq!(key.digest(value).to_string(), format!("sha256:{expected}"));
        }
        assert_eq!(format!("{key:?}"), "SecretDigestKey");
    }

    #[test]
    fn another_identity_gives_another_digest() {
        let of = |identity: &[u8]| SecretDigestKey::of_identity(identity).digest(b"hunter2");
        assert_ne!(of(b"AGE-SECRET-KEY-1A"), of(b"AGE-SECRET-KEY-1B"));
        assert_ne!(of(b"AGE-SECRET-KEY-1A"), Digest::of(b"hunter2"));
    }
}
