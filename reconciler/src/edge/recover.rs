//! Rebuilds the database from the repository and its record (DL-12): reads both, asks [`crate::pure::recover`] what they
//! say, stores it in one transaction. Nothing is signed here, and nothing decided.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use meshplan_schemas::ident::{CommitId, KeyId};
use meshplan_schemas::key::SigningKey;

use super::health::Health;
use super::repository::{FleetRepo, Made};
use super::store::act::Cursor;
use super::store::recovery::{Left, Rebuilt};
use super::store::{Store, StoreError};
use super::vault::Vault;
use crate::pure::compose::Composed;
use crate::pure::compose::former::Former;
use crate::pure::decide::{Settings, Tree};
use crate::pure::delivery::Delivery;
use crate::pure::in_parts::in_parts;
use crate::pure::news::Commit;
use crate::pure::note::{self, NoteProblem, Proven, Severity};
use crate::pure::parts::Parts;
use crate::pure::recover::fill::{self, Filled};
use crate::pure::recover::waiting::{Awaited, Numbers, Recovering};
use crate::pure::recover::{self, Record, RecordError};
use crate::pure::scope::Scope;
use crate::pure::snapshot::Nodes;

/// So many problems of a record are shown.
const SHOWN: usize = 5;

/// Why nothing was rebuilt.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The record does not prove itself.
    #[error(
        "the record is not whole, so nothing is rebuilt from it: {}. `meshplan notes verify` shows all. If a clone has the \
         whole record, push its refs/notes/mesh-plan; a key of an author that no fleet.toml has any more is given with \
         --key ID=KEY",
        shown(.0)
    )]
    Broken(Vec<NoteProblem>),
    /// It is whole and cannot be followed.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A tree that is needed cannot be had.
    #[error(
        "the tree of {} in which {scope} was accepted cannot be composed: {why}. Without it nobody can say what the machines \
         shall run, so nothing is rebuilt. If the repository has that commit no more, push it from a clone, under any branch, \
         and fetch it into the mirror; if this build is another than the one that delivered it, use that one",
        commit.short()
    )]
    Tree {
        /// Which.
        commit: CommitId,
        /// What was accepted in it.
        scope: Scope,
        /// Why.
        why: String,
    },
    /// A value that cannot be digested.
    #[error("cannot digest what a tree composes to: {0}")]
    Digest(#[from] serde_json::Error),
    /// A value of a secret that cannot be kept.
    #[error("cannot keep the value of a secret: {0}")]
    Close(String),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn shown(problems: &[NoteProblem]) -> String {
    let mut said: Vec<String> = problems.iter().take(SHOWN).map(ToString::to_string).collect();
    if problems.len() > SHOWN {
        said.push(format!("and {} more", problems.len() - SHOWN));
    }
    said.join("; ")
}

/// What a database is rebuilt from.
#[derive(Debug)]
pub struct Sources<'a> {
    /// The notes, all of them.
    pub notes: BTreeMap<CommitId, String>,
    /// What git says of their commits.
    pub commits: BTreeMap<CommitId, Commit>,
    /// Who may have signed.
    pub keys: Vec<(KeyId, SigningKey)>,
    /// What is left of a database.
    pub left: Left,
    /// Who this reconciler is.
    pub settings: &'a Settings,
    /// What closes values of secrets for the store.
    pub vault: &'a Vault,
    /// Who said that nobody is waited for.
    pub forced: Option<String>,
    /// The time.
    pub now: Timestamp,
}

/// What was rebuilt, for people.
#[derive(Debug)]
pub struct Said {
    /// How many blocks.
    pub blocks: usize,
    /// How many deliveries.
    pub deliveries: usize,
    /// How many nodes have assignments.
    pub nodes: usize,
    /// The deliveries that go on once the machines were heard.
    pub walks: Vec<String>,
    /// The highest numbers that are known so far.
    pub numbers: Numbers,
    /// Whom it waits for.
    pub awaited: Vec<Awaited>,
    /// What it waits for, in a sentence.
    pub waits: String,
    /// What could not be rebuilt, a sentence each.
    pub unknown: Vec<String>,
}

