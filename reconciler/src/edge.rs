//! What acts: I/O without opinions. Each file is one thing of the outside world.

pub mod activation;
pub mod clock;
pub mod enrol;
pub mod git_transport;
pub mod http;
pub mod key_file;
pub mod mesh;
pub mod mirror;
pub mod notes;
pub mod operator;
pub mod outbox;
pub mod signer;
pub mod store;
pub mod webhook;
pub mod worktree;
