//! What is wrong with what comes in, and the message that a person reads about it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use data_encoding::BASE64;
use scenarios::program::{Said, clean};
use scenarios::skip::skip;
use scenarios::tree::{FIRST, PAGE, SECOND};
use scenarios::world::World;
use serde_json::Value;

// holds: FG-2
#[test]
fn a_webhook_that_is_not_signed_with_the_secret_is_refused_and_moves_nothing() -> Result<()> {
    let mut world = World::with_three_hosts("hook")?;
    world.configure_forge("poll_secs", 3600)?;
    world.kill_reconciler()?;
    world.serve()?;
    let commit = world.merge(PAGE.source, SECOND)?;
    let body = world.push_event(&commit);
    ensure!(world.webhook(&body, "one", Some("another secret"))? == 401);
    ensure!(
        world
            .http(
                "POST",
                "/hooks/bare",
                &[("Content-Type", "application/json")],
                &body
            )?
            .0
            == 401
    );
    ensure!(
        world.meshplan_json(&["deliveries", "show", &commit]).is_err(),
        "a forged webhook was believed"
    );
    ensure!(
        (200..300).contains(&world.webhook(&body, "one", None)?),
        "the good one is refused after the forged"
    );
    world.wait_for(&commit, "delivered")?;
    Ok(())
}

// holds: B59
#[test]
fn whoever_comes_from_elsewhere_reads_nothing_of_the_fleet_at_the_address_that_everybody_reaches()
-> Result<()> {
    let world = World::with_three_hosts("quiet")?;
    let paths = [
        "/",
        "/metrics",
        "/healthz",
        "/health",
        "/status",
        "/debug/pprof/",
        "/api/nodes",
        "/api/stats",
        "/api/deliveries",
        "/api/config/rollout",
        "/api/events",
        "/mesh",
        "/hooks",
        "/hooks/forgejo",
        "/openapi.json",
    ];
    for path in paths {
        let (status, answer) = world.http("GET", path, &[("X-Forwarded-For", "203.0.113.7")], b"")?;
        ensure!((400..500).contains(&status), "{path}: {status} {answer}");
        for word in ["ace", "bea", "cid", "acme", "quiet", "web", "meshplan"] {
            ensure!(!answer.contains(word), "{path} names {word}: {answer}");
        }
    }
    Ok(())
}

// holds: FG-3
#[test]
fn a_repository_that_is_not_there_is_named_and_taken_up_when_it_comes() -> Result<()> {
    let mut world = World::new("missing")?;
    let (there, away) = (world.forge.folder("fleet.git"), world.forge.folder("away.git"));
    fs::rename(&there, &away)?;
    world.serve()?;
    let trouble = trouble(&mut world, "fleet.git")?;
    for word in ["no git repository", "404", "forge.url"] {
        ensure!(trouble.contains(word), "the trouble lacks `{word}`: {trouble}");
    }
    fs::rename(&away, &there)?;
    let head = world.head()?;
    world.poll("the first commit is known", |w| {
        Ok(w.meshplan(&["deliveries", "show", &head])?.code == Some(0))
    })?;
    world.poll("the trouble is over", |w| {
        Ok(!w.meshplan(&["fleet", "status"])?.ok()?.contains("fleet.git"))
    })?;
    Ok(())
}

#[test]
fn an_address_that_is_no_repository_is_called_so() -> Result<()> {
    let mut world = World::new("nogit")?;
    // The reconciler's own status page: HTTP, and no git.
    let address = format!("http://{}", world.address());
    world.configure_forge("url", address.clone())?;
    world.serve()?;
    let trouble = trouble(&mut world, &address)?;
    ensure!(trouble.contains("git"), "{trouble}");
    Ok(())
}

/// The line of `fleet status` that has `word`, once it is there.
fn trouble(world: &mut World, word: &str) -> Result<String> {
    let mut line = None;
    world.poll(&format!("`fleet status` tells of {word}"), |w| {
        let status = w.meshplan(&["fleet", "status"])?.ok()?;
        line = status.lines().find(|l| l.contains(word)).map(str::to_owned);
        Ok(line.is_some())
    })?;
    line.context("just seen")
}

// holds: FR-1
#[test]
fn a_plan_that_names_a_node_that_is_not_there_is_refused_at_its_line() -> Result<()> {
    let mut world = World::new("typo")?;
    world.serve()?;
    let plan = fs::read_to_string(world.work().join("plans/default.toml"))?;
    let line = plan
        .lines()
        .position(|l| l.starts_with("nodes = "))
        .context("the plan names nodes")?
        + 1;
    let commit = world.merge("plans/default.toml", &plan.replace("\"ace\"", "\"ase\""))?;
    let work = world.work();
    let checked = world
        .meshplan(&["check", &work.to_string_lossy()])?
        .refused_with(1)?;
    let shown = world.wait_for(&commit, "failed")?;
    ensure!(shown["code"] == "invalid", "{shown:#}");
    let place = format!("plans/default.toml:{line}");
    for word in [&place, "ase", "ace"] {
        ensure!(checked.contains(word), "the check lacks `{word}`:\n{checked}");
    }
    let told = world.meshplan(&["deliveries", "show", &commit])?.ok()?;
    ensure!(
        told.contains(&place) && told.contains("ase"),
        "the delivery does not tell:\n{told}"
    );
    Ok(())
}

