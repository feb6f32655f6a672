//! The two frames that open a session.

use sha2::{Digest as _, Sha256};
use snow::{Builder, HandshakeState};

use super::transport::{End, Session};
use super::{LinkSecret, SessionError, VERSION};
use crate::ident::FleetName;
use crate::key::TransportKey;
use crate::limits::{ENROLMENT_REQUEST_BYTES, MESSAGE_BYTES};

/// Bytes in clear before the first Noise message.
const CLEAR_BYTES: usize = 10;
/// Room for the longest handshake message (IK's first: 32 + 48 + 16).
const HANDSHAKE_BYTES: usize = 128;

/// What the initiator asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// A member's session (Noise IK).
    Member,
    /// A machine that enrols (Noise NK).
    Enrolment,
}

impl Protocol {
    fn byte(self) -> u8 {
        match self {
            Self::Member => 1,
            Self::Enrolment => 2,
        }
    }
    fn noise(self) -> &'static str {
        match self {
            Self::Member => "Noise_IK_25519_ChaChaPoly_BLAKE2s",
            Self::Enrolment => "Noise_NK_25519_ChaChaPoly_BLAKE2s",
        }
    }
    /// The protocols do not share a prologue, so that a frame of one is never one of the other.
    fn prologue(self, fleet: &FleetName, clear: &[u8]) -> Vec<u8> {
        let label = match self {
            Self::Member => "meshplan member\0",
            Self::Enrolment => "meshplan enrolment\0",
        };
        [label.as_bytes(), fleet.as_str().as_bytes(), b"\0", clear].concat()
    }
    fn builder<'a>(self, prologue: &'a [u8]) -> Result<Builder<'a>, SessionError> {
        let params = self.noise().parse().map_err(|_| SessionError::Form)?;
        Builder::new(params)
            .prologue(prologue)
            .map_err(|_| SessionError::Form)
    }
}

/// The first 8 bytes of SHA-256 of a responder's key: which key the initiator means.
#[must_use]
pub fn responder_digest(key: &TransportKey) -> [u8; 8] {
    let mut first = [0; 8];
    first.copy_from_slice(&Sha256::digest(key.as_bytes())[..8]);
    first
}

/// The side that dials, between its first frame and the answer.
pub struct Initiator {
    state: Box<HandshakeState>,
}

impl Initiator {
    /// Opens a member's session; the second value is the first frame.
    ///
    /// # Errors
    /// [`SessionError::Random`].
    pub fn member(
        fleet: &FleetName,
        secret: &LinkSecret,
        responder: &TransportKey,
    ) -> Result<(Self, Vec<u8>), SessionError> {
        Self::open(Protocol::Member, fleet, Some(secret), responder)
    }

    /// Opens an enrolment; the second value is the first frame. The token goes into the first message of the session
    /// that [`Initiator::finish`] makes: only then is the responder's key proven.
    ///
    /// # Errors
    /// [`SessionError::Random`].
    pub fn enrolment(fleet: &FleetName, responder: &TransportKey) -> Result<(Self, Vec<u8>), SessionError> {
        Self::open(Protocol::Enrolment, fleet, None, responder)
    }

    fn open(
        protocol: Protocol,
        fleet: &FleetName,
        secret: Option<&LinkSecret>,
        responder: &TransportKey,
    ) -> Result<(Self, Vec<u8>), SessionError> {
        let mut frame = vec![VERSION, protocol.byte()];
        frame.extend_from_slice(&responder_digest(responder));
        let prologue = protocol.prologue(fleet, &frame);
        let mut builder = protocol
            .builder(&prologue)?
            .remote_public_key(responder.as_bytes())
            .map_err(|_| SessionError::Form)?;
        if let Some(secret) = secret {
            builder = builder
                .local_private_key(secret.as_bytes())
                .map_err(|_| SessionError::Form)?;
        }
        let mut state = builder.build_initiator().map_err(|_| SessionError::Random)?;
        frame.extend_from_slice(&write(&mut state)?);
        Ok((
            Self {
                state: Box::new(state),
            },
            frame,
        ))
    }

