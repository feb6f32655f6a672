//! Tables of `fleet.toml` beside the defaults: other repositories, secrets, offline keys, messages out, neighbours.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use toml::Spanned;
use toml::de::DeValue;

use crate::document::read::{At, Read, Reader, table};
use crate::document::scalar::{Identifier, Int};
use crate::document::texts::{AgeRecipient, ComponentRepo, Line, SecretName, WebUrl};
use crate::document::words::words;
use crate::ident::{KeyId, ModuleName};
use crate::key::SigningKey;

table! {
    /// Another repository whose commits are delivered.
    pub struct ComponentFile;
    /// The repository as the forge names it, `<owner>/<repo>`.
    "repo" repo: At<ComponentRepo>,
    /// The branch whose merges are orders.
    "branch" branch: At<Line>,
    /// The module whose `source = "component"` bundle it feeds.
    "module" module: At<ModuleName>,
}

table! {
    /// Secrets at rest in the repository.
    pub struct SecretsFile;
    /// The reconciler's age recipient, for which `secrets/*.age` are encrypted.
    "recipient" recipient: Option<At<AgeRecipient>>,
}

table! {
    /// A key that is kept offline: only a list that so many roots signed too changes who may sign.
    pub struct RootFile;
    /// The name that signatures carry.
    "id" id: KeyId,
    /// The public key.
    "key" key: SigningKey,
}

table! {
    /// Bounds that a fleet may raise.
    pub struct BoundsFile;
    /// The largest module folder, in MiB.
    "bundle_mib" bundle_mib: Option<Int<1, 65_536>> as 64,
}

table! {
    /// Talk between hosts: off where the table is left out.
    pub struct NeighboursFile;
    /// How many neighbours a host has.
    "count" count: Int<1, 16> = Int(4),
    /// The key of `[vars]` in a node's record that says where it is; those of one place are chosen first.
    "same" same: Option<At<Identifier>>,
    /// Membership and status also pass by datagrams.
    "gossip" gossip: bool = false,
}

words! {
    /// Whose messages they are.
    pub enum NotifyKind {
        /// Slack's.
        Slack = "slack",
        /// Matrix's.
        Matrix = "matrix",
        /// ntfy's.
        Ntfy = "ntfy",
        /// CloudEvents as JSON.
        CloudEvents = "cloudevents",
    }
}
words! {
    /// What somebody is told of.
    pub enum Occasion {
        /// A delivery is held.
        Held = "held",
        /// A delivery or rollout was aborted.
        Aborted = "aborted",
        /// A rotation cannot go on, or a gate is shut.
        Blocked = "blocked",
        /// A required machine is silent.
        Silent = "silent",
        /// A key, list or timestamp expires soon.
        Expiring = "expiring",
    }
}

table! {
    /// Where messages go.
    pub struct NotifyFile;
    /// Whose messages they are.
    "kind" kind: NotifyKind,
    /// The address; exactly one of `url`, `url_secret`.
    "url" url: Option<At<WebUrl>>,
    /// The secret that holds the address.
    "url_secret" url_secret: Option<At<SecretName>>,
    /// What somebody is told of; all of it where it is left out.
    "on" on: Vec<At<Occasion>>,
    /// The text as a template, instead of the kind's own.
    "template" template: Option<At<String>>,
}

/// `[notify.<name>]`.
#[derive(Debug, Clone, Default)]
pub struct Notifies(pub BTreeMap<String, At<NotifyFile>>);

impl Read for Notifies {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        let pairs = reader.map(value, |key| key.parse::<Identifier>())?;
        let named = pairs.into_iter().map(|(key, value)| {
            let At { value: name, span } = key;
            (name.0, At { value, span })
        });
        Some(Self(named.collect()))
    }
    fn missing() -> Option<Self> {
        Some(Self::default())
    }
}
impl JsonSchema for Notifies {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Notifies".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let notify = generator.subschema_for::<NotifyFile>();
        json_schema!({ "type": "object", "additionalProperties": notify })
    }
}
