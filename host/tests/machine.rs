//! The machine: in memory, under power cuts, and on a real disk.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "in a test a panic is the verdict, and what is skipped is said"
)]

#[path = "machine/container_cuts.rs"]
mod container_cuts;
#[path = "machine/container_runs.rs"]
mod container_runs;
#[path = "machine/containers.rs"]
mod containers;
#[path = "machine/crash.rs"]
mod crash;
#[path = "machine/daemon.rs"]
mod daemon;
#[path = "machine/dead_man.rs"]
mod dead_man;
#[path = "machine/engines.rs"]
mod engines;
#[path = "machine/filters.rs"]
mod filters;
#[path = "machine/filters_behind_windows.rs"]
mod filters_behind_windows;
#[path = "machine/forward.rs"]
mod forward;
#[cfg(feature = "failpoints")]
#[path = "machine/killed.rs"]
mod killed;
#[path = "machine/memory.rs"]
mod memory;
#[path = "machine/packages.rs"]
mod packages;
#[path = "machine/processes.rs"]
mod processes;
#[path = "machine/real.rs"]
mod real;
#[path = "machine/sealed.rs"]
mod sealed;
#[path = "machine/strays.rs"]
mod strays;
#[path = "machine/takeovers.rs"]
mod takeovers;
#[path = "machine/things.rs"]
mod things;
#[path = "machine/trees.rs"]
mod trees;
#[path = "machine/trouble.rs"]
mod trouble;
#[path = "machine/world.rs"]
mod world;
