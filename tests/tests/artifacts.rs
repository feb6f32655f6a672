//! Archives and bundles through the real programs: from a merge onto three machines, changed, taken back, dropped.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use scenarios::program::clean;
use scenarios::tree::{BROKEN, CONF, NODES};
use scenarios::world::World;

const MODULE: &str = "modules/web/module.toml";
const MORE: &str = "
[[bundle]]
id = \"site\"
path = \"/srv/site\"
source = \"site\"

[[archive]]
id = \"tool\"
path = \"/opt/tool\"
source = \"tool.tar.gz\"
strip = 1
";

/// Bytes that do not pack, so that several pieces are sent.
fn noise(seed: u8) -> Vec<u8> {
    let mut word = u64::from(seed) | 1;
    let mut next = || {
        word = word
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        word.to_be_bytes()[1]
    };
    (0..700_000).map(|_| next()).collect()
}

fn put(world: &World, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
    let path = world.work().join(path);
    fs::create_dir_all(path.parent().context("in a folder")?)?;
    fs::write(&path, bytes)?;
    Ok(fs::set_permissions(&path, fs::Permissions::from_mode(mode))?)
}

/// Packs the tool with the system's own tar.
fn pack(world: &World, text: &str) -> Result<()> {
    let folder = world.folder().join("pack");
    fs::create_dir_all(folder.join("tool-1.0/bin"))?;
    fs::write(folder.join("tool-1.0/bin/tool"), text)?;
    let out = world.work().join("modules/web/tool.tar.gz");
    let mut tar = clean("tar", &folder);
    tar.arg("-C").arg(&folder);
    let packed = tar.arg("-czf").arg(out).arg("tool-1.0").status()?;
    ensure!(packed.success(), "tar says no");
    Ok(())
}

/// The files below a folder: mode and bytes by path.
fn tree(folder: &Path) -> Result<BTreeMap<String, (u32, Vec<u8>)>> {
    let mut all = BTreeMap::new();
    let mut ahead = vec![folder.to_owned()];
    while let Some(here) = ahead.pop() {
        for entry in fs::read_dir(&here).with_context(|| here.display().to_string())? {
            let (path, meta) = entry.map(|e| (e.path(), fs::symlink_metadata(e.path())))?;
            let meta = meta?;
            if meta.is_dir() {
                ahead.push(path);
                continue;
            }
            let name = path.strip_prefix(folder)?.display().to_string();
            all.insert(name, (meta.permissions().mode() & 0o7777, fs::read(&path)?));
        }
    }
    Ok(all)
}

fn files(all: &[(&str, u32, &[u8])]) -> BTreeMap<String, (u32, Vec<u8>)> {
    let of = |(path, mode, bytes): &(&str, u32, &[u8])| ((*path).to_owned(), (*mode, bytes.to_vec()));
    all.iter().map(of).collect()
}

fn everywhere(world: &World, site: &BTreeMap<String, (u32, Vec<u8>)>, tool: &str) -> Result<()> {
    for node in NODES {
        let root = world.root_of(node);
        ensure!(tree(&root.join("srv/site"))? == *site, "{node} has another site");
        ensure!(
            fs::read_to_string(root.join("opt/tool/bin/tool"))? == tool,
            "{node} has another tool"
        );
    }
    Ok(())
}

// holds: HK-4, HK-15, HR-5, HR-6
#[test]
fn a_bundle_and_an_archive_go_to_three_machines_change_come_back_and_are_dropped() -> Result<()> {
    let mut world = World::with_three_hosts("artifacts")?;
    let (one, two) = (noise(1), noise(2));
    let module = fs::read_to_string(world.work().join(MODULE))?;
    put(&world, "modules/web/site/big", &one, 0o644)?;
    put(&world, "modules/web/site/bin/run", b"#!/bin/sh\n", 0o755)?;
    put(&world, "modules/web/site/old", b"old", 0o644)?;
    pack(&world, "one")?;
    let commit = world.merge(MODULE, &format!("{module}{MORE}"))?;
    world.wait_for(&commit, "delivered")?;
    let first = files(&[
        ("big", 0o644, &one),
        ("bin/run", 0o755, b"#!/bin/sh\n"),
        ("old", 0o644, b"old"),
    ]);
    everywhere(&world, &first, "one")?;

    // A preview names what changes; the change is one file that is another, one that is gone, another archive.
    world.git(&["rm", "--quiet", "modules/web/site/old"])?;
    put(&world, "modules/web/site/bin/run", b"#!/bin/sh\nexit\n", 0o755)?;
    pack(&world, "two")?;
    let commit = world.merge("modules/web/site/new", "new")?;
    world.wait_for(&commit, "delivered")?;
    let second = files(&[
        ("big", 0o644, &one),
        ("bin/run", 0o755, b"#!/bin/sh\nexit\n"),
        ("new", 0o644, b"new"),
    ]);
    everywhere(&world, &second, "two")?;

    // The canary does not bear what comes with it: it goes back there, and nobody else ever has it.
    put(&world, "modules/web/site/big", &two, 0o644)?;
    pack(&world, "three")?;
    let good = fs::read_to_string(world.work().join(CONF.source))?;
    let commit = world.merge(CONF.source, BROKEN)?;
    world.wait_for(&commit, "rolled-back")?;
    world.poll("the canary has the former one", |world| {
        Ok(everywhere(world, &second, "two").is_ok())
    })?;

    // The mode alone is a change too; and a reconciler that lost its artifacts has them again from its mirror.
    world.kill_reconciler()?;
    fs::remove_dir_all(world.state().join("artifacts"))?;
    world.serve()?;
    put(&world, "modules/web/site/new", b"new", 0o755)?;
    let commit = world.merge(CONF.source, &good)?;
    world.wait_for(&commit, "delivered")?;
    let third = files(&[
        ("big", 0o644, &two),
        ("bin/run", 0o755, b"#!/bin/sh\nexit\n"),
        ("new", 0o755, b"new"),
    ]);
    everywhere(&world, &third, "three")?;

    // Dropped: the bundle goes, the archive stays and says so.
    world.git(&[
        "rm",
        "--quiet",
        "-r",
        "modules/web/site",
        "modules/web/tool.tar.gz",
    ])?;
    let commit = world.merge(MODULE, &module)?;
    world.wait_for(&commit, "delivered")?;
    for node in NODES {
        let root = world.root_of(node);
        ensure!(!root.join("srv/site").exists(), "the bundle is left on {node}");
        ensure!(fs::read_to_string(root.join("opt/tool/bin/tool"))? == "three");
        let status = world.host(node, &["status"])?.ok()?;
        ensure!(status.contains("/opt/tool stays for now: an archive"), "{status}");
    }
    Ok(())
}
