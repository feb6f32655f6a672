//! What acts on the host: I/O without opinions.

pub mod accounts;
pub mod agent;
pub mod boot;
pub mod capabilities;
pub mod checked;
pub mod clock;
pub mod command;
pub mod deadline;
pub mod disk;
pub mod enrol;
pub mod failpoint;
pub mod identity;
pub mod journal;
pub mod ledger;
pub mod link;
pub mod machine;
pub mod marks;
pub mod observe;
pub mod orders;
pub mod probe_run;
pub mod reporter;
pub mod scrub;
pub mod sealed;
pub mod system;
pub mod window;
