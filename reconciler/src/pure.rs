//! What decides. Values and `now` in, values with their reasons out: no clock, randomness, async or I/O.
//! A test reads the `use` lines of this folder and refuses `crate::edge`, `tokio`, `sqlx`, `git2`, `axum`, `reqwest`.

pub mod act;
pub mod annotations;
pub mod api;
pub mod assertions;
pub mod by_node;
pub mod compose;
pub mod decide;
pub mod delivery;
pub mod diff;
pub mod enrol;
pub mod events;
pub mod example;
pub mod freshness;
mod guard;
pub mod hearing;
pub mod import;
pub mod journal;
pub mod lint;
pub mod news;
pub mod node_view;
pub mod note;
pub mod page;
pub mod parse;
pub mod preview;
pub mod rollout;
pub mod scope;
pub mod secret_digest;
pub mod secrets;
pub mod shared;
pub mod snapshot;
pub mod source_tree;
pub mod template;
pub mod trigger;
pub mod validate;
