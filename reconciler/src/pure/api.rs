//! The API of rollouts as types (RO-6): what is asked and answered, and the OpenAPI page that is made of them.
//!
//! It stands alone because page and handlers must not part: `docs/reference/openapi.json` is generated from the types
//! here, and a test asks each route of a running reconciler and holds its answer to that page.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::{NodeId, NodeName, RoleName};
use meshplan_schemas::lifecycle::epoch::EpochState;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::events::Numbered;
use super::roll_call::{Page, Standing};
use super::rollout::Rollout;
use super::rollout::archive::Summary;
use super::rollout::live::Member;
use super::rollout::words::Overrides;
use super::snapshot::Nodes;

/// The rollout in hand, or the last one.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RolloutAnswer {
    /// The fleet.
    pub interface: String,
    /// Whether `rollout` is under way.
    pub in_hand: bool,
    /// The newest rollout; null before the first.
    pub rollout: Option<Rollout>,
}

/// A page of archives, newest first.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RolloutsAnswer {
    /// The fleet.
    pub interface: String,
    /// Which page, from 1.
    pub page: u64,
    /// How many there are.
    pub pages: u64,
    /// How many archives a page has at most.
    pub per_page: u32,
    /// How many archives there are.
    pub total: u64,
    /// The archives of this page.
    pub rollouts: Vec<Summary>,
}

/// One rollout by its id.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ArchiveAnswer {
    /// The fleet.
    pub interface: String,
    /// When it was put away; null while it is under way or has just ended.
    #[schemars(with = "Option<String>")]
    pub archived_at: Option<Timestamp>,
    /// It is put away, and every node has settled on the final epoch.
    pub closed: bool,
    /// The record.
    pub rollout: Rollout,
}

/// What starts a rollout: a commit whose delivery is held. Anything else is refused, a policy from a file too.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StartAsk {
    /// A commit id, its first digits, or a delivery's name.
    pub commit: String,
    /// The canaries by name; with roles: those that carry one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub canary_nodes: Vec<NodeName>,
    /// The canaries by role.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub canary_roles: Vec<RoleName>,
    /// The commit-confirm window of this rollout in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm_secs: Option<u32>,
    /// For how long each wave of its release is watched, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_watch_secs: Option<u32>,
    /// Why, for the record.
    #[serde(default)]
    pub why: String,
    /// Who; else `operator`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
}

impl StartAsk {
    /// What is other for this rollout.
    #[must_use]
    pub fn overrides(&self) -> Overrides {
        Overrides {
            canary_nodes: self.canary_nodes.clone(),
            canary_roles: self.canary_roles.clone(),
            confirm_secs: self.confirm_secs,
            release_watch_secs: self.release_watch_secs,
        }
    }
}

/// What releases the rollout in hand when it is held.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseAsk {
    /// Past a machine that did not pass.
    #[serde(default)]
    pub force: bool,
    /// Why, for the record.
    #[serde(default)]
    pub why: String,
    /// Who; else `operator`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
}

/// What aborts the rollout in hand.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AbortAsk {
    /// Why, for the record.
    #[serde(default)]
    pub why: String,
    /// Who; else `operator`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
}

/// What a word came to.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct WordAnswer {
    /// In a sentence.
    pub answer: String,
}

/// An answer that is no.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct NoAnswer {
    /// What, why, and what next.
    pub error: String,
    /// The rollout in hand, where that is why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
}

/// What is heard of every node.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct StatsAnswer {
    /// The fleet.
    pub interface: String,
    /// As of when this is true.
    #[schemars(with = "String")]
    pub as_of: Timestamp,
    /// The nodes.
    pub mesh: MeshStats,
}

/// Every node.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct MeshStats {
    /// By short id.
    pub config_status: BTreeMap<String, ConfigStatus>,
}

