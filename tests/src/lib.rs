//! Whole-program tests: a world of their own each.

pub mod fleet_generator;