// holds: FR-1
#[test]
fn of_a_commit_with_rotations_which_nobody_walks_yet_no_host_is_sent_anything() -> Result<()> {
    let mut world = World::with_three_hosts("rotations")?;
    let rotation = "[[rotations]]\nid = \"r\"\nkind = \"reconciler_transport\"\npublish_at = 1791900000\n\
                    activate_at = 1791903600\n";
    world.write(PAGE.source, SECOND)?;
    let refused = world.merge("rotations.toml", rotation)?;
    let work = world.work();
    let checked = world.meshplan(&["check", &work.to_string_lossy()])?.ok()?;
    let shown = world.wait_for(&refused, "failed")?;
    ensure!(shown["code"] == "invalid", "{shown:#}");
    let told = world.meshplan(&["deliveries", "show", &refused])?.ok()?;
    for said in [&checked, &told] {
        ensure!(said.contains("rotations.toml:2:6"), "no place: {said}");
        ensure!(
            said.contains("rotations are checked, and not walked by this version"),
            "no reason: {said}"
        );
    }
    let mut was = 0;
    for node in scenarios::tree::NODES {
        was = was.max(sequence(&newest_declaration(&world.root_of(node))?)?);
    }
    ensure!(
        world.at("ace", PAGE)? == FIRST,
        "the page of a refused commit is on a node"
    );
    // Without them the same page is an order; had the refused commit been one, this would change nothing.
    fs::remove_file(work.join("rotations.toml"))?;
    let taken = world.merge(PAGE.source, SECOND)?;
    world.wait_for(&taken, "delivered")?;
    ensure!(world.at("ace", PAGE)? == SECOND);
    // Numbers are the fleet's, and the canary has the first of the next delivery.
    let is = sequence(&newest_declaration(&world.root_of("ace"))?)?;
    ensure!(is == was + 1, "a declaration was signed between {was} and {is}");
    Ok(())
}

/// The number of a signed declaration.
fn sequence(envelope: &str) -> Result<u64> {
    let envelope: Value = serde_json::from_str(envelope)?;
    let payload = BASE64.decode(envelope["payload"].as_str().unwrap_or_default().as_bytes())?;
    let payload: Value = serde_json::from_slice(&payload)?;
    payload["sequence"]
        .as_u64()
        .context("a declaration has a sequence")
}

// holds: SG-5
#[test]
fn an_old_order_a_changed_one_and_one_of_another_fleet_are_refused_on_the_node_with_the_reason() -> Result<()>
{
    let mut world = World::with_three_hosts("judge")?;
    let kept = world.folder().join("old.json");
    fs::write(&kept, newest_declaration(&world.root_of("ace"))?)?;
    let verify = |world: &World, file: &Path| world.host("ace", &["verify", &file.to_string_lossy()]);
    verify(&world, &kept)?
        .ok()
        .context("the order in force verifies")?;

    let mut changed: Value = serde_json::from_slice(&fs::read(&kept)?)?;
    let mut payload = BASE64.decode(changed["payload"].as_str().context("a payload")?.as_bytes())?;
    let middle = payload.len() / 2;
    payload[middle] ^= 1;
    changed["payload"] = BASE64.encode(&payload).into();
    let flipped = world.folder().join("flipped.json");
    fs::write(&flipped, changed.to_string())?;
    let said = verify(&world, &flipped)?.refused_with(4)?;
    ensure!(said.contains("does not verify"), "{said}");

    let commit = world.merge(PAGE.source, SECOND)?;
    world.wait_for(&commit, "delivered")?;
    let said = verify(&world, &kept)?.refused_with(4)?;
    ensure!(said.contains("older than"), "{said}");

    let mut other = World::with_three_hosts("stranger")?;
    let commit = other.merge(PAGE.source, SECOND)?;
    other.wait_for(&commit, "delivered")?;
    let foreign = world.folder().join("foreign.json");
    fs::write(&foreign, newest_declaration(&other.root_of("ace"))?)?;
    let said = verify(&world, &foreign)?.refused_with(4)?;
    ensure!(
        said.contains("no author of this fleet") || said.contains("does not verify"),
        "{said}"
    );
    Ok(())
}