/// How one node stands with its epoch (EP-1).
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ConfigStatus {
    /// Its name.
    pub name: String,
    /// The class that its record gives it.
    pub class: UpdateClass,
    /// A session is open.
    pub connected: bool,
    /// When it was last heard; null: never.
    #[schemars(with = "Option<String>")]
    pub heard_at: Option<Timestamp>,
    /// The epoch that `state` speaks for; null before its first report of one, like all that follows.
    pub state_epoch: Option<u64>,
    /// Where that stands.
    pub state: Option<EpochState>,
    /// Why, where it did not simply work.
    pub reason: Option<String>,
    /// From whom it had the epoch.
    pub received_via: Option<String>,
    /// When, by its own clock, in unix seconds.
    pub received_at: Option<i64>,
    /// The class that it reads in its own record.
    pub update_class: Option<UpdateClass>,
    /// The epoch that it runs; 0 before the first.
    pub running: Option<u64>,
}

/// What is heard of the nodes of a fleet.
#[must_use]
pub fn stats(
    interface: &str,
    roster: &[Member],
    nodes: &Nodes,
    connected: &BTreeSet<NodeId>,
    now: Timestamp,
) -> StatsAnswer {
    let status = |member: &Member| {
        let heard = nodes.get(&member.id);
        let epoch = heard
            .and_then(|n| n.report.as_ref())
            .and_then(|r| r.epoch.as_ref());
        let status = ConfigStatus {
            name: member.name.to_string(),
            class: member.class,
            connected: connected.contains(&member.id),
            heard_at: heard.and_then(|n| n.heard_at),
            state_epoch: epoch.map(|e| e.state_epoch),
            state: epoch.map(|e| e.state),
            reason: epoch.map(|e| e.reason.clone()),
            received_via: epoch.map(|e| e.received_via.clone()),
            received_at: epoch.map(|e| e.received_at),
            update_class: epoch.map(|e| e.update_class),
            running: epoch.map(|e| e.running),
        };
        (member.id.short().to_string(), status)
    };
    StatsAnswer {
        interface: interface.to_owned(),
        as_of: now,
        mesh: MeshStats {
            config_status: roster.iter().map(status).collect(),
        },
    }
}

/// Some nodes as people see them.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct NodesAnswer {
    /// As of when this is true.
    #[schemars(with = "String")]
    pub as_of: Timestamp,
    /// The page.
    #[serde(flatten)]
    pub page: Page,
}

/// Events of the journal.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct EventsAnswer {
    /// Oldest first.
    pub events: Vec<Numbered>,
    /// What to give as `after` for those that follow.
    pub next: u64,
}

fn parameter(place: &str, name: &str, needed: bool, kind: Value, what: &str) -> Value {
    json!({ "name": name, "in": place, "required": needed, "schema": kind, "description": what })
}

fn interface() -> Value {
    parameter(
        "query",
        "interface",
        true,
        json!({ "type": "string" }),
        "The fleet's name.",
    )
}

fn whole(least: u64) -> Value {
    json!({ "type": "integer", "minimum": least })
}

/// Whether a word needs a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    Needed,
    Optional,
}

/// A route: what it is, its parameters, the statuses that say no, its answer.
struct Route<'a> {
    what: &'a str,
    parameters: Vec<Value>,
    noes: &'a [(&'a str, &'a str)],
}

impl Route<'_> {
    fn get<T: JsonSchema>(self, generator: &mut SchemaGenerator) -> Value {
        json!({ "get": self.operation::<T>(generator) })
    }

    fn post<Ask: JsonSchema, T: JsonSchema>(self, generator: &mut SchemaGenerator, body: Body) -> Value {
        let mut operation = self.operation::<T>(generator);
        let ask = generator.subschema_for::<Ask>();
        operation["requestBody"] =
            json!({ "required": body == Body::Needed, "content": { "application/json": { "schema": ask } } });
        operation["responses"]["202"] = answer(
            "Taken down; the next pass answers it.",
            &generator.subschema_for::<WordAnswer>().to_value(),
        );
        json!({ "post": operation })
    }

    fn operation<T: JsonSchema>(self, generator: &mut SchemaGenerator) -> Value {
        let mut responses = Map::new();
        let good = generator.subschema_for::<T>().to_value();
        responses.insert("200".to_owned(), answer("The answer.", &good));
        let no = generator.subschema_for::<NoAnswer>().to_value();
        for (status, why) in self.noes {
            responses.insert((*status).to_owned(), answer(why, &no));
        }
        json!({ "summary": self.what, "parameters": self.parameters, "responses": responses })
    }
}

fn answer(what: &str, schema: &Value) -> Value {
    json!({ "description": what, "content": { "application/json": { "schema": schema } } })
}

