//! The WebSocket under a session: whole frames in and out, each write bounded in time.

use axum::extract::ws::{Message, WebSocket};
use meshplan_schemas::session::Frame;

use super::{MeshLimits, closing};

/// Carries frames; anything that goes wrong with the socket is its end.
pub(super) struct Carrier {
    socket: WebSocket,
    limits: MeshLimits,
    /// When something was last heard, a pong too.
    heard: tokio::time::Instant,
}

/// The other side is gone, or too slow.
pub(super) struct Gone;

impl Carrier {
    pub(super) fn new(socket: WebSocket, limits: MeshLimits) -> Self {
        Self {
            socket,
            limits,
            heard: tokio::time::Instant::now(),
        }
    }

    /// The next frame; none when the other side is gone, or said something that is no frame. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<bytes::Bytes> {
        loop {
            let message = self.socket.recv().await?.ok()?;
            self.heard = tokio::time::Instant::now();
            match message {
                Message::Binary(frame) => return Some(frame),
                Message::Ping(_) | Message::Pong(_) => {}
                Message::Text(_) | Message::Close(_) => return None,
            }
        }
    }

    pub(super) async fn send(&mut self, frames: Vec<Frame>) -> Result<(), Gone> {
        for frame in frames {
            self.write(Message::Binary(frame.into())).await?;
        }
        Ok(())
    }

    /// Pings, unless nothing was heard for too long.
    pub(super) async fn ping(&mut self) -> Result<(), Gone> {
        if self.heard.elapsed() > self.limits.idle {
            return Err(Gone);
        }
        self.write(Message::Ping(bytes::Bytes::new())).await
    }

    pub(super) async fn close(&mut self, code: u16, why: &str) {
        let _ = self.write(closing(code, why)).await;
    }

    async fn write(&mut self, message: Message) -> Result<(), Gone> {
        match tokio::time::timeout(self.limits.write, self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Gone),
        }
    }
}
