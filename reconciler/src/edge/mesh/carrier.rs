//! The WebSocket under a session: whole frames in and out, each write bounded in time.
//!
//! Heads of frames are read and written by `tungstenite`; its buffers, which live as long as a connection and are as
//! long as the longest message that ever passed, are not used. Here a buffer lives while its frame does: a session at
//! rest has none (LK-1).

use std::io::Cursor;
use std::time::Duration;

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use meshplan_schemas::session::Frame;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::Instant;
use tungstenite::protocol::CloseFrame;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};
use tungstenite::protocol::frame::{Frame as WsFrame, FrameHeader};

/// A frame of the session is one Noise message, and one message of the WebSocket.
pub(super) const MESSAGE_BYTES: usize = 65_535;
/// RFC 6455, section 5.5.
const CONTROL_BYTES: usize = 125;
/// The shortest frame of a client: two bytes and the mask. Reading so much never reads into the next frame.
const SHORT_HEAD: usize = 6;
/// The same with the length in two bytes. One in eight bytes is of a frame that is too long.
const LONG_HEAD: usize = 8;

/// Carries frames; anything that goes wrong with the socket is its end.
pub(super) struct Carrier<S = TokioIo<Upgraded>> {
    socket: S,
    reading: Reading,
    /// What is not yet written, from the start of a frame on or from within it.
    unwritten: Vec<u8>,
    write: Duration,
    idle: Duration,
    /// When something was last heard, a pong too.
    heard: Instant,
}

/// How far the frame that is being received has come, so that whoever waits for it may be cancelled.
#[derive(Default)]
struct Reading {
    head: [u8; LONG_HEAD],
    head_bytes: usize,
    payload: Vec<u8>,
    payload_bytes: usize,
    /// The message so far, if it comes in fragments.
    fragments: Option<Vec<u8>>,
}

/// The other side is gone, or too slow.
pub(super) struct Gone;

impl<S: AsyncRead + AsyncWrite + Unpin> Carrier<S> {
    /// One write may take `write`; [`Carrier::ping`] gives up when nothing was heard for `idle`.
    pub(super) fn new(socket: S, write: Duration, idle: Duration) -> Self {
        Self {
            socket,
            reading: Reading::default(),
            unwritten: Vec::new(),
            write,
            idle,
            heard: Instant::now(),
        }
    }

