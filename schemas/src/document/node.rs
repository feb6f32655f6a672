//! `nodes/**/<name>.toml`: a node record; the file's name is the node's name.

use super::read::{At, table};
use super::scalar::Instant;
use super::var::Vars;
use crate::declaration::Mode;
use crate::fleet_list::UpdateClass;
use crate::ident::{ModuleName, NodeId, RoleName};
use crate::key::{SigningKey, TransportKey};

table! {
    /// A node record, as it is written: `nodes/**/<name>.toml`.
    pub struct NodeFile;
    /// The node's uuid, never reused; `meshplan node add` makes one.
    "id" id: At<NodeId>,
    /// Roles, in the order in which their policy overlays are laid over the base.
    "roles" roles: Vec<At<RoleName>>,
    /// Modules, beside those that the roles bring.
    "modules" modules: Vec<At<ModuleName>>,
    /// Where neighbours reach it: `ws://` or `wss://`.
    "address" address: Option<At<String>>,
    /// What gates wait for.
    "update_class" update_class: UpdateClass = UpdateClass::Required,
    /// Never follows; `left_behind` only.
    "pinned" pinned: At<bool> = At { value: false, span: 0..0 },
    /// Keeps accepting old material longer in a rotation.
    "lifeline" lifeline: bool = false,
    /// Public key of its sessions; absent: invited, not yet enrolled.
    "transport_key" transport_key: Option<At<TransportKey>>,
    /// Public key of its reports; absent: invited, not yet enrolled.
    "signing_key" signing_key: Option<At<SigningKey>>,
    /// During a rotation.
    "next_transport_key" next_transport_key: Option<At<TransportKey>>,
    /// During a rotation.
    "next_signing_key" next_signing_key: Option<At<SigningKey>>,
    /// End of its membership; 0 is none. Set by a retire.
    "valid_to" valid_to: Instant = Instant(0),
    /// No longer a member; the record moves to `nodes/revoked/`.
    "revoked" revoked: bool = false,
    /// A machine that was there before: keeps what it found until its module is taken.
    "adopted" adopted: bool = false,
    /// Modules whose found things the host may take over.
    "take" take: Vec<At<ModuleName>>,
    /// `observe`: says what would change and changes nothing.
    "mode" mode: Mode = Mode::Apply,
    /// Values for settings and templates, for this node.
    "vars" vars: Vars,
}
