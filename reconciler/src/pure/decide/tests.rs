//! The engine in a small world: a snapshot that acts are applied to, and hosts that answer as a test says.

mod answers;
mod apart;
mod approvals;
mod beside;
mod budget;
mod classes;
mod freeze;
mod guards;
mod host;
mod model;
mod proven;
mod reversal;
mod rewritten;
mod rollouts;
mod secrets;
mod sizes;
mod stories;
mod traps;
mod trees;
mod waves;
mod windows;
mod world;
