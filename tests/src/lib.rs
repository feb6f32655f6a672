//! Whole-program tests: a world of their own each.
