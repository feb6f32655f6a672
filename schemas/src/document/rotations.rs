//! `rotations.toml`: which key or secret moves when (page 05).

use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use toml::Spanned;
use toml::de::DeValue;

use super::read::{At, Read, Reader, RefusedKey, table};
use super::scalar::Instant;
use super::texts::{Line, SecretPath};
use super::words::words;
use crate::ident::{KeyId, NodeId, RoleName};

const OF_THE_LIST: &str = "`{}` exists only in the signed list: the reconciler keeps it";
const SIGNED_ONLY: &[RefusedKey] = &[("state", OF_THE_LIST), ("wrapped", OF_THE_LIST)];

table! {
    /// Rotations, as they are written: `rotations.toml`.
    pub struct RotationsFile;
    /// The rotations.
    "rotations" rotations: Vec<At<RotationEntry>>,
}

table! {
    /// One rotation; no instant is before the one above it.
    pub struct RotationEntry refuses SIGNED_ONLY;
    /// Its name; `meshplan fleet rotate plan` makes one.
    "id" id: At<RoleName>,
    /// What moves.
    "kind" kind: At<RotationKind>,
    /// Whose key, for the kinds of nodes: a record's uuid, `role:<name>` or `all`.
    "subject" subject: Option<At<Subject>>,
    /// The key that comes, for the kinds of nodes with one uuid: the id of a key that is in the record.
    "next_key_id" next_key_id: Option<At<KeyId>>,
    /// The new secret, for `mesh_secret`.
    "secret" secret: Option<At<SecretPath>>,
    /// When the new one is told.
    "publish_at" publish_at: At<Instant>,
    /// When the new one is used.
    "activate_at" activate_at: At<Instant>,
    /// When the old one is refused; 0 is not yet.
    "retire_at" retire_at: Option<At<Instant>>,
    /// `when-ready`: as soon as the gate passes, instead of `retire_at`.
    "retire" retire: Option<At<Retire>>,
    /// May retire before `default_activate_to_retire_secs` have passed.
    "early" early: At<bool> = At { value: false, span: 0..0 },
    /// Why it retires although nodes are missing.
    "force" force: Option<At<Line>>,
}

words! {
    /// What a rotation moves.
    pub enum RotationKind {
        /// The key of a node's sessions.
        NodeTransport = "node_transport",
        /// The key of a node's reports.
        NodeSigning = "node_signing",
        /// The secret of gossip.
        MeshSecret = "mesh_secret",
        /// The reconciler's key.
        ReconcilerTransport = "reconciler_transport",
    }
}

words! {
    /// `retire`.
    pub enum Retire {
        /// As soon as the gate passes.
        WhenReady = "when-ready",
    }
}

/// Whose key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// One node's.
    Node(NodeId),
    /// Those of every node with the role.
    Role(RoleName),
    /// Every node's.
    All,
}
impl FromStr for Subject {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::All);
        }
        match text.split_once(':') {
            Some(("role", role)) => {
                (role.parse().map(Self::Role)).map_err(|e: crate::ident::NameError| e.to_string())
            }
            _ => (text.parse().map(Self::Node))
                .map_err(|_| "expected a record's uuid, `role:<name>` or `all`".to_owned()),
        }
    }
}
impl Read for Subject {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        reader.parsed(value, Self::from_str)
    }
}
impl JsonSchema for Subject {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Subject".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^(all|role:.+|[0-9a-fA-F-]{32,36}|[{].+|urn:.+)$" })
    }
}
