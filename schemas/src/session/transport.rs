//! What follows the handshake: messages in frames, and the change of keys.

use snow::TransportState;

use super::SessionError;
use crate::limits::{HOST_FRAME_BYTES, MESSAGE_BYTES};

/// One frame, to be carried whole and in order.
pub type Frame = Vec<u8>;

/// Frames of one direction after which its sender changes the key (LK-1).
pub const REKEY_FRAMES: u64 = 1 << 20;
/// Seconds after which a sender changes its key (LK-1).
pub const REKEY_SECS: u64 = 3600;

/// The longest Noise message (Noise specification, section 3).
const NOISE_BYTES: usize = 65_535;
const TAG_BYTES: usize = 16;
/// What is in a frame beside message bytes: the tag and the flags.
const BESIDE_BYTES: usize = TAG_BYTES + 1;

/// Which end of a session this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It dialled: a host. The other end has thousands of sessions.
    Host,
    /// It answered: a reconciler.
    Reconciler,
}

impl End {
    /// Message bytes in one frame that it sends. Frames of any length up to Noise's are received.
    fn chunk_bytes(self) -> usize {
        match self {
            Self::Host => HOST_FRAME_BYTES - BESIDE_BYTES,
            Self::Reconciler => NOISE_BYTES - BESIDE_BYTES,
        }
    }
}

const MORE: u8 = 1;
const REKEY: u8 = 2;

/// An open session. It knows no time: callers pass seconds since it was opened.
pub struct Session {
    state: TransportState,
    longest: usize,
    end: End,
    /// Pieces of the message that is being received.
    partial: Vec<u8>,
    sent_frames: u64,
    rekeyed_at: u64,
    broken: bool,
}

impl Session {
    pub(super) fn new(state: TransportState, longest: usize, end: End) -> Self {
        Self {
            state,
            longest,
            end,
            partial: Vec::new(),
            sent_frames: 0,
            rekeyed_at: 0,
            broken: false,
        }
    }

    /// The frames of a message, in order. `elapsed_secs` are seconds since the session was opened.
    ///
    /// # Errors
    /// [`SessionError::TooLong`]; the session goes on.
    pub fn send(&mut self, message: &[u8], elapsed_secs: u64) -> Result<Vec<Frame>, SessionError> {
        if message.len() > MESSAGE_BYTES {
            return Err(SessionError::TooLong(MESSAGE_BYTES));
        }
        let chunk_bytes = self.end.chunk_bytes();
        let mut frames = Vec::with_capacity(message.len() / chunk_bytes + 1);
        let mut rest = message;
        loop {
            let (chunk, after) = rest
                .split_at_checked(chunk_bytes)
                .unwrap_or((rest, rest.get(rest.len()..).unwrap_or_default()));
            rest = after;
            frames.push(self.frame(chunk, !rest.is_empty(), elapsed_secs)?);
            if rest.is_empty() {
                return Ok(frames);
            }
        }
    }

    fn frame(&mut self, chunk: &[u8], more: bool, elapsed_secs: u64) -> Result<Frame, SessionError> {
        let rekey = self.sent_frames + 1 >= REKEY_FRAMES
            || elapsed_secs.saturating_sub(self.rekeyed_at) >= REKEY_SECS;
        let flags = if more { MORE } else { 0 } | if rekey { REKEY } else { 0 };
        let mut plain = Vec::with_capacity(chunk.len() + 1);
        plain.push(flags);
        plain.extend_from_slice(chunk);
        let mut frame = vec![0; plain.len() + TAG_BYTES];
        let written = self
            .state
            .write_message(&plain, &mut frame)
            .map_err(|_| SessionError::Broken)?;
        frame.truncate(written);
        if rekey {
            self.state.rekey_outgoing();
            self.sent_frames = 0;
            self.rekeyed_at = elapsed_secs;
        } else {
            self.sent_frames += 1;
        }
        Ok(frame)
    }

    /// Takes one frame; a message when this frame completes one.
    ///
    /// # Errors
    /// The session is over with the first error: every later frame is [`SessionError::Broken`].
    pub fn receive(&mut self, frame: &[u8]) -> Result<Option<Vec<u8>>, SessionError> {
        if self.broken {
            return Err(SessionError::Broken);
        }
        let result = self.open(frame);
        if result.is_err() {
            self.broken = true;
            self.partial = Vec::new();
        }
        result
    }

    fn open(&mut self, frame: &[u8]) -> Result<Option<Vec<u8>>, SessionError> {
        if frame.len() > NOISE_BYTES || frame.len() < TAG_BYTES + 1 {
            return Err(SessionError::Broken);
        }
        let mut plain = vec![0; frame.len() - TAG_BYTES];
        let read = self
            .state
            .read_message(frame, &mut plain)
            .map_err(|_| SessionError::Broken)?;
        plain.truncate(read);
        let Some((flags, chunk)) = plain.split_first() else {
            return Err(SessionError::Broken);
        };
        if flags & !(MORE | REKEY) != 0 {
            return Err(SessionError::Broken);
        }
        if flags & REKEY != 0 {
            self.state.rekey_incoming();
        }
        if self.partial.len() + chunk.len() > self.longest {
            return Err(SessionError::TooLong(self.longest));
        }
        self.partial.extend_from_slice(chunk);
        Ok((flags & MORE == 0).then(|| std::mem::take(&mut self.partial)))
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Session")
    }
}
