//! A reconciler that has come back without its database signs nothing until it knows above which numbers it must go on
//! (SG-8): every required machine says which it has verified (HR-11), or a person says that it need not be waited for.
//!
//! It stands alone because store, pass, pages and command line ask the same questions. Invariant: a machine counts as heard
//! only by a report that answers the look of this recovery, so that what waited on its disk from before is no answer.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::{CommitId, NodeId, NodeName};
use meshplan_schemas::limits::NUMBER_JUMP;
use meshplan_schemas::report::{Cause, Mark, Report};
use serde::{Deserialize, Serialize};

use crate::pure::compose::Composed;
use crate::pure::scope::Scope;
use crate::pure::snapshot::{Counters, NodeState, Nodes};

/// So far above the highest number that is known the next ones are (SG-8).
pub const MARGIN: u64 = 1_000;
/// So many machines are named in a sentence; the rest is counted.
const NAMED: usize = 10;
/// The command that ends the wait.
pub const COMMAND: &str = "meshplan recover --force";

/// A recovery under way, as the store keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovering {
    /// Since when.
    pub since: Timestamp,
    /// The look that every machine is asked to answer; above all that were asked before.
    pub look: u64,
    /// How many blocks the record has.
    pub blocks: u64,
    /// The highest numbers of the record, and of what was left of a database.
    pub numbers: Numbers,
    /// Who said that nobody is waited for.
    #[serde(default)]
    pub forced: Option<String>,
    /// Nodes of which not all is known: no declaration of theirs is signed anew.
    #[serde(default)]
    pub partial: BTreeSet<NodeId>,
    /// The walks that had begun and were not over.
    #[serde(default)]
    pub walks: BTreeMap<CommitId, Begun>,
}

/// Numbers of orders.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbers {
    /// Epochs.
    pub epoch: u64,
    /// Revisions of the list.
    pub revision: u64,
    /// Sequences of declarations.
    pub sequence: u64,
}

/// What the record says of a walk that was not over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// The machines that it names: those had an order of it.
    pub machines: BTreeSet<NodeName>,
    /// Legs that were taken back while the others went on.
    pub taken_back: BTreeSet<Scope>,
    /// A person had said what is other for it alone; what, the record does not say.
    pub overridden: bool,
}

/// A machine that is waited for, and what keeps it from having been heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Awaited {
    /// Which.
    pub node: NodeId,
    /// Its name.
    pub name: NodeName,
    /// It answered, and says numbers that are not believed: which.
    pub doubt: Option<String>,
}

impl From<&Counters> for Numbers {
    fn from(counters: &Counters) -> Self {
        Self {
            epoch: counters.epoch,
            revision: counters.revision,
            sequence: counters.sequence,
        }
    }
}

impl Numbers {
    /// Number by number the higher one.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            epoch: self.epoch.max(other.epoch),
            revision: self.revision.max(other.revision),
            sequence: self.sequence.max(other.sequence),
        }
    }

    fn of(report: &Report) -> Self {
        let number = |mark: Option<Mark>| mark.map_or(0, |mark| mark.number);
        Self {
            epoch: number(report.marks.epoch),
            revision: number(report.marks.revision),
            sequence: number(report.marks.sequence),
        }
    }

    /// Which of them no host would take after `record`, were they ours (SG-11); none where all are within reach.
    fn beyond(self, record: Self) -> Option<String> {
        let pairs = [
            ("epoch", self.epoch, record.epoch),
            ("list revision", self.revision, record.revision),
            ("sequence", self.sequence, record.sequence),
        ];
        let (word, says, ours) = pairs
            .into_iter()
            .find(|(_, says, ours)| says.saturating_sub(*ours) > NUMBER_JUMP)?;
        Some(format!(
            "it says {word} {says}, more than {NUMBER_JUMP} above the record's {ours}: not believed"
        ))
    }
}

impl Recovering {
    /// The required machines of the signed list that are waited for, by name.
    #[must_use]
    pub fn awaited(&self, list: &Composed, nodes: &Nodes) -> Vec<Awaited> {
        let required = list.nodes.values();
        let required = required.filter(|n| n.enrolled && n.update_class == UpdateClass::Required);
        let mut out: Vec<Awaited> = required
            .filter_map(|node| {
                let heard = nodes.get(&node.id).and_then(|state| self.answer(state));
                let doubt = heard.map(|report| Numbers::of(report).beyond(self.numbers));
                let awaited = |doubt| Awaited {
                    node: node.id,
                    name: node.name.clone(),
                    doubt,
                };
                match doubt {
                    None => Some(awaited(None)),
                    Some(None) => None,
                    Some(doubt) => Some(awaited(doubt)),
                }
            })
            .collect();
        out.sort_by(|a, b| a.name.cmp(&b.name));
        out
    }

    /// What a machine answered to the look of this recovery.
    fn answer<'n>(&self, state: &'n NodeState) -> Option<&'n Report> {
        let is_answer = |report: &&Report| report.cause == Cause::Look(self.look);
        state.look.as_ref().filter(is_answer)
    }

    /// Whether this machine was heard.
    #[must_use]
    pub fn has_heard(&self, node: NodeId, nodes: &Nodes) -> bool {
        nodes.get(&node).is_some_and(|state| self.answer(state).is_some())
    }

    /// The highest numbers that the record and every machine that spoke says; what is beyond belief is left out.
    #[must_use]
    pub fn highest(&self, nodes: &Nodes) -> Numbers {
        let said = nodes
            .values()
            .flat_map(|state| state.report.iter().chain(&state.look));
        let said = said.map(Numbers::of);
        said.filter(|numbers| numbers.beyond(self.numbers).is_none())
            .fold(self.numbers, Numbers::max)
    }

    /// In a sentence: that nothing is signed, whom it waits for, and what ends it.
    #[must_use]
    pub fn words(&self, awaited: &[Awaited]) -> String {
        let so_far = format!(
            "the database was rebuilt from the record's {} blocks, and nothing is signed",
            self.blocks
        );
        if awaited.is_empty() {
            return format!("{so_far} until the next pass, which goes on");
        }
        let name = |a: &Awaited| match &a.doubt {
            None => a.name.to_string(),
            Some(doubt) => format!("{} ({doubt})", a.name),
        };
        let mut names: Vec<String> = awaited.iter().take(NAMED).map(name).collect();
        if awaited.len() > NAMED {
            names.push(format!("{} more", awaited.len() - NAMED));
        }
        format!(
            "{so_far} before these required machines are heard: {}. `{COMMAND}` goes on without them",
            names.join(", ")
        )
    }
}
