//! A delivery in its rows: what is small in its own document, what grows with the fleet in parts beside it. A pass that heard
//! of one machine writes one part of some kilobytes, and reads none.
//!
//! Invariant: what is kept in memory is what the database had at the number of changes that stands beside it. Triggers count
//! the changes of each delivery, whoever makes them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use meshplan_schemas::ident::{CommitId, DeliveryName, NodeId};
use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};

use super::cell::{Cell, cell, int, json};
use super::db::{OverRows, Tx, args};
use super::{Store, StoreError};
use crate::pure::delivery::{Delivery, LeftBehind, Leg, MachineRun, Reached};

/// Into so many parts what is said of each machine is divided, by the last byte of its id: of ids made in a row the first
/// bytes are the same.
const PARTS: usize = 64;

/// A delivery as a list of rows names it: its commit, and how often it was changed.
pub(super) type Row = (String, i64);

/// Open deliveries as they were last read or written, each with how often it was changed by then.
#[derive(Debug, Default)]
pub(super) struct Walking(Mutex<BTreeMap<CommitId, (i64, Delivery)>>);

impl Walking {
    /// The deliveries of these rows, read where memory does not have them as they are.
    pub(super) async fn read(&self, tx: &mut Tx, rows: Vec<Row>) -> Result<Vec<Delivery>, StoreError> {
        let mut all = Vec::with_capacity(rows.len());
        for (commit, changes) in rows {
            let id = cell("deliveries", "commit_id", &commit).parse(&commit)?;
            all.push(match self.at(&id, changes) {
                Some(known) => known,
                None => load(tx, &commit).await?,
            });
        }
        Ok(all)
    }

    /// As [`Walking::read`]; keeps these in memory, and no others.
    pub(super) async fn read_and_keep(
        &self,
        tx: &mut Tx,
        rows: Vec<Row>,
    ) -> Result<Vec<Delivery>, StoreError> {
        let changes: Vec<i64> = rows.iter().map(|(_, changes)| *changes).collect();
        let all = self.read(tx, rows).await?;
        let kept = changes.into_iter().zip(&all);
        *self.lock() = kept.map(|(at, d)| (d.commit.clone(), (at, d.clone()))).collect();
        Ok(all)
    }

    /// Writes a delivery: what differs from what the database has. What is kept of it is taken away meanwhile, so that a
    /// transaction which does not come to its end leaves nothing behind; [`Walking::keep`] follows its end.
    pub(super) async fn put(&self, tx: &mut Tx, delivery: &Delivery) -> Result<i64, StoreError> {
        const HEAD: &str = "INSERT INTO deliveries (commit_id, name, state, order_no, doc) VALUES ($1, $2, $3, $4, $5) \
            ON CONFLICT (commit_id) DO UPDATE SET state = excluded.state, doc = excluded.doc";
        const CLEAR: &str = "DELETE FROM delivery_parts WHERE commit_id = $1";
        const REMOVE: &str = "DELETE FROM delivery_parts WHERE commit_id = $1 AND part = $2";
        const PART: OverRows = OverRows {
            before: "INSERT INTO delivery_parts (commit_id, part, doc)",
            after: "ON CONFLICT (commit_id, part) DO UPDATE SET doc = excluded.doc",
        };
        let commit = delivery.commit.as_str();
        let stored = changes(tx, commit).await?;
        let kept = self.lock().remove(&delivery.commit);
        // A document of before the parts has them inside, so none of them is stored yet.
        let before = kept.filter(|(at, _)| Some(*at) == stored && *at >= 0);
        let before = before.map(|(_, before)| before);
        let head = args![
            commit,
            delivery.name.to_string(),
            delivery.state.word(),
            int(delivery.order)?,
            json(&head(delivery))?,
        ];
        tx.run(HEAD, head).await?;
        if before.is_none() {
            tx.run(CLEAR, args![commit]).await?;
        }
        let former = before.as_ref().map(parts).unwrap_or_default();
        let parts = parts(delivery);
        for name in former.keys().filter(|name| !parts.contains_key(*name)) {
            tx.run(REMOVE, args![commit, name.as_str()]).await?;
        }
        let mut changed = Vec::new();
        for (name, part) in &parts {
            if former.get(name) != Some(part) {
                changed.push(args![commit, name.as_str(), json(part)?]);
            }
        }
        tx.run_over(PART, changed).await?;
        Ok(changes(tx, commit).await?.unwrap_or_default())
    }

    /// Keeps a delivery that was written, with the number that [`Walking::put`] gave.
    pub(super) fn keep(&self, delivery: &Delivery, changes: i64) {
        self.lock()
            .insert(delivery.commit.clone(), (changes, delivery.clone()));
    }

