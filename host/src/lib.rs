//! The host: verifies orders itself, applies them behind commit-confirm, rolls back what fails, reports.
//!
//! # The safety argument
//!
//! After a power cut at any line the machine is, once the host has started again, in one of two states: that of the
//! last confirmed order, or that of the new one; each whole. Why:
//!
//! 1. **Deciding touches nothing.** [`pure::apply_plan`] makes the whole plan from what was asked, the ledger and
//!    what stands there. What it cannot tell, it does not call "nothing". What is not in the ledger is never removed.
//! 2. **Room first.** Space and files for the whole change, the before images and the book are asked for before
//!    anything is touched; a reserve keeps room to record a failure.
//! 3. **The way back stands before the first step.** Before images and the undo journal ([`pure::inverse`]) are
//!    written into `window.new/`, each synced, then its folder, and only then renamed to `window/`, and the state
//!    folder synced ([`edge::window`]). A cut before that: no window, no change. After it: all that it takes to go
//!    back. There is nothing between, as a rename is one act.
//! 4. **Each step is whole.** A file is written beside, synced, renamed over, its folder synced
//!    ([`edge::disk::atomic`]); links likewise. A target is never half.
//! 5. **Going back may be repeated.** Each act of the journal puts one path into the state that it was found in, and
//!    looks first. A cut while going back is followed by going back.
//! 6. **One file decides.** `window/verdict.json` is written beside, synced, and renamed where nothing may stand:
//!    the first who succeeds has decided. A start that finds a window finishes the verdict that is there; without
//!    one it goes back, except from a window of this very boot in which everything is done: that one is waited for
//!    ([`pure::commit_confirm::at_start`]).
//! 7. **The ledger changes after the verdict**, whole, from the copy that stands in the window; the window goes
//!    after the ledger. So the ledger never speaks of what was not confirmed. One that is empty, cut or noise is
//!    "unknown": nothing is removed on its word ([`edge::ledger`]).
//! 8. **Drift** is put right without a window: each step is whole, and both what stood there and what is asked are
//!    states that the confirmed order allows for.
//!
//! 9. **Somebody is there when the host is not.** Before the first change a timer of the service manager is armed
//!    ([`edge::deadline`]) that at the deadline has `meshplan-launcher revert` take the window back; a host that lives
//!    and hangs is ended first. It decides by the same file, walks the same journal, and shares no code with the host.
//!
//! `tests/machine/crash.rs` tries it: every prefix of the acts of an apply, with what was not synced lost in every
//! combination, then the same again while the first cut is recovered from; `tests/machine/killed.rs` kills a real
//! process before each act; `launcher/tests/revert.rs` has host and launcher take the same changes back.
//!
//! What it does not hold against: a disk that says "synced" and is not; another program that writes the same paths
//! between the look and the step.

pub mod cli;
pub mod edge;
pub mod kinds;
pub mod pure;