const BAD: (&str, &str) = (
    "400",
    "The question is not as it must be: which part, and what would be.",
);
const UNKNOWN: (&str, &str) = ("404", "There is no such fleet, rollout or delivery here.");
const BUSY: (&str, &str) = ("503", "The store cannot answer now: why; the same again later.");
const REFUSED: (&str, &str) = (
    "409",
    "Refused: why, what would change it, and the rollout in hand where that is why.",
);

/// The OpenAPI 3.1 page of these routes.
#[must_use]
pub fn openapi() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|s| s.definitions_path = "/components/schemas".into());
    let mut generator = settings.into_generator();
    let make = &mut generator;
    let read = |what, parameters| Route {
        what,
        parameters,
        noes: &[BAD, UNKNOWN, BUSY],
    };
    let say = |what| Route {
        what,
        parameters: vec![interface()],
        noes: &[BAD, UNKNOWN, REFUSED, BUSY],
    };
    let id = parameter(
        "path",
        "rollout_id",
        true,
        json!({ "type": "string" }),
        "The rollout's id, or the number of its first epoch.",
    );
    let page = parameter("query", "page", false, whole(1), "Which page, from 1.");
    let per_page = parameter(
        "query",
        "per_page",
        false,
        whole(1),
        "From 1 to 100; 20 where it is left out.",
    );
    let after = || {
        parameter(
            "query",
            "after",
            false,
            whole(0),
            "Only events with higher numbers.",
        )
    };
    let limit = parameter(
        "query",
        "limit",
        false,
        whole(1),
        "From 1 to 1000; 100 where it is left out.",
    );
    let nodes = vec![
        parameter(
            "query",
            "by",
            false,
            json!({ "enum": ["standing", "name"] }),
            "`standing`: worst first, where it is left out; `name`: a walk through all pages meets each node once.",
        ),
        parameter(
            "query",
            "standing",
            false,
            json!({ "enum": Standing::ALL }),
            "Only nodes that stand so.",
        ),
        parameter(
            "query",
            "after",
            false,
            json!({ "type": "string" }),
            "The `next` of the page before.",
        ),
        parameter(
            "query",
            "limit",
            false,
            whole(1),
            "From 1 to 1000; 100 where it is left out.",
        ),
    ];
    let mut stream = read(
        "The same, one by one as they happen (Server-Sent Events).",
        vec![after()],
    )
    .get::<Numbered>(make);
    let content = &mut stream["get"]["responses"]["200"]["content"];
    *content = json!({ "text/event-stream": { "schema": { "type": "string" } } });
    let paths = json!({
        "/api/config/rollout": read("The rollout in hand, or the last one.", vec![interface()])
            .get::<RolloutAnswer>(make),
        "/api/config/rollouts": read("Archives, newest first.", vec![interface(), page, per_page])
            .get::<RolloutsAnswer>(make),
        "/api/config/rollouts/{rollout_id}": read("One rollout.", vec![id, interface()])
            .get::<ArchiveAnswer>(make),
        "/api/config/rollout/start": say("Starts the rollout of a delivery that is held.")
            .post::<StartAsk, WordAnswer>(make, Body::Needed),
        "/api/config/rollout/release": say("Lets the rollout in hand go on when it is held.")
            .post::<ReleaseAsk, WordAnswer>(make, Body::Optional),
        "/api/config/rollout/abort": say("Takes the rollout in hand back.")
            .post::<AbortAsk, WordAnswer>(make, Body::Optional),
        "/api/nodes": read("The nodes as people see them, by pages.", nodes).get::<NodesAnswer>(make),
        "/api/stats": read("How every node stands with its epoch.", Vec::new()).get::<StatsAnswer>(make),
        "/api/events": read("The journal of events, oldest first.", vec![after(), limit])
            .get::<EventsAnswer>(make),
        "/api/events/stream": stream,
    });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "meshplan",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Reads are served on loopback and on the socket in the state folder; what changes \
                            something on the socket alone.",
        },
        "paths": paths,
        "components": { "schemas": generator.take_definitions(true) },
    })
}

/// The page as text that ends in a line end.
#[must_use]
pub fn openapi_text() -> String {
    format!("{:#}\n", openapi())
}
