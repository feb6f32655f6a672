//! What decides on the host: values and `now` in, values with their reasons out.

pub mod apply_plan;
pub mod commit_confirm;
pub mod inverse;
pub mod observed;
pub mod order;
pub mod outcome;
pub mod record;
pub mod target_path;
