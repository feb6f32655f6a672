//! The journal's blocks for what a pass decided (DL-9): one a transition, chained to the newest before it.
//!
//! Made after the orders are signed, as a head that changed authors or reconcilers stands in its note whole (SG-12).

use std::collections::BTreeMap;

use super::act::Act;
use super::note::Block;

/// The trailer that holds a head whole; until the orders are signed its value is the revision.
pub const HEAD: &str = "Head";

/// Writes the blocks of an act's transitions. `heads` has the envelopes that were signed, by revision.
pub fn write(act: &mut Act, term: u64, heads: &BTreeMap<u64, String>) {
    let mut newest = act.counters.block.clone();
    for transition in &mut act.transitions {
        for (key, value) in &mut transition.facts {
            if key == HEAD
                && let Some(envelope) = value.parse().ok().and_then(|revision: u64| heads.get(&revision))
            {
                *value = data_encoding::BASE64.encode(envelope.as_bytes());
            }
        }
        let number = newest.as_ref().map_or(1, |mark| mark.number + 1);
        let block = Block::of_transition(transition, number, newest.map(|mark| mark.digest), term).unsigned();
        newest = Some(block.mark.clone());
        act.blocks.push(block);
    }
    act.counters.block = newest;
}
