//! The direct link to the reconciler (LK-1): dials, holds one session, dials again with full jitter.
//!
//! The agent sees events and gives orders through two channels; it never sees a socket. It must go on reading events:
//! a link whose events wait does not read its socket either, and the reconciler drops it as slow.

pub(crate) mod backoff;
pub(crate) mod dial;
mod tls;

use std::path::{Path, PathBuf};
use std::time::Duration;

use meshplan_schemas::fleet_list::FleetHead;
use meshplan_schemas::ident::{FleetName, NodeId, NodeName};
use meshplan_schemas::key::TransportKey;
use meshplan_schemas::session::{self, Initiator, LinkSecret};
use meshplan_schemas::wire::{FromHost, ToHost};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

use crate::pure::confirm::Way;
use crate::pure::link_monitor::{Monitor, Tolerance};
use backoff::Backoff;
use dial::{Open, Socket};

/// The reason of the [`LinkEvent::Down`] that answers [`ToLink::Renew`]: one for each, also when no session stood. An
/// [`LinkEvent::Up`] read after it is of a handshake made after the change; one read before it may have waited in
/// the channel and is not.
pub const RENEWED: &str = "renewed as asked";

/// The file of a [`Membership`] in the state folder.
pub const MEMBERSHIP_FILE: &str = "membership.json";

/// The only kind of link that this build has.
pub const DIRECT: &str = "direct";

/// A session that stood for so long was a good one.
const STEADY: Duration = Duration::from_secs(10);
/// Events and words that wait.
const CHANNEL: usize = 64;

/// Which fleet this machine belongs to and where its reconciler is (LK-4): `membership.json` in the state folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// `direct`; another kind is refused with what to do.
    pub link: String,
    /// The fleet.
    pub fleet: FleetName,
    /// This node.
    pub node: NodeId,
    /// This node's name.
    pub name: NodeName,
    /// `ws://host:port/mesh` or `wss://host/mesh`, tried in turn.
    pub addresses: Vec<String>,
    /// The reconciler's link key, from the token, later from the list.
    pub reconciler_key: TransportKey,
}

/// What the link tells the agent.
#[derive(Debug, Clone, PartialEq)]
pub enum LinkEvent {
    /// A session stands, and how it goes; it was made by a handshake after the last [`ToLink::Renew`].
    Up(Way),
    /// The reconciler said something.
    Message(Box<ToHost>),
    /// No session; the link goes on dialling by itself.
    Down {
        /// Why, in a sentence.
        why: String,
    },
}

/// What the agent tells the link.
#[derive(Debug, Clone, PartialEq)]
pub enum ToLink {
    /// Say this; lost when no session stands (reports are queued by the agent until acknowledged).
    Say(Box<FromHost>),
    /// Drop the session and make a fresh one now: the confirm counts only over connections made after the change.
    Renew,
}

/// Why a membership is not used (LK-4).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// Of a kind that this build lacks.
    #[error(
        "this machine's membership is of the link kind `{0}`, which this host lacks; install a host that has it, or enrol again with `meshplan-host enrol TOKEN`"
    )]
    Kind(String),
    /// The file cannot be read.
    #[error("cannot read this machine's membership {path}: {why}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Nowhere to dial.
    #[error(
        "this machine's membership names no address of a reconciler; enrol again with `meshplan-host enrol TOKEN`"
    )]
    NoAddress,
}

impl Membership {
    /// The membership in this state folder; none before the machine is enrolled.
    ///
    /// # Errors
    /// [`MembershipError::Read`].
    pub fn load(state_dir: &Path) -> Result<Option<Self>, MembershipError> {
        let path = state_dir.join(MEMBERSHIP_FILE);
        let why = match std::fs::read(&path) {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(membership) => return Ok(Some(membership)),
                Err(e) => e.to_string(),
            },
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => e.to_string(),
        };
        Err(MembershipError::Read { path, why })
    }

    /// Refuses, before anything is sent, what this build cannot dial.
    ///
    /// # Errors
    /// [`MembershipError`].
    pub fn check(&self) -> Result<(), MembershipError> {
        if self.link != DIRECT {
            return Err(MembershipError::Kind(self.link.clone()));
        }
        if self.addresses.is_empty() {
            return Err(MembershipError::NoAddress);
        }
        Ok(())
    }
}

/// One way to a reconciler: where, and the key that must answer there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// `ws://host:port/mesh` or `wss://host/mesh`.
    pub address: String,
    /// The reconciler's link key.
    pub key: TransportKey,
}

