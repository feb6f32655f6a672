//! The fleet repository that the worlds start from: `examples/quickstart`, signed for by the world's own author.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use toml::Table;

use crate::house::workspace;

/// The example's nodes; the first is its plan's canary.
pub const NODES: [&str; 3] = ["ace", "bea", "cid"];
/// The others.
pub const REST: [&str; 2] = ["bea", "cid"];

/// A plain file that the module brings, in the repository and on a node.
pub const PAGE: Place = Place {
    source: "modules/web/files/motd.txt",
    node: "srv/web/motd.txt",
};

/// The rendered file that the module's probe reads.
pub const CONF: Place = Place {
    source: "modules/web/files/web.conf.j2",
    node: "etc/web/web.conf",
};

/// The text of [`PAGE`] in the example.
pub const FIRST: &str = "This file is the same on every node.\n";

/// Another.
pub const SECOND: &str = "This file has been changed.\n";

/// A text for [`CONF`] that the probe does not bear.
pub const BROKEN: &str = "port = none\n";

/// Where a file's text comes from and where it goes.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Its path in the repository.
    pub source: &'static str,
    /// Its path from the node's root.
    pub node: &'static str,
}

/// Lays the example over what `meshplan init` has made in `work`, whose fleet, branch and authors stay.
///
/// # Errors
/// A file cannot be read or written, or is no TOML.
pub fn lay(work: &Path) -> Result<()> {
    let example = workspace().join("examples/quickstart");
    let made = table(&work.join("fleet.toml"))?;
    let mut fleet = table(&example.join("fleet.toml"))?;
    for own in ["fleet", "branch", "authors"] {
        let value = made
            .get(own)
            .with_context(|| format!("init writes `{own}` into fleet.toml"))?;
        fleet.insert(own.to_owned(), value.clone());
    }
    for room in ["nodes", "modules", "plans", "policy", "checks"] {
        if work.join(room).exists() {
            fs::remove_dir_all(work.join(room))?;
        }
        if example.join(room).exists() {
            copy(&example.join(room), &work.join(room))?;
        }
    }
    fs::write(work.join("fleet.toml"), toml::to_string(&fleet)?).context("fleet.toml can be written")
}

fn table(path: &Path) -> Result<Table> {
    let text = fs::read_to_string(path).with_context(|| format!("{} can be read", path.display()))?;
    toml::from_str(&text).with_context(|| format!("{} is TOML", path.display()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
