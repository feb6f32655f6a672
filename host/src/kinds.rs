//! The resource kinds: one file each (HK-14).

pub mod probe;