/// What the link follows while it runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Followed {
    /// The ways that the newest trusted head names.
    pub routes: Vec<Route>,
    /// When a session counts as down (FR-7).
    pub tolerance: Tolerance,
}

/// The ways to the reconcilers that a head names, its next keys too.
#[must_use]
pub fn routes_of(head: &FleetHead) -> Vec<Route> {
    let ways = head.reconcilers.iter().flat_map(|reconciler| {
        let keys = std::iter::once(reconciler.key).chain(reconciler.next_key);
        keys.flat_map(move |key| {
            reconciler.addresses.iter().map(move |a| Route {
                address: a.clone(),
                key,
            })
        })
    });
    ways.collect()
}

/// Starts the link in the current runtime and hands out its two channels. It ends when either is dropped.
///
/// # Errors
/// The membership is not one that this build can dial; nothing was sent.
pub fn spawn(
    membership: Membership,
    secret: LinkSecret,
) -> Result<(mpsc::Sender<ToLink>, mpsc::Receiver<LinkEvent>), MembershipError> {
    spawn_following(membership, secret, watch::channel(Followed::default()).1)
}

/// As [`spawn`]; dials what the newest trusted head names first, and what the token named after that: a reconciler that
/// moves, or changes its key, takes its hosts along (SG-3). A session is called down as the policy says (FR-7).
///
/// # Errors
/// As [`spawn`].
pub fn spawn_following(
    membership: Membership,
    secret: LinkSecret,
    followed: watch::Receiver<Followed>,
) -> Result<(mpsc::Sender<ToLink>, mpsc::Receiver<LinkEvent>), MembershipError> {
    membership.check()?;
    let (orders, from_agent) = mpsc::channel(CHANNEL);
    let (to_agent, events) = mpsc::channel(CHANNEL);
    let link = Link {
        membership,
        secret,
        followed,
        from_agent,
        to_agent,
    };
    tokio::spawn(async move {
        // The agent is gone; so is the link.
        let Err(AgentGone) = link.run().await;
    });
    Ok((orders, events))
}

struct Link {
    membership: Membership,
    secret: LinkSecret,
    followed: watch::Receiver<Followed>,
    from_agent: mpsc::Receiver<ToLink>,
    to_agent: mpsc::Sender<LinkEvent>,
}

/// The agent has dropped its channels.
struct AgentGone;

/// Why a session, or the attempt to have one, ended.
enum End {
    /// By itself; why.
    Down(String),
    /// Because the agent asked for a fresh one.
    Renew,
}

impl Link {
    async fn run(mut self) -> Result<std::convert::Infallible, AgentGone> {
        let mut backoff = Backoff::default();
        let mut address = 0;
        loop {
            let end = match self.dial(address).await? {
                Ok(open) => {
                    let opened = tokio::time::Instant::now();
                    self.tell(LinkEvent::Up(open.way)).await?;
                    let end = self.talk(open).await?;
                    // One that ends at once, as between two machines with one key, is not dialled anew ever faster.
                    if opened.elapsed() > STEADY {
                        backoff = Backoff::default();
                    }
                    end
                }
                Err(end) => {
                    address += 1;
                    end
                }
            };
            match end {
                End::Renew => {
                    backoff = Backoff::default();
                    self.tell_down(RENEWED.to_owned()).await?;
                }
                End::Down(why) => {
                    self.tell_down(why).await?;
                    if self.rest(backoff.next()).await? {
                        backoff = Backoff::default();
                        self.tell_down(RENEWED.to_owned()).await?;
                    }
                }
            }
        }
    }

    async fn tell(&self, event: LinkEvent) -> Result<(), AgentGone> {
        self.to_agent.send(event).await.map_err(|_| AgentGone)
    }

    async fn tell_down(&self, why: String) -> Result<(), AgentGone> {
        self.tell(LinkEvent::Down { why }).await
    }

    /// The next [`ToLink::Renew`]; words said without a session are lost. Cancel-safe.
    async fn renewal(from_agent: &mut mpsc::Receiver<ToLink>) -> Result<(), AgentGone> {
        loop {
            match from_agent.recv().await {
                None => return Err(AgentGone),
                Some(ToLink::Renew) => return Ok(()),
                Some(ToLink::Say(_)) => {}
            }
        }
    }

    /// Waits before the next attempt; true when a renewal cut it short.
    async fn rest(&mut self, delay: Duration) -> Result<bool, AgentGone> {
        tokio::select! {
            renewal = Self::renewal(&mut self.from_agent) => renewal.map(|()| true),
            () = tokio::time::sleep(delay) => Ok(false),
        }
    }