// holds: HR-15
#[test]
fn a_truncated_ledger_means_unknown_and_nothing_is_removed_on_its_word() -> Result<()> {
    let mut world = World::with_three_hosts("ledger")?;
    world.kill_host("ace")?;
    let root = world.root_of("ace");
    let ledgers = named(&root, "ledger")?;
    ensure!(
        !ledgers.is_empty(),
        "no file below {} is called a ledger",
        root.display()
    );
    for ledger in &ledgers {
        fs::write(ledger, "")?;
    }
    world.run_host("ace")?;
    let commit = world.merge(PAGE.source, SECOND)?;
    world.poll("the host goes on, and nothing is missing meanwhile", |w| {
        Ok(w.at("ace", PAGE)? == SECOND)
    })?;
    world.wait_for(&commit, "delivered")?;
    Ok(())
}

// holds: HR-14
#[test]
fn a_full_disk_fails_the_apply_before_a_target_is_touched_and_is_reported() -> Result<()> {
    let mut world = World::new("full")?;
    let Some(disk) = SmallDisk::mount(&world.root_of("ace"), "4m")? else {
        return Ok(());
    };
    world.serve()?;
    for node in scenarios::tree::NODES {
        world.enrol(node)?;
        world.run_host(node)?;
    }
    let head = world.head()?;
    world.wait_for(&head, "delivered")?;
    disk.fill()?;
    let commit = world.merge(PAGE.source, &SECOND.repeat(20_000))?;
    let mut pages = Vec::new();
    world.poll("it is taken back", |w| {
        pages.push(w.at("ace", PAGE)?);
        Ok(w.meshplan_json(&["deliveries", "show", &commit])
            .is_ok_and(|s| s["state"] == "rolled-back"))
    })?;
    ensure!(
        pages.iter().all(|page| page == FIRST),
        "the page was touched on a full disk"
    );
    let why = world.meshplan(&["deliveries", "why", &commit])?.ok()?;
    ensure!(
        why.contains("space") || why.contains("disk"),
        "the reason is not told: {why}"
    );
    world.kill_host("ace")?;
    drop(disk);
    Ok(())
}

/// The newest signed declaration below a host's root, whatever the host calls its files.
fn newest_declaration(root: &Path) -> Result<String> {
    let mut found = Vec::new();
    for path in named(root, "")? {
        // The host keeps a sum beside the envelope: what is looked for is the JSON in the file.
        let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
        let Some(json) = text.find('{').and_then(|start| text.get(start..)) else {
            continue;
        };
        let Some(Ok(envelope)) = serde_json::Deserializer::from_str(json)
            .into_iter::<Value>()
            .next()
        else {
            continue;
        };
        if envelope["payloadType"]
            .as_str()
            .is_some_and(|t| t.contains("declaration"))
        {
            let payload = BASE64.decode(envelope["payload"].as_str().unwrap_or_default().as_bytes())?;
            let payload: Value = serde_json::from_slice(&payload)?;
            found.push((payload["sequence"].as_u64(), envelope.to_string()));
        }
    }
    let newest = found
        .into_iter()
        .max()
        .context("the host keeps the declaration that it has")?;
    Ok(newest.1)
}

/// The files below `root` whose name contains `word`.
fn named(root: &Path, word: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else if entry.file_type()?.is_file() && entry.file_name().to_string_lossy().contains(word) {
                found.push(entry.path());
            }
        }
    }
    Ok(found)
}

/// A file system of a few megabytes, gone when dropped.
struct SmallDisk {
    place: PathBuf,
}

impl SmallDisk {
    /// None, with a line that says so, where this machine does not let us mount; with `CI=true` that is a failure.
    fn mount(place: &Path, size: &str) -> Result<Option<Self>> {
        fs::create_dir_all(place)?;
        let mut mount = clean("mount", place);
        mount
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(place);
        let said = Said::of(mount)?;
        if said.code == Some(0) {
            return Ok(Some(Self {
                place: place.to_owned(),
            }));
        }
        skip(
            "a full disk",
            &format!("no small file system can be mounted here: {said}"),
        )?;
        Ok(None)
    }

    /// Writes until not a byte is left.
    fn fill(&self) -> Result<()> {
        use std::io::Write as _;
        let mut file = fs::File::create(self.place.join("filler"))?;
        let mut chunk = vec![0_u8; 64 * 1024];
        while !chunk.is_empty() {
            match file.write(&chunk) {
                Ok(_) => {}
                Err(e) if e.kind() == std::io::ErrorKind::StorageFull => chunk.truncate(chunk.len() / 2),
                Err(e) => return Err(e).context("the filler can be written"),
            }
        }
        Ok(())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A host that still has files open there must not keep the test from ending.
        Command::new("umount")
            .arg("--lazy")
            .arg(&self.place)
            .status()
            .ok();
    }
}
