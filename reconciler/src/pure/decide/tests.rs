//! The engine in a small world: a snapshot that acts are applied to, and hosts that answer as a test says.

mod answers;
mod guards;
mod host;
mod proven;
mod rollouts;
mod sizes;
mod stories;
mod traps;
mod windows;
mod world;
