//! From an address to an open session: TCP, TLS where the address asks for it, WebSocket, handshake; and the two halves
//! of its socket.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use meshplan_schemas::limits::MESSAGE_BYTES;
use meshplan_schemas::session::{Frame, Initiator, Session, SessionError};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use super::tls::{self, TlsError};
use crate::pure::address::{Address, Carrier, NoAddress};
use crate::pure::confirm::Way;

/// For the connection, for TLS, for the upgrade, and for the answer to the handshake, each.
const STEP: Duration = Duration::from_secs(10);
/// One write may take so long.
const WRITE: Duration = Duration::from_secs(20);
/// Bytes that may wait to be written when more come.
const BACKLOG_BYTES: usize = MESSAGE_BYTES;

/// Why an address did not give a session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error(transparent)]
    Address(#[from] NoAddress),
    #[error("cannot connect: {0}")]
    Connect(std::io::Error),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("no answer within {secs} s ({step})")]
    Slow { step: &'static str, secs: u64 },
    #[error("what answers is no reconciler: {0}")]
    Upgrade(String),
    #[error("the reconciler did not open a session: {0}")]
    Refused(String),
    #[error("what answers is not the reconciler whose key this machine keeps: {0}")]
    Key(SessionError),
}

fn slow(step: &'static str) -> DialError {
    DialError::Slow {
        step,
        secs: STEP.as_secs(),
    }
}

/// An open session and its socket.
pub(crate) struct Open {
    pub(crate) session: Session,
    pub(crate) way: Way,
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
}

type Stream = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Dials one address and shakes hands.
pub(crate) async fn open(address: &str, initiator: Initiator, first: Frame) -> Result<Open, DialError> {
    let (stream, way) = connect(address).await?;
    let (writer, reader) = stream.split();
    let (mut writer, mut reader) = (Writer(writer), Reader(reader));
    writer.send(vec![first]).await.map_err(DialError::Refused)?;
    let answer = async {
        loop {
            match reader.next().await {
                Socket::Frame(frame) => return Ok(frame),
                Socket::Alive => {}
                Socket::Closed(why) => return Err(DialError::Refused(why)),
            }
        }
    };
    let answer = tokio::time::timeout(STEP, answer)
        .await
        .map_err(|_| slow("handshake"))??;
    let session = initiator.finish(&answer).map_err(DialError::Key)?;
    Ok(Open {
        session,
        way,
        reader,
        writer,
    })
}

async fn connect(address: &str) -> Result<(Stream, Way), DialError> {
    let Address { carrier, host, port } = Address::read(address)?;
    let stream = tokio::time::timeout(STEP, TcpStream::connect((host.as_str(), port)))
        .await
        .map_err(|_| slow("connect"))?
        .map_err(DialError::Connect)?;
    stream.set_nodelay(true).map_err(DialError::Connect)?;
    let ends = stream
        .peer_addr()
        .and_then(|peer| Ok((peer.ip(), stream.local_addr()?.ip())));
    let way = ends.map_or(Way::Far, |(peer, own)| way(peer, own));
    let stream = match carrier {
        Carrier::Plain => MaybeTlsStream::Plain(stream),
        Carrier::Tls => {
            let shaken = tokio::time::timeout(STEP, tls::shake(stream, &host));
            MaybeTlsStream::Rustls(shaken.await.map_err(|_| slow("TLS"))??)
        }
    };
    let config = WebSocketConfig::default()
        .read_buffer_size(4096)
        .write_buffer_size(0)
        .max_write_buffer_size(MESSAGE_BYTES)
        // A frame of the session is one Noise message.
        .max_message_size(Some(65_535))
        .max_frame_size(Some(65_535));
    let upgrade = tokio_tungstenite::client_async_with_config(address, stream, Some(config));
    let (socket, _) = tokio::time::timeout(STEP, upgrade)
        .await
        .map_err(|_| slow("upgrade"))?
        .map_err(|e| DialError::Upgrade(e.to_string()))?;
    Ok((socket, way))
}

/// A connection over loopback, and one to an address of the machine's own, never leave it.
fn way(peer: IpAddr, own: IpAddr) -> Way {
    let (peer, own) = (peer.to_canonical(), own.to_canonical());
    if peer.is_loopback() || peer == own {
        Way::Near
    } else {
        Way::Far
    }
}

