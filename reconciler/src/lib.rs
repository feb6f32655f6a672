//! The reconciler: from a merged commit to signed orders, confirmed machines and a note.
//!
//! # The road
//!
//! | stage | from -> to | decided in | carried out in |
//! | --- | --- | --- | --- |
//! | hear | webhook, poll, start-up -> inbox row, wake | [`pure::trigger`] | [`edge::webhook`], [`edge::activation`] |
//! | fetch | remote branch -> mirror, new commits in first-parent order | [`pure::news`] | [`edge::repository`], [`edge::mirror`] |
//! | read | commit -> [`pure::source_tree::SourceTree`] | | [`edge::mirror`] |
//! | parse | tree -> documents, findings | [`pure::parse`] | |
//! | validate | documents -> [`pure::validate::Validated`] or findings | [`pure::validate`] | |
//! | compose | validated -> [`pure::compose::Composed`] | [`pure::compose`] | |
//! | diff | composed against what was accepted -> legs | [`pure::diff`] | |
//! | decide | snapshot, legs, reports, now -> [`pure::act::Act`] | [`pure::decide`] | |
//! | preview | composed before and after -> what a merge would do | [`pure::preview`] | [`cli::preview`] |
//! | sign | act -> envelopes, signed blocks | [`pure::journal`] | [`edge::signer`] |
//! | store | act and envelopes -> one transaction | | [`edge::store`] |
//! | publish | stored orders -> sessions | | [`edge::mesh`] |
//! | hear back | report -> node's row, wake | | [`edge::mesh`], [`edge::store`] |
//! | look on | walk, epochs, reports -> the record of a rollout; one that is over -> an archive | [`pure::rollout`] | [`edge::rollouts`], [`edge::rollout_api`] |
//! | look at pull requests | events, the forge's answers -> previews, people's words, what is due to be said | [`pure::forge`] | [`edge::forge`] |
//! | write down | stored blocks -> `refs/notes/mesh-plan` | [`pure::note`] | [`edge::note_keeper`], [`edge::notes`], [`edge::outbox`] |
//!
//! [`pass`] is the one place that sees every stage. A webhook, a timer, a report or a restart wakes it and tells it
//! nothing: it gathers, decides, acts and records, and a second pass over the same world does nothing. [`simulation`] runs
//! that same pass in a rehearsal.

pub mod cli;
pub mod config;
pub mod edge;
pub mod pass;
pub mod pure;
pub mod simulation;
