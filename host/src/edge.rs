//! What acts on the host: I/O without opinions.

pub mod clock;
pub mod enrol;
pub mod identity;
pub mod link;