/// Rebuilds the database: once the store has answered, `serve` goes on from there.
///
/// # Errors
/// [`RecoverError`]; the database is as it was then.
pub async fn rebuild<R: FleetRepo>(
    mut sources: Sources<'_>,
    store: &Store,
    repository: &mut R,
) -> Result<Said, RecoverError> {
    let unwritten = take_left(&mut sources);
    let proven = prove(&sources.notes, &sources.keys);
    let mut problems = proven.problems(None);
    problems.retain(|p| p.severity() == Severity::Alarm);
    if !problems.is_empty() {
        return Err(RecoverError::Broken(problems));
    }
    let chain = recover::chain(proven.into_blocks());
    let record = recover::read(&chain, &sources.commits, &sources.settings.repo)?;
    let health = Health::default();
    let mut trees: BTreeMap<CommitId, Arc<Composed>> = BTreeMap::new();
    for (commit, scope) in fill::needed(&record) {
        let tree = repository.tree(&made(&record, &commit), &health).await;
        let why = match tree {
            Some(Tree::Composed(tree)) => {
                trees.insert(commit, tree);
                continue;
            }
            Some(Tree::Invalid(why) | Tree::Gone(why)) => why,
            None => health.troubles().join("; "),
        };
        return Err(RecoverError::Tree { commit, scope, why });
    }
    let mut formers = Former::new();
    if let Some(list) = record.accepted.get(&Scope::List) {
        for (module, wanted) in fill::wanted(&record, &trees) {
            let of = (made(&record, &list.commit), made(&record, &wanted.commit));
            let former = repository.former((&of.0, &of.1), &module, &wanted, &health).await;
            formers.extend(former.unwrap_or_default());
        }
    }
    let mut filled = fill::fill(&record, &trees, &formers)?;
    filled.unknown.extend(unknown(&record, &sources));
    let recovering = Recovering {
        since: sources.now,
        // Looks are counted one by one: no reconciler has asked so many.
        look: u64::try_from(sources.now.as_millisecond()).unwrap_or(0),
        blocks: record.blocks.len() as u64,
        numbers: Numbers::from(&record.numbers).max(Numbers::from(&sources.left.counters)),
        forced: sources.forced.clone(),
        partial: filled.partial.clone(),
        walks: record.walks.clone(),
    };
    let cursors = record
        .deliveries
        .last()
        .map_or_else(Vec::new, |newest| cursors(newest, sources.settings));
    let closed = filled.values.iter();
    let closed = closed.map(|(digest, value)| Ok((*digest, sources.vault.close(value)?)));
    let values: BTreeMap<_, _> = closed
        .collect::<Result<_, String>>()
        .map_err(RecoverError::Close)?;
    store
        .rebuild(&Rebuilt {
            record: &record,
            filled: &filled,
            values: &values,
            cursors,
            unwritten: &unwritten,
            recovering: &recovering,
        })
        .await?;
    Ok(say(&record, filled, &recovering, &trees))
}

/// What the tree of a delivery in the record is made of.
fn made(record: &Record, commit: &CommitId) -> Made {
    let delivery = record.deliveries.iter().find(|d| d.commit == *commit);
    Made {
        commit: commit.clone(),
        parts: delivery.map_or_else(|| Parts::alone(commit.clone()), Delivery::parts),
        is_open: delivery.is_none_or(|delivery| !delivery.state.is_final()),
    }
}

