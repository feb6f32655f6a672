//! The direct link to the reconciler (LK-1): dials, holds one session, dials again with full jitter.
//!
//! The agent sees events and gives orders through two channels; it never sees a socket.

use meshplan_schemas::ident::{FleetName, NodeId, NodeName};
use meshplan_schemas::key::TransportKey;
use meshplan_schemas::wire::{FromHost, ToHost};
use serde::{Deserialize, Serialize};

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
    /// `ws://host:port/mesh`, tried in turn.
    pub addresses: Vec<String>,
    /// The reconciler's link key, from the token, later from the list.
    pub reconciler_key: TransportKey,
}

/// What the link tells the agent.
#[derive(Debug, Clone, PartialEq)]
pub enum LinkEvent {
    /// A session stands; it was made by a handshake after the last [`ToLink::Renew`].
    Up,
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
