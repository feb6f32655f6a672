//! What the host asks of the machine and of its own start: boot id, instance, room, load.

use std::path::Path;

/// This host's version.
#[must_use]
pub fn version() -> semver::Version {
    semver::Version::parse(env!("CARGO_PKG_VERSION")).expect("cargo has checked it")
}

/// The kernel's boot id.
///
/// # Errors
/// The kernel does not tell it; without it a window could not be told from one of before a restart.
pub fn boot_id() -> std::io::Result<String> {
    // A test sets it: another machine start without one.
    if cfg!(feature = "failpoints")
        && let Ok(id) = std::env::var("MESHPLAN_TEST_BOOT_ID")
    {
        return Ok(id);
    }
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned())
}

/// A random name of this start of the host.
#[must_use]
pub fn instance() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

/// The launcher's version, when one has started this host.
#[must_use]
pub fn launcher_version() -> Option<String> {
    std::env::var("MESHPLAN_LAUNCHER_VERSION").ok()
}

/// Free bytes of the file system that a folder is on, for who runs the host.
#[must_use]
pub fn disk_free_bytes(folder: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    stat.f_bavail.checked_mul(stat.f_frsize)
}

/// Load over a minute, in hundredths.
#[must_use]
pub fn load_hundredths() -> Option<u64> {
    load(&std::fs::read_to_string("/proc/loadavg").ok()?)
}

fn load(text: &str) -> Option<u64> {
    let (whole, hundredths) = text.split(' ').next()?.split_once('.')?;
    let (whole, hundredths): (u64, u64) = (whole.parse().ok()?, hundredths.parse().ok()?);
    whole.checked_mul(100)?.checked_add(hundredths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_read_in_hundredths() {
        assert_eq!(load("1.05 0.30 0.10 1/200 300\n"), Some(105));
        assert_eq!(load(""), None);
    }
}