    /// The list's ways first, then the membership's, each once; at least one, as the membership names one.
    fn routes(&self) -> Vec<Route> {
        let mut routes = self.followed.borrow().routes.clone();
        let key = self.membership.reconciler_key;
        for address in &self.membership.addresses {
            let route = Route {
                address: address.clone(),
                key,
            };
            if !routes.contains(&route) {
                routes.push(route);
            }
        }
        routes
    }

    async fn dial(&mut self, turn: usize) -> Result<Result<Open, End>, AgentGone> {
        let routes = self.routes();
        let Route { address, key } = &routes[turn % routes.len()];
        let opened = Initiator::member(&self.membership.fleet, &self.secret, key);
        let attempt = async {
            let (initiator, first) = opened.map_err(|e| e.to_string())?;
            dial::open(address, initiator, first)
                .await
                .map_err(|e| format!("{address}: {e}"))
        };
        tokio::select! {
            renewal = Self::renewal(&mut self.from_agent) => renewal.map(|()| Err(End::Renew)),
            attempt = attempt => Ok(attempt.map_err(End::Down)),
        }
    }

    async fn talk(&mut self, open: Open) -> Result<End, AgentGone> {
        let Open {
            way: _,
            mut session,
            mut reader,
            writer,
        } = open;
        let opened = tokio::time::Instant::now();
        let mut tolerance = self.followed.borrow().tolerance;
        let mut monitor = Monitor::new(tolerance);
        let mut probe = tokio::time::interval(tolerance.every);
        probe.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // Writing is another task, so that this one goes on reading: two sides that both only write would wait for
        // each other for ever.
        let outbox = dial::Outbox::spawn(writer);
        let end = loop {
            tokio::select! {
                order = self.from_agent.recv() => match order {
                    None => return Err(AgentGone),
                    Some(ToLink::Renew) => break End::Renew,
                    Some(ToLink::Say(word)) => {
                        let frames = session::encode(&*word)
                            .and_then(|bytes| session.send(&bytes, opened.elapsed().as_secs()));
                        match frames {
                            Ok(frames) => if !outbox.put(frames) {
                                break End::Down("the reconciler does not read what is sent".to_owned());
                            },
                            Err(why) => tracing::error!(%why, "a word could not be said"),
                        }
                    }
                },
                said = reader.next() => {
                    monitor.heard(opened.elapsed());
                    let frame = match said {
                        Socket::Frame(frame) => frame,
                        Socket::Alive => continue,
                        Socket::Closed(why) => break End::Down(why),
                    };
                    match session.receive(&frame) {
                        Ok(None) => {}
                        Ok(Some(message)) => match session::decode::<ToHost>(&message) {
                            Ok(ToHost::Unknown) => {}
                            Ok(word) => self.tell(LinkEvent::Message(Box::new(word))).await?,
                            Err(why) => break End::Down(why.to_string()),
                        },
                        Err(why) => break End::Down(why.to_string()),
                    }
                }
                _ = probe.tick() => {
                    if let Some(why) = monitor.down(opened.elapsed()) {
                        break End::Down(why);
                    }
                    monitor.sent(opened.elapsed());
                    if !outbox.ping() {
                        break End::Down("the reconciler does not read what is sent".to_owned());
                    }
                }
                // The policy has changed; the one who followed it is gone only when the agent is.
                Ok(()) = self.followed.changed() => {
                    let followed = self.followed.borrow_and_update().tolerance;
                    if followed.every != tolerance.every {
                        probe = tokio::time::interval_at(tokio::time::Instant::now() + followed.every, followed.every);
                        probe.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
                    }
                    tolerance = followed;
                    monitor.tolerate(tolerance);
                }
            }
        };
        Ok(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: LK-4
    #[tokio::test]
    async fn a_membership_of_another_kind_is_refused_before_anything_is_sent() {
        let secret = LinkSecret::from_bytes(&[1; 32]).unwrap();
        let mut membership = Membership {
            link: "bus".into(),
            fleet: "nexus0".parse().unwrap(),
            node: NodeId(uuid::Uuid::from_u128(1)),
            name: "ace".parse().unwrap(),
            addresses: vec!["ws://127.0.0.1:1/mesh".into()],
            reconciler_key: secret.public(),
        };
        let refused = spawn(membership.clone(), secret.clone()).unwrap_err();
        assert!(refused.to_string().contains("`bus`"));
        membership.link = DIRECT.into();
        membership.addresses.clear();
        assert_eq!(spawn(membership, secret).unwrap_err(), MembershipError::NoAddress);
    }
}
