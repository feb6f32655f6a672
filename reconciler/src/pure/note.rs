//! (to come)
use super::act::UnsignedBlock;
use super::delivery::Transition;
use meshplan_schemas::timestamp::BlockMark;
pub fn block_of(t: &Transition, prev: Option<&BlockMark>, term: u64) -> UnsignedBlock {
    let text = format!("{:?} {:?} {term}", t, prev);
    UnsignedBlock {
        mark: BlockMark {
            number: prev.map_or(1, |p| p.number + 1),
            digest: meshplan_schemas::digest::Digest::of(text.as_bytes()),
        },
        commit: t.commit.clone(),
        text,
    }
}
