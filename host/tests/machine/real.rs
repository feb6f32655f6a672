//! On a real disk.
