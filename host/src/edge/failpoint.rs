//! The places at which a test build can be stopped as by a power cut (feature `failpoints`).
//!
//! `FAILPOINTS="host::disk::act=12*off->return"` in the environment of a program that set up
//! `fail::FailScenario` stops it before the thirteenth act on a disk.

/// All of them; `host::disk::act` is passed before every single act on a disk.
pub const FAILPOINTS: &[&str] = &[
    "host::apply::done",
    "host::apply::opened",
    "host::apply::step",
    "host::disk::act",
    "host::disk::create",
    "host::disk::mkdir",
    "host::disk::rename",
    "host::disk::rename_new",
    "host::disk::rmdir",
    "host::disk::set_meta",
    "host::disk::symlink",
    "host::disk::sync_parent",
    "host::disk::unlink",
    "host::disk::written",
    "host::verdict::given",
];

/// Stops a test build's process: nothing is unwound, nothing is flushed.
#[cfg_attr(
    not(feature = "failpoints"),
    expect(unused_variables, reason = "only test builds can be stopped")
)]
pub(crate) fn cut(name: &str) {
    fail::fail_point!(name, |_| std::process::abort());
}
