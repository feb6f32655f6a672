//! One member's session: from the handshake to its end.

use std::sync::Arc;

use data_encoding::BASE64;
use meshplan_schemas::declaration::Declaration;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::envelope::{Envelope, Payload as _};
use meshplan_schemas::epoch::Epoch;
use meshplan_schemas::fleet_list::{FleetHead, Leaf};
use meshplan_schemas::judge::claimed_number;
use meshplan_schemas::report::{Mark, Marks};
use meshplan_schemas::session::{self, Request, Session};
use meshplan_schemas::timestamp::Timestamp;
use meshplan_schemas::wire::{FromHost, ToHost};
use tokio::sync::{SemaphorePermit, mpsc};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::carrier::{Carrier, Gone};
use super::desk::Taken;
use super::{Mesh, close, locked};

/// Why a session ended, when the other side is still there to be told.
enum End {
    Gone,
    Say(u16, &'static str),
}

impl From<Gone> for End {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

struct Member {
    mesh: Mesh,
    leaf: Leaf,
    session: Session,
    opened: Instant,
    /// What the host has, as it said and as was sent to it since; none before its hello.
    marks: Option<Marks>,
}

impl Mesh {
    pub(super) async fn member(&self, mut carrier: Carrier, request: Request, permit: SemaphorePermit<'_>) {
        let Some(key) = request.peer() else { return };
        let leaf = match self.shared.desk.record_of(key).await {
            Ok(Some(leaf)) => leaf,
            Ok(None) => {
                if locked(&self.shared.unknown).due(key, Instant::now()) {
                    tracing::warn!(%key, "a session was refused: no record has this key");
                }
                return carrier.close(close::REFUSED, "no record has this key").await;
            }
            Err(why) => {
                tracing::warn!(%why, "a session was put off");
                return carrier.close(close::LATER, "come again").await;
            }
        };
        let Ok((answer, session)) = request.accept() else {
            return;
        };
        if carrier.send(vec![answer]).await.is_err() {
            return;
        }
        let mut member = Box::new(Member {
            mesh: self.clone(),
            leaf,
            session,
            opened: Instant::now(),
            marks: None,
        });
        // Only a message proves the key; until then nobody is pushed out and nothing is asked of the desk.
        let first = tokio::select! {
            first = tokio::time::timeout(self.shared.limits.handshake, member.hear(&mut carrier)) => first,
            () = self.shared.closing.cancelled() => return,
        };
        let Ok(Ok(first)) = first else { return };
        drop(permit);
        // A task of its own, so that what the handshake needed is given back: sessions are many and long (LK-1).
        tokio::spawn(member.run(Box::new(carrier), Box::new(first)));
    }
}

impl Member {
    async fn run(mut self: Box<Self>, mut carrier: Box<Carrier>, first: Box<FromHost>) {
        let node = self.leaf.id;
        let (mailbox, words) = mpsc::channel(self.mesh.shared.limits.mailbox);
        let end = CancellationToken::new();
        let id = self.mesh.enter(node, mailbox, end.clone());
        tracing::debug!(%node, name = %self.leaf.name, "session up");
        let ended = self.talk(&mut carrier, first, words, end).await;
        self.mesh.leave(node, id);
        tracing::debug!(%node, "session down");
        if let Err(End::Say(code, why)) = ended {
            Box::pin(carrier.close(code, why)).await;
        }
    }

    /// What is rare and large is boxed: between two words a session shall be small (LK-1).
    async fn talk(
        &mut self,
        carrier: &mut Carrier,
        first: Box<FromHost>,
        mut words: mpsc::Receiver<Box<ToHost>>,
        end: CancellationToken,
    ) -> Result<(), End> {
        let mut published = self.mesh.shared.published.subscribe();
        // The record was looked up before the handshake; a list that was published since may have revoked it.
        Box::pin(self.still_known()).await?;
        let secs = self.mesh.shared.desk.heartbeat_secs();
        Box::pin(self.say(carrier, &ToHost::Heartbeat { secs })).await?;
        Box::pin(self.answer(carrier, *first)).await?;
        let mut ping = tokio::time::interval(self.mesh.shared.limits.ping);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let closing = self.mesh.shared.closing.clone();
        loop {
            tokio::select! {
                biased;
                () = end.cancelled() => return Err(End::Say(close::REPLACED, "a newer session, or too slow")),
                word = words.recv() => match word {
                    Some(word) => Box::pin(self.say(carrier, &word)).await?,
                    None => return Err(End::Gone),
                },
                () = closing.cancelled() => return Err(End::Say(close::LATER, "the reconciler stops")),
                said = self.hear(carrier) => { let said = said?; Box::pin(self.answer(carrier, said)).await?; }
                changed = published.changed() => {
                    if changed.is_err() { return Err(End::Gone); }
                    Box::pin(self.still_known()).await?;
                    Box::pin(self.bring(carrier, Occasion::Published)).await?;
                }
                _ = ping.tick() => Box::pin(carrier.ping()).await?,
            }
        }
    }

    /// The next message. Cancel-safe: a frame is taken into the session without a pause after it was received.
    async fn hear(&mut self, carrier: &mut Carrier) -> Result<FromHost, End> {
        loop {
            let frame = carrier.next().await.ok_or(End::Gone)?;
            let broken = |_| End::Say(close::HANDSHAKE, "a frame does not verify");
            if let Some(message) = self.session.receive(&frame).map_err(broken)? {
                return session::decode(&message)
                    .map_err(|_| End::Say(close::HANDSHAKE, "not a message of a host"));
            }
        }
    }

