//! Packages of others that `./test` installs beside the tests, with the Node that runs them.

use std::path::PathBuf;

use anyhow::Result;

use crate::skip::skip;

/// Says where they are.
const FOLDER: &str = "MESHPLAN_TEST_NPM";

/// The folder of a package; none, and it is said that `what` is skipped, where it is not here.
///
/// # Errors
/// `CI=true`, and it is not here.
pub fn package(name: &str, what: &str) -> Result<Option<PathBuf>> {
    let folder = std::env::var_os(FOLDER).map(PathBuf::from);
    let package = folder.map(|folder| folder.join("node_modules").join(name));
    let here = package.filter(|package| package.is_dir());
    if here.is_none() {
        skip(
            what,
            &format!("no {name} (`./test` installs it, {FOLDER} says where)"),
        )?;
    }
    Ok(here)
}

/// The Node that runs them; none, and it is said that `what` is skipped, where it is not here.
///
/// # Errors
/// `CI=true`, and it is not here.
pub fn node(what: &str) -> Result<Option<PathBuf>> {
    let arch = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "x64",
    };
    let package = package(&format!("node-linux-{arch}"), what)?;
    Ok(package.map(|package| package.join("bin/node")))
}
