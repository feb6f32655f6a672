//! What acts on the host: I/O without opinions.

pub mod clock;
pub mod link;