/// What came from the socket.
pub(crate) enum Socket {
    /// A frame of the session.
    Frame(Bytes),
    /// A ping or pong.
    Alive,
    /// The end, and why.
    Closed(String),
}

/// The half that hears.
pub(crate) struct Reader(SplitStream<Stream>);

impl Reader {
    /// Cancel-safe.
    pub(crate) async fn next(&mut self) -> Socket {
        match self.0.next().await {
            Some(Ok(Message::Binary(frame))) => Socket::Frame(frame),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Socket::Alive,
            Some(Ok(Message::Close(frame))) => Socket::Closed(closed(frame)),
            Some(Ok(_)) => Socket::Closed("what answers speaks no session".to_owned()),
            Some(Err(e)) => Socket::Closed(format!("the connection broke: {e}")),
            None => Socket::Closed("the connection ended".to_owned()),
        }
    }
}

/// The close frame stands outside the session, so anybody between may have written it: a hint, quoted as one.
fn closed(frame: Option<CloseFrame>) -> String {
    match frame {
        Some(frame) if !frame.reason.is_empty() => {
            let reason: String = frame.reason.chars().filter(|c| !c.is_control()).collect();
            format!("closed by the other side (it says: {reason})")
        }
        _ => "closed by the other side".to_owned(),
    }
}

/// The half that speaks.
pub(crate) struct Writer(SplitSink<Stream, Message>);

impl Writer {
    /// Frames in order, each write bounded in time; the error is why the connection is of no use any more.
    pub(crate) async fn send(&mut self, frames: Vec<Frame>) -> Result<(), String> {
        for frame in frames {
            self.write(Message::Binary(frame.into())).await?;
        }
        Ok(())
    }

    async fn write(&mut self, message: Message) -> Result<(), String> {
        match tokio::time::timeout(WRITE, self.0.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(e)) => Err(format!("the connection broke: {e}")),
            Err(_) => Err("the other side does not read".to_owned()),
        }
    }
}

/// Writes in a task of its own, each write bounded in time. Dropped, it ends the task and with it the socket.
pub(crate) struct Outbox {
    queue: mpsc::UnboundedSender<Message>,
    /// What keeps the queue bounded: bytes in it.
    waiting: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Outbox {
    pub(crate) fn spawn(mut writer: Writer) -> Self {
        let (queue, mut messages) = mpsc::unbounded_channel::<Message>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let waits = Arc::clone(&waiting);
        let task = tokio::spawn(async move {
            while let Some(message) = messages.recv().await {
                waits.fetch_sub(message.len(), Ordering::Relaxed);
                if writer.write(message).await.is_err() {
                    // The queue closes with this task, which is how the link hears of it.
                    return;
                }
            }
        });
        Self { queue, waiting, task }
    }

    /// Frames to be written in order; false when too much waits, or nothing can be written any more.
    pub(crate) fn put(&self, frames: Vec<Frame>) -> bool {
        self.waiting.load(Ordering::Relaxed) <= BACKLOG_BYTES
            && frames
                .into_iter()
                .all(|frame| self.push(Message::Binary(frame.into())))
    }

    /// False when nothing can be written any more.
    pub(crate) fn ping(&self) -> bool {
        self.push(Message::Ping(Bytes::new()))
    }

    fn push(&self, message: Message) -> bool {
        self.waiting.fetch_add(message.len(), Ordering::Relaxed);
        self.queue.send(message).is_ok()
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: EP-2
    #[test]
    fn a_connection_that_never_leaves_the_machine_is_near() {
        let way = |peer: &str, own: &str| way(peer.parse().unwrap(), own.parse().unwrap());
        for (peer, own) in [
            ("127.0.0.1", "127.0.0.1"),
            ("127.9.9.9", "127.0.0.1"),
            ("::1", "::1"),
            ("::ffff:127.0.0.1", "::ffff:127.0.0.1"),
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
        ] {
            assert_eq!(way(peer, own), Way::Near, "{peer}");
        }
        assert_eq!(way("192.0.2.8", "192.0.2.7"), Way::Far);
        assert_eq!(way("2001:db8::8", "2001:db8::7"), Way::Far);
    }
}
