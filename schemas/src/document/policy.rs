//! `policy/base.toml` and `policy/roles/<role>.toml`: the four sections and their keys (FR-6, FR-7).

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::DeValue;

use super::read::{At, Read, Reader, RefusedKey, table};
use super::scalar::{Int, Secs, SomeSecs, TimeOfDay, Zone};
use crate::ident::NodeName;

const NOT_POLICY: &str =
    "`{}` is not policy: policy is scheduler, link_monitor, qos, traversal and nothing else";
const SECTIONS_ELSEWHERE: &[RefusedKey] = &[
    ("identity", NOT_POLICY),
    ("peers", NOT_POLICY),
    ("auth", NOT_POLICY),
    ("mesh", NOT_POLICY),
];

table! {
    /// Policy, as it is written: for every node, or for those that carry a role.
    pub struct PolicyFile refuses SECTIONS_ELSEWHERE;
    /// When and how often the host works.
    "scheduler" scheduler: Option<Scheduler>,
    /// When a link counts as down.
    "link_monitor" link_monitor: Option<LinkMonitor>,
    /// What applying may take from the machine.
    "qos" qos: Option<Qos>,
    /// Ways to the others.
    "traversal" traversal: Option<Traversal>,
}

table! {
    /// When and how often the host works.
    pub struct Scheduler;
    /// Seconds between looks at the machine for drift.
    "reconcile_secs" reconcile_secs: Option<SomeSecs>,
    /// Spread of what many hosts would do at once.
    "splay_secs" splay_secs: Option<Secs>,
    /// How many modules are applied side by side.
    "max_parallel" max_parallel: Option<Int<1, 1024>>,
    /// Maintenance windows: outside them only what is urgent is taken.
    "windows" windows: Option<Vec<At<MaintenanceWindow>>>,
    /// The shortest pause before a failed thing is tried again.
    "retry_min_secs" retry_min_secs: Option<SomeSecs>,
    /// The longest pause before a failed thing is tried again.
    "retry_max_secs" retry_max_secs: Option<SomeSecs>,
    /// Free keys for other programs.
    "extra" extra: Option<Free>,
}

table! {
    /// A maintenance window.
    pub struct MaintenanceWindow;
    /// The days on which it opens.
    "days" days: Days,
    /// When it opens.
    "from" from: TimeOfDay,
    /// When it shuts.
    "to" to: TimeOfDay,
    /// The time zone of both.
    "zone" zone: Zone,
}

table! {
    /// When a link to the reconciler or a neighbour counts as down.
    pub struct LinkMonitor;
    /// Seconds between probes.
    "probe_secs" probe_secs: Option<SomeSecs>,
    /// After how long a probe is lost.
    "timeout_ms" timeout_ms: Option<Int<1, 600_000>>,
    /// How many in a hundred of the window may be lost.
    "loss_threshold" loss_threshold: Option<Int<1, 100>>,
    /// How many probes are looked at.
    "window" window: Option<Int<1, 10_000>>,
    /// Free keys for other programs.
    "extra" extra: Option<Free>,
}

table! {
    /// What applying may take from the machine.
    pub struct Qos;
    /// Rate of artifact downloads.
    "artifact_kib_per_sec" artifact_kib_per_sec: Option<Int<1, 1_000_000_000>>,
    /// systemd's CPU weight of what applying starts.
    "apply_cpu_weight" apply_cpu_weight: Option<Int<1, 10_000>>,
    /// systemd's I/O weight of what applying starts.
    "apply_io_weight" apply_io_weight: Option<Int<1, 10_000>>,
    /// Free keys for other programs.
    "extra" extra: Option<Free>,
}

table! {
    /// Ways to the others.
    pub struct Traversal;
    /// Which ways are tried, in order.
    "order" order: Option<Vec<Way>>,
    /// Nodes that relay.
    "relays" relays: Option<Vec<At<NodeName>>>,
    /// Seconds between keep-alives.
    "keepalive_secs" keepalive_secs: Option<SomeSecs>,
    /// Free keys for other programs.
    "extra" extra: Option<Free>,
}

/// A way to another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Way {
    /// Straight.
    Direct,
    /// Through another node.
    Relay,
    /// Over the bus.
    Bus,
}
impl Read for Way {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        reader.word(
            value,
            &[
                ("direct", Self::Direct),
                ("relay", Self::Relay),
                ("bus", Self::Bus),
            ],
        )
    }
}

/// The days of a window, at least one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Days(pub Vec<Day>);

impl Read for Days {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        let days = reader.array(value)?;
        if days.is_empty() {
            let message = format!("`{}` is empty: the window would never open", reader.path());
            reader.error(value.span(), message);
            return None;
        }
        Some(Self(days))
    }
}
impl JsonSchema for Days {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Days".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let day = generator.subschema_for::<Day>();
        json_schema!({ "type": "array", "items": day, "minItems": 1 })
    }
}

/// A day of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[expect(missing_docs, reason = "days")]
pub enum Day {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}
const DAYS: [(&str, Day); 7] = [
    ("mon", Day::Mon),
    ("tue", Day::Tue),
    ("wed", Day::Wed),
    ("thu", Day::Thu),
    ("fri", Day::Fri),
    ("sat", Day::Sat),
    ("sun", Day::Sun),
];

impl Day {
    /// How it is written.
    #[must_use]
    pub fn word(self) -> &'static str {
        DAYS.iter()
            .find(|(_, day)| *day == self)
            .map_or("", |(word, _)| word)
    }
}

impl Read for Day {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        reader.word(value, &DAYS)
    }
}

/// A table whose keys are nobody's here: handed on untouched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Free;

impl Read for Free {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        let table = value.get_ref().is_table();
        if !table {
            reader.wrong_type(value, "a table");
        }
        table.then_some(Self)
    }
}
impl JsonSchema for Free {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Free".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object" })
    }
}
