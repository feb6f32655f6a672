//! What decides on the host: values and `now` in, values with their reasons out.

pub mod record;
pub mod target_path;
