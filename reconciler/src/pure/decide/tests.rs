//! The engine in a small world: a snapshot that acts are applied to, and hosts that answer as a test says.

mod answers;
mod apart;
mod approvals;
mod aside;
mod beside;
mod budget;
mod checks;
mod classes;
mod freeze;
mod guards;
mod host;
mod model;
mod proven;
mod recovering;
mod reversal;
mod rewritten;
mod rollouts;
mod secrets;
mod signed;
mod sizes;
mod stories;
mod traps;
mod trees;
mod waves;
mod windows;
mod world;