    async fn say(&mut self, carrier: &mut Carrier, word: &ToHost) -> Result<(), End> {
        let elapsed = self.opened.elapsed().as_secs();
        let frames = session::encode(word).and_then(|bytes| self.session.send(&bytes, elapsed));
        match frames {
            Ok(frames) => Ok(carrier.send(frames).await?),
            Err(why) => {
                tracing::error!(node = %self.leaf.id, %why, "a word could not be said");
                Ok(())
            }
        }
    }

    async fn answer(&mut self, carrier: &mut Carrier, said: FromHost) -> Result<(), End> {
        let desk = self.mesh.shared.desk.clone();
        match said {
            FromHost::Hello { marks, .. } => {
                self.marks = Some(*marks);
                self.bring(carrier, Occasion::Hello).await
            }
            FromHost::Report { counter, envelope } => {
                let answer = match desk.take_report(self.leaf.id, counter, envelope).await {
                    Taken::Stored => ToHost::Ack { counter },
                    Taken::Rejected(reason) => ToHost::Reject { counter, reason },
                    Taken::Busy(retry_after_ms) => ToHost::Busy { retry_after_ms },
                };
                self.say(carrier, &answer).await
            }
            FromHost::Want { digest } => match desk.epoch_bytes(digest).await {
                Ok(Some(envelope)) => self.say(carrier, &ToHost::Order { envelope }).await,
                Ok(None) => {
                    tracing::warn!(node = %self.leaf.id, %digest, "a host wants an epoch that is not stored");
                    Ok(())
                }
                Err(_) => Err(End::Say(close::LATER, "come again")),
            },
            FromHost::Fetch {
                artifact,
                offset,
                length,
            } => self.give(carrier, artifact, offset, length).await,
            FromHost::Unknown => Ok(()),
        }
    }

    /// Gives a piece of an artifact, when its turn comes soon: a fleet that fetches at one time takes no more memory for it
    /// than [`super::MeshLimits::pieces`]. Who is not answered asks again.
    async fn give(
        &mut self,
        carrier: &mut Carrier,
        artifact: Digest,
        offset: u64,
        length: u32,
    ) -> Result<(), End> {
        let shared = Arc::clone(&self.mesh.shared);
        let turn = tokio::time::timeout(shared.limits.piece_turn, shared.pieces.acquire()).await;
        let Ok(Ok(_turn)) = turn else { return Ok(()) };
        let node = self.leaf.id;
        match shared.desk.artifact(artifact, offset, length).await {
            Ok(Some(piece)) => {
                let word = ToHost::Piece {
                    artifact,
                    offset,
                    size_bytes: piece.size_bytes,
                    bytes: BASE64.encode(&piece.bytes),
                };
                drop(piece);
                self.say(carrier, &word).await
            }
            Ok(None) => {
                tracing::warn!(%node, %artifact, "a host wants an artifact that is not kept");
                self.say(carrier, &ToHost::NoArtifact { artifact }).await
            }
            Err(why) => {
                tracing::error!(%node, %why, "an artifact could not be read");
                Err(End::Say(close::LATER, "come again"))
            }
        }
    }

    /// Sends what the host lacks.
    async fn bring(&mut self, carrier: &mut Carrier, occasion: Occasion) -> Result<(), End> {
        let Some(marks) = self.marks.clone() else {
            return Ok(());
        };
        let desk = self.mesh.shared.desk.clone();
        let orders = desk
            .orders_for(self.leaf.id, marks)
            .await
            .map_err(|_| End::Say(close::LATER, "come again"))?;
        if occasion == Occasion::Published && orders.iter().all(|word| *word == ToHost::Current) {
            return Ok(());
        }
        for word in orders {
            if let (ToHost::Order { envelope }, Some(marks)) = (&word, &mut self.marks) {
                raise(marks, envelope.as_bytes());
            }
            self.say(carrier, &word).await?;
        }
        Ok(())
    }

    /// A record that was revoked ends its session at once (RT-8); one that changed is taken over.
    async fn still_known(&mut self) -> Result<(), End> {
        match self.mesh.shared.desk.record_of(self.leaf.transport_key).await {
            Ok(Some(leaf)) => {
                self.leaf = leaf;
                Ok(())
            }
            Ok(None) => Err(End::Say(close::REFUSED, "no record has this key")),
            // Could not tell: the session stands.
            Err(_) => Ok(()),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Occasion {
    Hello,
    Published,
}

/// What was sent counts as had, so that it is sent once; what the host refused it will say in its next hello.
fn raise(marks: &mut Marks, envelope: &[u8]) {
    let (Ok(read), Some((_, number))) = (Envelope::read(envelope), claimed_number(envelope)) else {
        return;
    };
    let slot = match read.payload_type.as_str() {
        Epoch::TYPE => &mut marks.epoch,
        FleetHead::TYPE => &mut marks.revision,
        Declaration::TYPE => &mut marks.sequence,
        Timestamp::TYPE => &mut marks.timestamp,
        _ => return,
    };
    if slot.is_none_or(|mark| mark.number <= number) {
        *slot = Some(Mark {
            number,
            digest: read.payload_digest(),
        });
    }
}
