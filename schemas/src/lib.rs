//! The words that reconciler and hosts share.
//!
//! Pure: no I/O, no clock, no async. Everything that is signed, sent or stored by more than one side has its
//! type here; everything that must be judged the same way by both sides (signatures, numbers, targeting,
//! policy sections) has its function here.
//!
//! | module | what it holds | page |
//! | --- | --- | --- |
//! | [`ident`] | names and identities as types | 01 FR-4, 00 |
//! | [`key`] | public keys in their text form | 01, 02 |
//! | [`digest`] | SHA-256 digests and canonical bytes | 02 |
//! | [`finding`] | an error for a person: what, where, why, what next | 01 FR-1 |
//! | [`document`] | the fleet repo's TOML documents | 01, 03, 06 |
//! | [`resource`] | what a node can be asked to have | 06 |
//! | [`policy`] | sections, merge, the effective policy of a node | 01 FR-6, FR-7 |
//! | [`maintenance`] | whether a maintenance window is open, and when that changes | 01 FR-7, 03 DL-17 |
//! | [`envelope`] | DSSE: the signed wrapper of every order | 02 SG-1 |
//! | [`epoch`] [`fleet_list`] [`declaration`] [`timestamp`] [`report`] | the payloads | 02, 06 HR-11 |
//! | [`artifact`] | what travels beside a declaration, by its digest | 06 HK-4, HK-15 |
//! | [`sealed`] | values that one node can open | 02 SG-4 |
//! | [`merkle`] | the tree whose root the fleet list signs | 02 SG-3 |
//! | [`judge`] | takes an order or says every reason why not | 02 SG-5 |
//! | [`lifecycle`] | states and codes of a delivery, states of an epoch on a node | 03 DL-2, 04 EP-1 |
//! | [`line_diff`] | two texts as lines lost and lines new | 03 DL-8, 06 |
//! | [`wire`] [`session`] | messages and the Noise session that carries them | 09 |
//! | [`limits`] | every bound, in one place | |

pub mod artifact;
pub mod declaration;
pub mod digest;
pub mod document;
pub mod envelope;
pub mod epoch;
pub mod finding;
pub mod fleet_list;
pub mod ident;
pub mod judge;
pub mod key;
pub mod lifecycle;
pub mod limits;
pub mod line_diff;
pub mod maintenance;
pub mod merkle;
pub mod policy;
pub mod report;
pub mod resource;
pub mod sealed;
pub mod session;
pub mod timestamp;
pub mod wire;
