//! The session between a host and a reconciler (LK-1): Noise over any carrier of whole frames, sans I/O.
//!
//! Bytes go in, bytes and messages come out; there is no socket and no clock here. The shells are
//! `reconciler/src/edge/mesh.rs` and `host/src/edge/link.rs`.
//!
//! # On the wire
//! One frame is one WebSocket message. The first is, in clear, `version (1) | protocol (1) | digest (8)`, then
//! the first Noise message; the ten clear bytes and the fleet's name are the handshake's prologue, so that a
//! change of either ends the handshake. `digest` are the first 8 bytes of SHA-256 of the responder key that is
//! meant: a responder that holds several keys knows which. The second frame is the second Noise message. Both
//! carry no payload, as the first can be replayed.
//!
//! | protocol | Noise | who | says |
//! | --- | --- | --- | --- |
//! | 1 | `Noise_IK_25519_ChaChaPoly_BLAKE2s` | a member with its transport key | [`crate::wire::FromHost`], [`crate::wire::ToHost`] |
//! | 2 | `Noise_NK_25519_ChaChaPoly_BLAKE2s` | a machine that enrols | [`crate::wire::FromEnrolling`], [`crate::wire::ToEnrolling`] |
//!
//! Every later frame is one Noise transport message whose first byte holds flags: `1` more of the same message
//! follows, `2` the sender changes its key after this frame. Keys are changed hourly or every 2^20 frames, by the
//! sender of each direction alone, so that there is nothing to agree on and no race.
//!
//! # What holds
//! - A frame that was changed, lost, repeated or moved breaks the session; it never yields a message.
//! - A responder that has accepted a member knows only that somebody holds a first frame of that member, perhaps an
//!   old one. The first message that [`Session::receive`] yields proves the member's key. Nothing may act on the
//!   session before that.

mod handshake;
mod secret;
pub mod token;
mod transport;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use handshake::{Initiator, Protocol, Request, responder_digest};
pub use secret::LinkSecret;
pub use transport::{Frame, REKEY_FRAMES, REKEY_SECS, Session};

/// The version of the session protocol.
pub const VERSION: u8 = 1;

/// Why a handshake or a session ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The first frame is too short, or the second is no Noise message.
    #[error("this is no handshake of a session")]
    Form,
    /// The first frame is of another version.
    #[error("the other side speaks version {0} of sessions, this build speaks {VERSION}")]
    Version(u8),
    /// The first frame names an unknown protocol.
    #[error("the other side asks for the session protocol {0}, which this build does not know")]
    Protocol(u8),
    /// The initiator means a key that this responder does not hold.
    #[error("the other side means another reconciler: its pinned key is none of this one's")]
    OtherResponder,
    /// The handshake does not verify.
    #[error(
        "the handshake does not verify: another key, another fleet, or bytes that were changed on the way"
    )]
    Handshake,
    /// A frame does not verify; the session is over.
    #[error("a frame does not verify: it was changed, lost, repeated or moved; the session is over")]
    Broken,
    /// A message is longer than the session takes.
    #[error("a message of more than {0} bytes")]
    TooLong(usize),
    /// A message that is not the JSON of its type.
    #[error("not a message of this session: {0}")]
    Message(String),
    /// The system gave no randomness.
    #[error("the system gave no random bytes")]
    Random,
}

/// The bytes of a message.
///
/// # Errors
/// The value has no JSON form, which none of `wire`'s does.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, SessionError> {
    serde_json::to_vec(message).map_err(|e| SessionError::Message(e.to_string()))
}

/// The message in bytes; a word of a newer build reads as `Unknown` and is skipped by the caller.
///
/// # Errors
/// [`SessionError::Message`].
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, SessionError> {
    serde_json::from_slice(bytes).map_err(|e| SessionError::Message(e.to_string()))
}

#[cfg(test)]
mod tests;
