//! The nodes of a fleet in the order in which people see them, kept from one question to the next, so that a page costs
//! what stands on it and not what the fleet has: of ten thousand nodes few have changed since somebody asked last.
//!
//! Invariant: each node of the newest tree stands here once, where what was last told of it puts it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::ops::Bound;
use std::str::FromStr;
use std::sync::Arc;

use meshplan_schemas::ident::{NodeId, NodeName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::compose::Composed;
use super::page::{self, NodeView};
use super::snapshot::Nodes;

/// How many nodes a page has where nobody says.
pub const PAGE: usize = 100;
/// How many it has at most.
pub const LARGEST_PAGE: usize = 1000;

/// How a node stands, worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// Its last report says what is not well there.
    Troubled,
    /// It was heard from and has no session.
    Away,
    /// A person paused it on the machine (HR-17).
    Paused,
    /// It has a session.
    Connected,
    /// It is invited, or was never heard from.
    Awaited,
}

impl Standing {
    /// All of them, worst first.
    pub const ALL: [Self; 5] = [
        Self::Troubled,
        Self::Away,
        Self::Paused,
        Self::Connected,
        Self::Awaited,
    ];
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Troubled => "troubled",
            Self::Away => "away",
            Self::Paused => "paused",
            Self::Connected => "connected",
            Self::Awaited => "awaited",
        })
    }
}

impl FromStr for Standing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = || Self::ALL.iter().map(ToString::to_string);
        (Self::ALL
            .into_iter()
            .find(|standing| standing.to_string() == text))
        .ok_or_else(|| format!("a node stands as one of {}", all().collect::<Vec<_>>().join(", ")))
    }
}

/// How many nodes stand how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// All.
    pub nodes: usize,
    /// Their last report says what is not well there.
    pub troubled: usize,
    /// They were heard from and have no session.
    pub away: usize,
    /// A person paused them on the machine.
    #[serde(default)]
    pub paused: usize,
    /// They have a session.
    pub connected: usize,
    /// They are invited, or were never heard from.
    pub awaited: usize,
}

impl Counts {
    /// How many stand so; none: all.
    #[must_use]
    pub fn of(&self, standing: Option<Standing>) -> usize {
        match standing {
            None => self.nodes,
            Some(Standing::Troubled) => self.troubled,
            Some(Standing::Away) => self.away,
            Some(Standing::Paused) => self.paused,
            Some(Standing::Connected) => self.connected,
            Some(Standing::Awaited) => self.awaited,
        }
    }
}

impl fmt::Display for Counts {
    /// `12 nodes: 1 troubled, 11 connected`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = Standing::ALL.map(|standing| (self.of(Some(standing)), standing));
        let some = counted.iter().filter(|(count, _)| *count > 0);
        let words: Vec<String> = some
            .map(|(count, standing)| format!("{count} {standing}"))
            .collect();
        write!(f, "{} nodes: {}", self.nodes, words.join(", "))
    }
}

/// In which order nodes come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// Worst first, then by name. A node that changes its standing changes its place.
    #[default]
    Standing,
    /// By name alone: a walk through all pages meets every node that is there all the while, once.
    Name,
}

/// Which page.
#[derive(Debug, Clone)]
pub struct Which {
    /// In which order.
    pub by: By,
    /// Only nodes that stand so.
    pub standing: Option<Standing>,
    /// Behind this one; none: from the first.
    pub after: Option<Place>,
    /// How many at most.
    pub limit: usize,
}

impl Default for Which {
    /// The first, worst first.
    fn default() -> Self {
        Self {
            by: By::Standing,
            standing: None,
            after: None,
            limit: PAGE,
        }
    }
}

/// A place in the order, written `<standing>:<name>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    standing: Standing,
    name: NodeName,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.standing, self.name)
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (standing, name) = text.split_once(':').unwrap_or_default();
        (standing.parse().ok().zip(name.parse().ok()))
            .map(|(standing, name)| Self { standing, name })
            .ok_or_else(|| format!("`{text}` is no place in the list: give the `next` of the page before it"))
    }
}

/// Some nodes, in order.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Page {
    /// How many stand how, on this page or not.
    pub counts: Counts,
    /// The nodes of this page.
    pub nodes: Vec<NodeView>,
    /// What to give as `after` for those that follow; null: none do.
    #[serde(default)]
    pub next: Option<String>,
}

/// The nodes in order.
#[derive(Debug, Default)]
pub struct RollCall {
    tree: Option<Arc<Composed>>,
    connected: BTreeSet<NodeId>,
    standings: HashMap<NodeId, (Standing, NodeName)>,
    worst_first: BTreeMap<Standing, BTreeMap<NodeName, NodeId>>,
    by_name: BTreeMap<NodeName, NodeId>,
}

