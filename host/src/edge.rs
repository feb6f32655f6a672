//! What acts on the host: I/O without opinions.

pub mod accounts;
pub mod clock;
pub mod disk;
pub mod enrol;
pub mod failpoint;
pub mod identity;
pub mod ledger;
pub mod link;
pub mod machine;
pub mod observe;
pub mod window;
