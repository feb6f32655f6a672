//! Public keys as types with their text form: `ed25519:<base64>` signs, `x25519:<base64>` carries sessions.
//!
//! A key of low order, the all-zero one among them, is refused when it is read (FR-5).

use std::fmt;
use std::str::FromStr;

use data_encoding::BASE64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::ident::KeyId;

/// Why a text is not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The prefix is missing or another's.
    #[error("expected `{0}:` and the key in base64")]
    Prefix(&'static str),
    /// Not base64, or not 32 bytes.
    #[error("the key after `{0}:` must be 32 bytes in base64")]
    Bytes(&'static str),
    /// Not a point, or one of low order.
    #[error("this is no usable key: it is not a point of the curve, or one of low order")]
    LowOrder,
}

fn decode(prefix: &'static str, text: &str) -> Result<[u8; 32], KeyError> {
    let rest = text
        .strip_prefix(prefix)
        .and_then(|t| t.strip_prefix(':'))
        .ok_or(KeyError::Prefix(prefix))?;
    let bytes = BASE64
        .decode(rest.as_bytes())
        .map_err(|_| KeyError::Bytes(prefix))?;
    bytes.try_into().map_err(|_| KeyError::Bytes(prefix))
}

fn fingerprint(bytes: &[u8; 32]) -> KeyId {
    KeyId(data_encoding::HEXLOWER.encode(&Sha256::digest(bytes)[..8]))
}

macro_rules! key {
    ($(#[$doc:meta])* $type:ident, $prefix:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        #[serde(try_from = "String", into = "String")]
        #[schemars(with = "String")]
        pub struct $type([u8; 32]);

        impl $type {
            /// Takes raw bytes.
            ///
            /// # Errors
            /// [`KeyError::LowOrder`].
            pub fn from_bytes(bytes: [u8; 32]) -> Result<Self, KeyError> {
                let check: fn(&[u8; 32]) -> bool = $check;
                if check(&bytes) { Ok(Self(bytes)) } else { Err(KeyError::LowOrder) }
            }
            /// The 32 raw bytes.
            #[must_use]
            pub fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }
            /// The key id of a key that has no name: 16 hex digits of its SHA-256 (vocabulary).
            #[must_use]
            pub fn id(&self) -> KeyId {
                fingerprint(&self.0)
            }
        }
        impl FromStr for $type {
            type Err = KeyError;
            fn from_str(text: &str) -> Result<Self, KeyError> {
                Self::from_bytes(decode($prefix, text)?)
            }
        }
        impl TryFrom<String> for $type {
            type Error = KeyError;
            fn try_from(text: String) -> Result<Self, KeyError> {
                text.parse()
            }
        }
        impl From<$type> for String {
            fn from(key: $type) -> String {
                let mut text = String::from(concat!($prefix, ":"));
                BASE64.encode_append(&key.0, &mut text);
                text
            }
        }
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&String::from(*self))
            }
        }
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{self}")
            }
        }
    };
}

key!(
/// A public key that verifies signatures.
SigningKey, "ed25519", |b| {
    ed25519_dalek::VerifyingKey::from_bytes(b).is_ok_and(|k| !k.is_weak())
});
key!(
    /// A public key of sessions.
    TransportKey, "x25519", |b| !LOW_ORDER.contains(&masked(b)));

/// The u-coordinates of low order on Curve25519 (RFC 7748, section 6.1; the list that libsodium refuses).
const LOW_ORDER: [[u8; 32]; 7] = {
    let mut one = [0; 32];
    one[0] = 1;
    [
        [0; 32],
        one,
        [
            0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4, 0x6a,
            0xda, 0x09, 0x8d, 0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00,
        ],
        [
            0x5f, 0x9c, 0x95, 0xbc, 0xa3, 0x50, 0x8c, 0x24, 0xb1, 0xd0, 0xb1, 0x55, 0x9c, 0x83, 0xef, 0x5b,
            0x04, 0x44, 0x5c, 0xc4, 0x58, 0x1c, 0x8e, 0x86, 0xd8, 0x22, 0x4e, 0xdd, 0xd0, 0x9f, 0x11, 0x57,
        ],
        ff_but(0xec),
        ff_but(0xed),
        ff_but(0xee),
    ]
};

const fn ff_but(first: u8) -> [u8; 32] {
    let mut b = [0xff; 32];
    b[0] = first;
    b[31] = 0x7f;
    b
}

/// X25519 ignores the top bit (RFC 7748, section 5), so it does not hide a low-order point either.
fn masked(bytes: &[u8; 32]) -> [u8; 32] {
    let mut b = *bytes;
    b[31] &= 0x7f;
    b
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: FR-5
    #[test]
    fn a_key_of_low_order_is_refused() {
        let zero = BASE64.encode(&[0; 32]);
        assert_eq!(
            format!("x25519:{zero}").parse::<TransportKey>(),
            Err(KeyError::LowOrder)
        );
        assert_eq!(
            format!("ed25519:{zero}").parse::<SigningKey>(),
            Err(KeyError::LowOrder)
        );
        for point in LOW_ORDER {
            let mut high = point;
            high[31] |= 0x80;
            assert!(TransportKey::from_bytes(point).is_err());
            assert!(TransportKey::from_bytes(high).is_err());
        }
    }

    #[test]
    fn the_text_form_comes_back_and_the_kind_is_kept_apart() {
        let key = ed25519_dalek::SigningKey::from_bytes(&[7; 32]).verifying_key();
        let key = SigningKey::from_bytes(key.to_bytes()).unwrap();
        assert_eq!(key.to_string().parse::<SigningKey>(), Ok(key));
        assert_eq!(
            key.to_string().parse::<TransportKey>(),
            Err(KeyError::Prefix("x25519"))
        );
    }
}
