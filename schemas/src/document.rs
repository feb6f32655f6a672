//! The fleet repo's TOML documents (page 01), as strict types that keep where each value stood.
//!
//! `*File` is a document as it is written; `*Doc` is what the stages after validation work with. Published as JSON
//! Schemas by [`published`].

pub mod calendar;
pub mod checks;
pub mod fleet;
pub mod module;
pub mod node;
pub mod pages;
mod plain;
pub mod plan;
pub mod policy;
pub mod published;
pub mod read;
pub mod reference;
pub mod retired;
pub mod rotations;
pub mod scalar;
pub mod signers;
pub mod texts;
mod toml_1_0;
pub mod var;
pub(crate) mod words;

pub use checks::ChecksFile;
pub use fleet::{FleetDoc, FleetFile};
pub use module::ModuleFile;
pub use node::NodeFile;
pub use plan::{PlanDoc, PlanFile};
pub use policy::PolicyFile;
pub use retired::RetiredFile;
pub use rotations::RotationsFile;
