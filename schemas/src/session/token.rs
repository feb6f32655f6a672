//! The enrolment token (LK-3): what a machine needs to find its reconciler, and to know it when it answers.

use std::fmt;
use std::str::FromStr;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::digest::{Digest, canonical};
use crate::ident::FleetName;
use crate::key::{SigningKey, TransportKey};

const PREFIX: &str = "mpt1.";
/// A token is short; longer text is not looked at.
const TOKEN_BYTES: usize = 16 * 1024;

/// What a token holds. Its text is `mpt1.` and base64url of its JSON. It is a secret until it is used.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// The kind of link that the machine shall use (LK-4): `direct`.
    pub link: String,
    /// The fleet.
    pub fleet: FleetName,
    /// Where the reconciler is, `ws://host:port/mesh` or `wss://host/mesh`, tried in turn.
    pub addresses: Vec<String>,
    /// The key that the session is pinned to.
    pub reconciler_key: TransportKey,
    /// [`author_fingerprint`] of every author: what the machine takes its first list from.
    pub authors: Vec<Digest>,
    /// The invitation, for its operator's lists; proves nothing.
    pub invite: String,
    /// 32 random bytes in base64url: proves the invitation.
    pub secret: String,
}

/// Why a text is no token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Something else was pasted.
    #[error(
        "this is no enrolment token: one begins with `{PREFIX}` (`meshplan fleet invite NAME` prints it)"
    )]
    Prefix,
    /// A part is missing or was changed.
    #[error("the token is damaged ({0}); paste it whole, on one line")]
    Damaged(String),
}

impl FromStr for Token {
    type Err = TokenError;
    fn from_str(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        let rest = text
            .strip_prefix(PREFIX)
            .filter(|t| t.len() <= TOKEN_BYTES)
            .ok_or(TokenError::Prefix)?;
        let bytes = BASE64URL_NOPAD
            .decode(rest.as_bytes())
            .map_err(|e| TokenError::Damaged(e.to_string()))?;
        serde_json::from_slice(&bytes).map_err(|e| TokenError::Damaged(e.to_string()))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A token has only text keys, so it always has canonical bytes.
        let bytes = canonical(self).unwrap_or_default();
        write!(f, "{PREFIX}{}", BASE64URL_NOPAD.encode(&bytes))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token(invite {} of {})", self.invite, self.fleet)
    }
}

/// What a reconciler keeps of a token's secret: enough to know it again, not enough to use it.
#[must_use]
pub fn secret_hash(secret: &str) -> Digest {
    Digest::of(&[b"meshplan invite secret\0", secret.as_bytes()].concat())
}

/// An author as a token names it: the SHA-256 of the key's 32 bytes.
#[must_use]
pub fn author_fingerprint(key: &SigningKey) -> Digest {
    Digest::of(key.as_bytes())
}

/// The short fingerprint of a machine's two keys, which the machine and the pull request both show (LK-3): 16
/// hexadecimal digits of SHA-256(transport key, signing key), in fours.
#[must_use]
pub fn machine_fingerprint(transport: &TransportKey, signing: &SigningKey) -> String {
    let digest = Sha256::new()
        .chain_update(transport.as_bytes())
        .chain_update(signing.as_bytes())
        .finalize();
    let fours: Vec<String> = digest[..8].chunks(2).map(|two| HEXLOWER.encode(two)).collect();
    fours.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::LinkSecret;

    fn token() -> Token {
        Token {
            link: "direct".into(),
            fleet: "nexus0".parse().unwrap(),
            addresses: vec!["ws://127.0.0.1:7946/mesh".into()],
            reconciler_key: LinkSecret::from_bytes(&[7; 32]).unwrap().public(),
            authors: vec![Digest::of(b"an author")],
            invite: "i-1".into(),
            secret: "s3cret".into(),
        }
    }

    // holds: LK-3
    #[test]
    fn a_token_comes_back_and_a_damaged_one_says_so() {
        let text = token().to_string();
        assert_eq!(format!("  {text}\n").parse::<Token>(), Ok(token()));
        let cut = text.get(..text.len() - 9).unwrap();
        assert!(matches!(cut.parse::<Token>(), Err(TokenError::Damaged(_))));
        assert_eq!("age1xyz".parse::<Token>(), Err(TokenError::Prefix));
    }

    #[test]
    fn the_secret_is_not_in_the_debug_form() {
        assert!(!format!("{:?}", token()).contains("s3cret"));
    }

    #[test]
    fn the_fingerprint_is_of_both_keys() {
        let transport = LinkSecret::from_bytes(&[7; 32]).unwrap().public();
        let signing = |seed| {
            let key = ed25519_dalek::SigningKey::from_bytes(&[seed; 32]);
            SigningKey::from_bytes(key.verifying_key().to_bytes()).unwrap()
        };
        let one = machine_fingerprint(&transport, &signing(1));
        assert_eq!(one.len(), 19);
        assert_ne!(one, machine_fingerprint(&transport, &signing(2)));
    }
}
