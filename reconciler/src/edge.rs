//! What acts: I/O without opinions. Each file is one thing of the outside world.

pub mod activation;
pub mod admission;
pub mod age_file;
pub mod clock;
pub mod desk;
pub mod enrol;
pub mod foundation;
pub mod git_server;
pub mod git_transport;
pub mod health;
pub mod http;
pub mod key_file;
pub mod mesh;
pub mod mirror;
pub mod note_keeper;
pub mod notes;
pub mod operator;
pub mod outbox;
pub mod repository;
pub mod signer;
pub mod status_page;
pub mod store;
pub mod tree_reader;
pub mod webhook;
pub mod worktree;
