//! The private half of a transport key; zeroized when dropped, never printed.

use std::fmt;

use data_encoding::BASE64;
use snow::params::DHChoice;
use snow::resolvers::{CryptoResolver as _, DefaultResolver};
use zeroize::{Zeroize as _, Zeroizing};

use super::SessionError;
use crate::key::{KeyError, TransportKey};

/// The private half of a [`TransportKey`].
#[derive(Clone)]
pub struct LinkSecret {
    secret: Zeroizing<[u8; 32]>,
    public: TransportKey,
}

impl LinkSecret {
    /// A new one from the system's randomness.
    ///
    /// # Errors
    /// [`SessionError::Random`].
    pub fn generate() -> Result<Self, SessionError> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|_| SessionError::Random)?;
        let made = Self::from_bytes(&secret).map_err(|_| SessionError::Random);
        secret.zeroize();
        made
    }

    /// Takes the 32 bytes of a private key (RFC 7748: they are clamped when used).
    ///
    /// # Errors
    /// Its public half is of low order, which an honest key's never is.
    pub fn from_bytes(secret: &[u8; 32]) -> Result<Self, KeyError> {
        let mut dh = DefaultResolver
            .resolve_dh(&DHChoice::Curve25519)
            .ok_or(KeyError::Bytes("x25519"))?;
        dh.set(secret);
        let public = <[u8; 32]>::try_from(dh.pubkey()).map_err(|_| KeyError::Bytes("x25519"))?;
        Ok(Self {
            secret: Zeroizing::new(*secret),
            public: TransportKey::from_bytes(public)?,
        })
    }

    /// Reads the base64 text of [`LinkSecret::to_text`].
    ///
    /// # Errors
    /// Not 32 bytes in base64.
    pub fn from_text(text: &str) -> Result<Self, KeyError> {
        let bytes = BASE64
            .decode(text.trim().as_bytes())
            .map(Zeroizing::new)
            .map_err(|_| KeyError::Bytes("x25519"))?;
        let bytes: Zeroizing<[u8; 32]> = Zeroizing::new(
            bytes
                .as_slice()
                .try_into()
                .map_err(|_| KeyError::Bytes("x25519"))?,
        );
        Self::from_bytes(&bytes)
    }

    /// Base64, for a file of mode 0600 and nothing else.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(BASE64.encode(&*self.secret))
    }

    /// The raw bytes, for a file that is encrypted.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.secret
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> TransportKey {
        self.public
    }
}

impl fmt::Debug for LinkSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LinkSecret({})", self.public)
    }
}