    fn at(&self, commit: &CommitId, changes: i64) -> Option<Delivery> {
        let kept = self.lock();
        let (at, known) = kept.get(commit)?;
        (*at == changes).then(|| known.clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<CommitId, (i64, Delivery)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
    /// The names of deliveries of other repositories' commits.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn names_beside(&self, repo: &str) -> Result<BTreeMap<CommitId, DeliveryName>, StoreError> {
        // No digit of a commit's id comes after `~`.
        const SQL: &str = "SELECT commit_id, name FROM deliveries WHERE name < $1 OR name > $2";
        let bounds = args![format!("{repo}@"), format!("{repo}@~")];
        let rows: Vec<(String, String)> = self.db().rows(SQL, bounds).await?;
        rows.into_iter()
            .map(|(commit, name)| {
                let of = cell("deliveries", "commit_id", &commit);
                Ok((of.parse(&commit)?, DeliveryName(name)))
            })
            .collect()
    }
}

async fn changes(tx: &mut Tx, commit: &str) -> Result<Option<i64>, StoreError> {
    const SQL: &str = "SELECT changes FROM deliveries WHERE commit_id = $1";
    let row: Option<(i64,)> = tx.row(SQL, args![commit]).await?;
    Ok(row.map(|(changes,)| changes))
}

/// One part of a delivery.
#[derive(PartialEq)]
enum Part<'a> {
    /// What it changes.
    Legs(&'a [Leg]),
    /// Who is left behind.
    LeftBehind(&'a BTreeMap<NodeId, LeftBehind>),
    /// Machines to which an order was addressed.
    Reached(BTreeMap<&'a NodeId, &'a Reached>),
    /// Machines of a stage.
    Machines(BTreeMap<&'a NodeId, &'a MachineRun>),
}

impl Serialize for Part<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Legs(legs) => legs.serialize(serializer),
            Self::LeftBehind(nodes) => nodes.serialize(serializer),
            Self::Reached(nodes) => nodes.serialize(serializer),
            Self::Machines(nodes) => nodes.serialize(serializer),
        }
    }
}

const LEGS: &str = "legs";
const LEFT_BEHIND: &str = "left-behind";
const REACHED: &str = "reached";
const MACHINES: &str = "machines";

/// The parts that are not empty, by name: `legs`, `left-behind`, `reached/<part>`, `machines/<stage>/<part>`.
fn parts(delivery: &Delivery) -> BTreeMap<String, Part<'_>> {
    let mut parts = BTreeMap::new();
    if !delivery.legs.is_empty() {
        parts.insert(LEGS.to_owned(), Part::Legs(&delivery.legs));
    }
    if !delivery.left_behind.is_empty() {
        parts.insert(LEFT_BEHIND.to_owned(), Part::LeftBehind(&delivery.left_behind));
    }
    let Some(walk) = &delivery.walk else {
        return parts;
    };
    for (part, nodes) in divided(&walk.reached) {
        parts.insert(format!("{REACHED}/{part}"), Part::Reached(nodes));
    }
    for (stage, run) in walk.stages.iter().enumerate() {
        for (part, nodes) in divided(&run.machines) {
            parts.insert(format!("{MACHINES}/{stage}/{part}"), Part::Machines(nodes));
        }
    }
    parts
}

fn divided<T>(nodes: &BTreeMap<NodeId, T>) -> BTreeMap<usize, BTreeMap<&NodeId, &T>> {
    let mut parts: BTreeMap<usize, BTreeMap<&NodeId, &T>> = BTreeMap::new();
    for (id, of) in nodes {
        let last = id.0.as_bytes().last().copied().map_or(0, usize::from);
        parts.entry(last % PARTS).or_default().insert(id, of);
    }
    parts
}

/// A delivery without its parts.
fn head(delivery: &Delivery) -> Delivery {
    let mut head = delivery.clone();
    head.legs.clear();
    head.left_behind = BTreeMap::new().into();
    if let Some(walk) = &mut head.walk {
        walk.reached = BTreeMap::new().into();
        for stage in &mut walk.stages {
            stage.machines = BTreeMap::new().into();
        }
    }
    head
}

/// A delivery as the database has it.
async fn load(tx: &mut Tx, commit: &String) -> Result<Delivery, StoreError> {
    const HEAD: &str = "SELECT doc FROM deliveries WHERE commit_id = $1";
    const PARTS: &str = "SELECT part, doc FROM delivery_parts WHERE commit_id = $1";
    let place = cell("deliveries", "doc", commit);
    let row: Option<(String,)> = tx.row(HEAD, args![commit.as_str()]).await?;
    let (doc,) = row.ok_or_else(|| place.corrupt("it is missing"))?;
    let mut delivery: Delivery = place.json(&doc)?;
    let parts: Vec<(String, String)> = tx.rows(PARTS, args![commit.as_str()]).await?;
    for (part, doc) in parts {
        let place = cell("delivery_parts", "doc", commit);
        add(&mut delivery, &place, &part, &doc)?;
    }
    Ok(delivery)
}

/// Puts a part back to where it was taken from.
fn add(delivery: &mut Delivery, place: &Cell<'_>, part: &str, doc: &str) -> Result<(), StoreError> {
    fn nodes<T: DeserializeOwned>(place: &Cell<'_>, doc: &str) -> Result<BTreeMap<NodeId, T>, StoreError> {
        place.json(doc)
    }
    let unknown = || place.corrupt(format!("the part `{part}` belongs to nothing of it"));
    match part.split('/').collect::<Vec<_>>()[..] {
        [LEGS] => delivery.legs = place.json(doc)?,
        [LEFT_BEHIND] => delivery.left_behind = nodes::<LeftBehind>(place, doc)?.into(),
        [REACHED, _] => {
            let walk = delivery.walk.as_mut().ok_or_else(unknown)?;
            walk.reached.extend(nodes::<Reached>(place, doc)?);
        }
        [MACHINES, stage, _] => {
            let stage: usize = place.parse(stage)?;
            let walk = delivery.walk.as_mut();
            let run = walk
                .and_then(|walk| walk.stages.get_mut(stage))
                .ok_or_else(unknown)?;
            run.machines.extend(nodes::<MachineRun>(place, doc)?);
        }
        _ => return Err(unknown()),
    }
    Ok(())
}