    /// Takes the answer. The responder has proven its key when this returns a session.
    ///
    /// # Errors
    /// [`SessionError::Handshake`]: not the answer of the key that was meant.
    pub fn finish(mut self, frame: &[u8]) -> Result<Session, SessionError> {
        read(&mut self.state, frame)?;
        session(*self.state, MESSAGE_BYTES, End::Host)
    }
}

impl std::fmt::Debug for Initiator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Initiator")
    }
}

/// A first frame that a responder has read and not yet answered.
pub struct Request {
    protocol: Protocol,
    peer: Option<TransportKey>,
    state: Box<HandshakeState>,
}

impl Request {
    /// Reads a first frame with whichever of `keys` it means.
    ///
    /// # Errors
    /// [`SessionError`]; nothing is kept.
    pub fn read(fleet: &FleetName, keys: &[LinkSecret], frame: &[u8]) -> Result<Self, SessionError> {
        let (clear, message) = frame.split_at_checked(CLEAR_BYTES).ok_or(SessionError::Form)?;
        let [version, protocol, digest @ ..] = clear else {
            return Err(SessionError::Form);
        };
        if *version != VERSION {
            return Err(SessionError::Version(*version));
        }
        let protocol = match protocol {
            1 => Protocol::Member,
            2 => Protocol::Enrolment,
            other => return Err(SessionError::Protocol(*other)),
        };
        let secret = keys
            .iter()
            .find(|key| responder_digest(&key.public()) == digest)
            .ok_or(SessionError::OtherResponder)?;
        let prologue = protocol.prologue(fleet, clear);
        let mut state = protocol
            .builder(&prologue)?
            .local_private_key(secret.as_bytes())
            .map_err(|_| SessionError::Form)?
            .build_responder()
            .map_err(|_| SessionError::Random)?;
        read(&mut state, message)?;
        let peer = match protocol {
            Protocol::Enrolment => None,
            Protocol::Member => Some(remote(&state)?),
        };
        Ok(Self {
            protocol,
            peer,
            state: Box::new(state),
        })
    }

    /// What is asked for.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The member's key, none in an enrolment. Claimed, not proven: the frame may be an old one.
    #[must_use]
    pub fn peer(&self) -> Option<TransportKey> {
        self.peer
    }

    /// Accepts; the first value is the frame that answers.
    ///
    /// # Errors
    /// [`SessionError::Random`].
    pub fn accept(mut self) -> Result<(Vec<u8>, Session), SessionError> {
        let frame = write(&mut self.state)?;
        let longest = match self.protocol {
            Protocol::Member => MESSAGE_BYTES,
            Protocol::Enrolment => ENROLMENT_REQUEST_BYTES,
        };
        Ok((frame, session(*self.state, longest, End::Reconciler)?))
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Request({:?}, {:?})", self.protocol, self.peer)
    }
}

fn remote(state: &HandshakeState) -> Result<TransportKey, SessionError> {
    state
        .get_remote_static()
        .and_then(|key| <[u8; 32]>::try_from(key).ok())
        .and_then(|key| TransportKey::from_bytes(key).ok())
        .ok_or(SessionError::Handshake)
}

fn write(state: &mut HandshakeState) -> Result<Vec<u8>, SessionError> {
    let mut frame = vec![0; HANDSHAKE_BYTES];
    let written = state
        .write_message(&[], &mut frame)
        .map_err(|_| SessionError::Random)?;
    frame.truncate(written);
    Ok(frame)
}

/// Reads a handshake message; payloads are empty, and one that is not is no handshake of ours.
fn read(state: &mut HandshakeState, frame: &[u8]) -> Result<(), SessionError> {
    if frame.len() > HANDSHAKE_BYTES {
        return Err(SessionError::Form);
    }
    let mut payload = [0; HANDSHAKE_BYTES];
    match state.read_message(frame, &mut payload) {
        Ok(0) => Ok(()),
        Ok(_) => Err(SessionError::Form),
        Err(_) => Err(SessionError::Handshake),
    }
}

fn session(state: HandshakeState, longest: usize, end: End) -> Result<Session, SessionError> {
    let state = state.into_transport_mode().map_err(|_| SessionError::Handshake)?;
    Ok(Session::new(state, longest, end))
}