impl RollCall {
    /// Takes the newest tree: who is in the fleet.
    pub fn enter(&mut self, tree: &Arc<Composed>, heard: &Nodes) {
        let changed = match &self.tree {
            Some(known) if Arc::ptr_eq(known, tree) => return,
            Some(known) => tree.nodes.differing(&known.nodes, Arc::ptr_eq),
            None => tree.nodes.keys().copied().collect(),
        };
        self.tree = Some(Arc::clone(tree));
        self.told(&changed, heard);
    }

    /// Takes which nodes have a session now that had none, or have none any more.
    pub fn moved(&mut self, sessions: &BTreeMap<NodeId, bool>, heard: &Nodes) {
        for (id, connected) in sessions {
            if *connected {
                self.connected.insert(*id);
            } else {
                self.connected.remove(id);
            }
        }
        let changed: Vec<NodeId> = sessions.keys().copied().collect();
        self.told(&changed, heard);
    }

    /// Takes what is heard of these nodes.
    pub fn told(&mut self, changed: &[NodeId], heard: &Nodes) {
        // All go before any comes: a name may have passed from one to another.
        for id in changed {
            if let Some((standing, name)) = self.standings.remove(id) {
                self.by_name.remove(&name);
                if let Some(names) = self.worst_first.get_mut(&standing) {
                    names.remove(&name);
                }
            }
        }
        for id in changed {
            let Some(node) = self.tree.as_ref().and_then(|tree| tree.nodes.get(id)) else {
                continue;
            };
            let standing = page::stands(node, heard.get(id), self.connected.contains(id));
            let name = &node.name;
            self.by_name.insert(name.clone(), *id);
            let names = self.worst_first.entry(standing).or_default();
            names.insert(name.clone(), *id);
            self.standings.insert(*id, (standing, name.clone()));
        }
    }

    /// A page of the nodes, and how many there are.
    #[must_use]
    pub fn page(&self, which: &Which, heard: &Nodes) -> Page {
        let after = which.after.as_ref();
        let behind = |name: &NodeName| (Bound::Excluded(name.clone()), Bound::Unbounded);
        let all = (Bound::Unbounded, Bound::Unbounded);
        let wanted = |standing: &Standing| which.standing.is_none_or(|only| only == *standing);
        let mut ids: Vec<NodeId> = match which.by {
            By::Standing => (self.worst_first.iter())
                .filter(|(standing, _)| {
                    wanted(standing) && after.is_none_or(|after| after.standing <= **standing)
                })
                .flat_map(|(standing, names)| {
                    let within = after.filter(|after| after.standing == *standing);
                    names.range(within.map_or(all.clone(), |after| behind(&after.name)))
                })
                .map(|(_, id)| *id)
                .take(which.limit + 1)
                .collect(),
            By::Name => (self.by_name.range(after.map_or(all, |after| behind(&after.name))))
                .map(|(_, id)| *id)
                .filter(|id| {
                    self.standings
                        .get(id)
                        .is_some_and(|(standing, _)| wanted(standing))
                })
                .take(which.limit + 1)
                .collect(),
        };
        let more = ids.len() > which.limit;
        ids.truncate(which.limit);
        let last = ids.last().filter(|_| more).and_then(|id| self.standings.get(id));
        Page {
            counts: self.counts(),
            next: last.map(|(standing, name)| {
                let (standing, name) = (*standing, name.clone());
                Place { standing, name }.to_string()
            }),
            nodes: (ids.iter()).filter_map(|id| self.node(id, heard)).collect(),
        }
    }

    /// The node that goes by a name or a short id.
    #[must_use]
    pub fn find(&self, text: &str, heard: &Nodes) -> Option<NodeView> {
        let by_short_id = || {
            let short = text.len() == 8 && text.bytes().all(|b| b.is_ascii_hexdigit());
            let mut ids = self.standings.keys().filter(|_| short);
            ids.find(|id| id.short().as_str() == text)
        };
        self.node(self.by_name.get(text).or_else(by_short_id)?, heard)
    }

    /// How many nodes stand how.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let count = |standing| self.worst_first.get(&standing).map_or(0, BTreeMap::len);
        Counts {
            nodes: self.standings.len(),
            troubled: count(Standing::Troubled),
            away: count(Standing::Away),
            paused: count(Standing::Paused),
            connected: count(Standing::Connected),
            awaited: count(Standing::Awaited),
        }
    }

    fn node(&self, id: &NodeId, heard: &Nodes) -> Option<NodeView> {
        let node = self.tree.as_ref()?.nodes.get(id)?;
        Some(page::node(node, heard.get(id), self.connected.contains(id)))
    }
}

#[cfg(test)]
mod tests;