/// How far branches were read: to what the newest tree is made of; where that left its branch, to where the branch was then.
fn cursors(newest: &Delivery, settings: &Settings) -> Vec<Cursor> {
    let parts = newest.parts_after();
    let fleet = Cursor {
        repo: settings.repo.clone(),
        branch: settings.branch.clone(),
        commit: parts.fleet.clone(),
    };
    let components = parts.components.iter().map(|part| Cursor {
        repo: part.of.repo.clone(),
        branch: part.of.branch.clone(),
        commit: part.commit.clone(),
    });
    std::iter::once(fleet).chain(components).collect()
}

/// Takes the blocks of a database that was left into the notes; the numbers of those that stand in none.
fn take_left(sources: &mut Sources<'_>) -> BTreeSet<u64> {
    let mut unwritten = BTreeSet::new();
    for (commit, block) in std::mem::take(&mut sources.left.blocks) {
        let text = sources.notes.entry(commit).or_default();
        if let Some(longer) = note::append(text, &block) {
            unwritten.extend(note::blocks(&block).into_iter().map(|b| b.block.number));
            *text = longer;
        }
    }
    unwritten
}

/// Proves the record, on as many threads as there are processors: ten thousand signatures are a second's work for one.
fn prove(notes: &BTreeMap<CommitId, String>, keys: &[(KeyId, SigningKey)]) -> Proven {
    let all: Vec<(&CommitId, &str)> = notes
        .iter()
        .map(|(commit, text)| (commit, text.as_str()))
        .collect();
    Proven::join(in_parts(&all, |some| vec![note::prove(some, keys)]))
}

fn unknown(record: &Record, sources: &Sources<'_>) -> Vec<String> {
    let mut out = Vec::new();
    let gone = record
        .deliveries
        .iter()
        .filter(|d| !sources.commits.contains_key(&d.commit));
    let gone = gone.count();
    if gone > 0 {
        out.push(format!(
            "{gone} commits are in the record and not in the repository any more: their authors are not known"
        ));
    }
    if sources.left.deliveries == 0 {
        out.push(
            "stages of deliveries that are over, reviews, invitations that were not used, and the timelines of rollouts are \
             not in the record: the story of each delivery is"
                .to_owned(),
        );
    }
    out
}

fn say(
    record: &Record,
    filled: Filled,
    recovering: &Recovering,
    trees: &BTreeMap<CommitId, Arc<Composed>>,
) -> Said {
    let list = record
        .accepted
        .get(&Scope::List)
        .and_then(|c| trees.get(&c.commit));
    let nobody = Nodes::new();
    let awaited = match (list, &recovering.forced) {
        (Some(list), None) => recovering.awaited(list, &nobody),
        _ => Vec::new(),
    };
    let nodes: BTreeSet<_> = filled.assignments.keys().map(|(node, _)| *node).collect();
    let walks = record
        .deliveries
        .iter()
        .filter(|d| record.walks.contains_key(&d.commit));
    Said {
        blocks: record.blocks.len(),
        deliveries: record.deliveries.len(),
        nodes: nodes.len(),
        walks: walks.map(|d| format!("{} ({})", d.name, d.state)).collect(),
        numbers: recovering.numbers,
        waits: recovering.words(&awaited),
        awaited,
        unknown: filled.unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: DL-2, DL-12
    #[test]
    fn a_branch_that_was_set_back_under_the_newest_commit_is_read_to_where_it_was_set() {
        let id = |c: &str| -> CommitId { c.repeat(40).parse().unwrap() };
        let settings = Settings {
            fleet: "lab".parse().unwrap(),
            repo: "acme/fleet".to_owned(),
            branch: "main".to_owned(),
            era: 0,
            author: KeyId("author".to_owned()),
            reconcilers: Vec::new(),
            asks_forge: false,
            timestamp_keys: Vec::new(),
        };
        let mut newest = Delivery::announced("acme/fleet", id("b"), 2, Timestamp::UNIX_EPOCH);
        assert_eq!(cursors(&newest, &settings)[0].commit, id("b"));
        newest.parts_after = Some(Parts::alone(id("a")));
        assert_eq!(cursors(&newest, &settings)[0].commit, id("a"));
    }
}
