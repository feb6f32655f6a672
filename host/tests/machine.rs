//! The machine: in memory, under power cuts, and on a real disk.

#[path = "machine/crash.rs"]
mod crash;
#[path = "machine/memory.rs"]
mod memory;
#[path = "machine/real.rs"]
mod real;
#[path = "machine/world.rs"]
mod world;
