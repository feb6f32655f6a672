//! The program as it is started: without a reconciler, and with one that says what a test tells it. That this test is
//! here makes cargo build `meshplan-host` before any test of the workspace runs: the whole-program tests start it.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in a test a panic is the verdict"
)]

#[path = "program/alone.rs"]
mod alone;
#[path = "program/artifacts.rs"]
mod artifacts;
#[path = "program/linked.rs"]
mod linked;
#[path = "program/pausing.rs"]
mod pausing;
#[path = "program/reconciler.rs"]
mod reconciler;
#[path = "program/world.rs"]
mod world;
