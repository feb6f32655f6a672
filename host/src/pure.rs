//! What decides on the host: values and `now` in, values with their reasons out.

pub mod address;
pub mod admit;
pub mod agent;
pub mod apply_plan;
pub mod capability;
pub mod commit_confirm;
pub mod confirm;
pub mod container_spec;
pub mod duties;
pub mod epoch_choice;
pub mod fetch;
pub mod filter;
pub mod forward;
pub mod inside;
pub mod inverse;
pub mod known_bad;
pub mod link_monitor;
pub mod observed;
pub mod order;
pub mod orders;
pub mod outbound;
pub mod outcome;
pub mod packages;
pub mod pause;
pub mod record;
pub mod report;
#[cfg(test)]
pub(crate) mod sample;
pub mod standing;
pub mod strays;
pub mod takeover;
pub mod target;
pub mod target_path;
pub mod unit;
pub mod unit_file;
