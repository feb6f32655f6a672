//! The fleet repo's TOML documents (page 01), as strict types that keep where each value stood.

pub mod fleet;
pub mod plan;

pub use fleet::FleetDoc;
pub use plan::PlanDoc;