    /// The next frame; none when the other side is gone, or said something that is no frame. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            // The answer to a ping, if writing it was interrupted.
            self.flush().await.ok()?;
            let (head, payload) = self.frame().await.ok()?;
            self.heard = Instant::now();
            match head.opcode {
                OpCode::Data(kind) => {
                    if let Some(message) = self.reading.data(kind, head.is_final, payload).ok()? {
                        return Some(message);
                    }
                }
                OpCode::Control(_) if !head.is_final || payload.len() > CONTROL_BYTES => return None,
                OpCode::Control(Control::Ping) => self.put(WsFrame::pong(payload)).ok()?,
                OpCode::Control(Control::Pong) => {}
                OpCode::Control(Control::Close) => {
                    // Section 5.5.1: a close is answered with its code.
                    self.put(close_frame(
                        payload
                            .first_chunk()
                            .map_or(1000, |code| u16::from_be_bytes(*code)),
                        "",
                    ))
                    .ok()?;
                    let _ = tokio::time::timeout(self.write, self.flush()).await;
                    return None;
                }
                OpCode::Control(Control::Reserved(_)) => return None,
            }
        }
    }

    pub(super) async fn send(&mut self, frames: Vec<Frame>) -> Result<(), Gone> {
        for frame in frames {
            self.write(WsFrame::message(frame, OpCode::Data(Data::Binary), true))
                .await?;
        }
        Ok(())
    }

    /// Pings, unless nothing was heard for too long.
    pub(super) async fn ping(&mut self) -> Result<(), Gone> {
        if self.heard.elapsed() > self.idle {
            return Err(Gone);
        }
        self.write(WsFrame::ping(bytes::Bytes::new())).await
    }

    pub(super) async fn close(&mut self, code: u16, why: &str) {
        let _ = self.write(close_frame(code, why)).await;
    }

    async fn write(&mut self, frame: WsFrame) -> Result<(), Gone> {
        self.put(frame)?;
        match tokio::time::timeout(self.write, self.flush()).await {
            Ok(flushed) => flushed,
            Err(_) => Err(Gone),
        }
    }

    fn put(&mut self, frame: WsFrame) -> Result<(), Gone> {
        self.unwritten.reserve_exact(frame.len());
        frame.format(&mut self.unwritten).map_err(|_| Gone)
    }

    /// Writes what is to be written. Cancel-safe: what is written is taken off at once.
    async fn flush(&mut self) -> Result<(), Gone> {
        while !self.unwritten.is_empty() {
            match self.socket.write(&self.unwritten).await {
                Ok(0) | Err(_) => return Err(Gone),
                Ok(written) => drop(self.unwritten.drain(..written)),
            }
            if self.unwritten.is_empty() {
                self.unwritten = Vec::new();
                self.socket.flush().await.map_err(|_| Gone)?;
            }
        }
        Ok(())
    }

    /// The next frame of the WebSocket, its mask taken off. Cancel-safe.
    async fn frame(&mut self) -> Result<(FrameHeader, Vec<u8>), Gone> {
        let reading = &mut self.reading;
        let (head, mask) = loop {
            if let Some((head, length)) = reading.head()? {
                // A client masks, and no extension was agreed on (sections 5.1, 5.2).
                let Some(mask) = head.mask.filter(|_| !(head.rsv1 || head.rsv2 || head.rsv3)) else {
                    return Err(Gone);
                };
                if reading.payload.is_empty() {
                    reading.payload = vec![0; length];
                }
                break (head, mask);
            }
            let wanted = if reading.head_bytes < SHORT_HEAD {
                SHORT_HEAD
            } else {
                LONG_HEAD
            };
            let room = reading.head.get_mut(reading.head_bytes..wanted).ok_or(Gone)?;
            reading.head_bytes += received(self.socket.read(room).await)?;
        };
        while let Some(room) = reading
            .payload
            .get_mut(reading.payload_bytes..)
            .filter(|room| !room.is_empty())
        {
            reading.payload_bytes += received(self.socket.read(room).await)?;
        }
        (reading.head_bytes, reading.payload_bytes) = (0, 0);
        let mut payload = std::mem::take(&mut reading.payload);
        for (byte, key) in payload.iter_mut().zip(mask.iter().cycle()) {
            *byte ^= key;
        }
        Ok((head, payload))
    }
}

impl Reading {
    /// The head and the payload's length, once all of the head is there.
    fn head(&self) -> Result<Option<(FrameHeader, usize)>, Gone> {
        let so_far = self.head.get(..self.head_bytes).ok_or(Gone)?;
        // The length in eight bytes, or no mask: neither waits for more bytes than such a head has.
        if so_far
            .get(1)
            .is_some_and(|second| second & 0x7f == 127 || second & 0x80 == 0)
        {
            return Err(Gone);
        }
        let Some((head, length)) = FrameHeader::parse(&mut Cursor::new(so_far)).map_err(|_| Gone)? else {
            return Ok(None);
        };
        Ok(Some((head, usize::try_from(length).map_err(|_| Gone)?)))
    }

    /// Takes the payload of a data frame; the message when this one ends it.
    fn data(&mut self, kind: Data, last: bool, payload: Vec<u8>) -> Result<Option<Vec<u8>>, Gone> {
        let message = match (kind, self.fragments.take()) {
            (Data::Binary, None) => payload,
            (Data::Continue, Some(mut so_far)) if so_far.len() + payload.len() <= MESSAGE_BYTES => {
                so_far.extend_from_slice(&payload);
                so_far
            }
            // Text is no frame of a session; the rest is in no order that section 5.4 knows.
            _ => return Err(Gone),
        };
        if last {
            return Ok(Some(message));
        }
        self.fragments = Some(message);
        Ok(None)
    }
}

/// Bytes that came; none is the end.
fn received(read: std::io::Result<usize>) -> Result<usize, Gone> {
    match read {
        Ok(0) | Err(_) => Err(Gone),
        Ok(bytes) => Ok(bytes),
    }
}

fn close_frame(code: u16, why: &str) -> WsFrame {
    WsFrame::close(Some(CloseFrame {
        code: code.into(),
        // RFC 6455, section 5.5: a control frame holds 125 bytes, two of them the code.
        reason: why.chars().take(100).collect::<String>().into(),
    }))
}

#[cfg(test)]
mod tests;
