//! A component: commits of another repository, delivered to machines by a plan of their own (DL-1).

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use anyhow::{Result, ensure};
use scenarios::component::Component;
use scenarios::program::{Said, clean};
use scenarios::tree::{NODES, PAGE, SECOND};
use scenarios::world::World;

const POLICY: &str = "policy/base.toml";
const MODULE: &str = "modules/web/module.toml";
const BUNDLE: &str = "
[[bundle]]
id = \"site\"
path = \"/srv/site\"
source = \"component\"

[[probe]]
id = \"site-works\"
command = [\"sh\", \"-c\", \"! grep -q broken \\\"$MESHPLAN_ROOT/srv/site/index.html\\\"\"]
timeout_secs = 5
";
const PLAN: &str = "
covers = [\"component:acme/site\"]

[[stage]]
name = \"first\"
nodes = [\"bea\"]
healthy = { times = 1, every_secs = 1, within_secs = 30 }
failed = \"roll-back\"

[[stage]]
name = \"rest\"
rest = true
healthy = { times = 1, every_secs = 1, within_secs = 30 }
";

fn everywhere(world: &World, text: &str) -> Result<()> {
    for node in NODES {
        let is = world.on_node(node, "srv/site/index.html")?;
        ensure!(is == text, "{node} has {is:?} instead of {text:?}");
    }
    Ok(())
}

/// The note at the forge; the fleet's repository has those of components' commits too.
fn note(world: &World, commit: &str) -> Result<String> {
    let folder = world.forge.folder("fleet.git");
    let mut notes = clean("git", &folder);
    notes.arg("-C").arg(&folder);
    notes.args(["notes", "--ref=mesh-plan", "show", commit]);
    Said::of(notes)?.ok()
}

fn story(world: &World, commit: &str) -> Result<String> {
    world.meshplan(&["deliveries", "show", commit])?.ok()
}

// holds: DL-1, DL-3, DL-9, DL-12, FR-8
#[test]
fn commits_of_a_component_are_delivered_by_its_plan_taken_back_left_out_and_recovered() -> Result<()> {
    let mut world = World::with_three_hosts("components")?;
    let site = Component::new(&world)?;
    site.write("index.html", "one")?;
    site.write("run", "#!/bin/sh\n")?;
    fs::set_permissions(site.work().join("run"), fs::Permissions::from_mode(0o755))?;
    let first = site.push("the site")?;

    // The tree names it before the configuration allows it: the module is left out with the reason, what runs stays.
    let fleet = fs::read_to_string(world.work().join("fleet.toml"))?;
    let module = fs::read_to_string(world.work().join(MODULE))?;
    let named = "\n[[components]]\nrepo = \"acme/site\"\nbranch = \"main\"\nmodule = \"web\"\n";
    fs::write(world.work().join("fleet.toml"), format!("{fleet}{named}"))?;
    fs::write(world.work().join("plans/site.toml"), PLAN)?;
    let commit = world.merge(MODULE, &format!("{module}{BUNDLE}"))?;
    world.wait_for(&commit, "delivered")?;
    let said = story(&world, &commit)?;
    ensure!(
        said.contains("does not allow the component acme/site (main)"),
        "{said}"
    );
    ensure!(world.at("ace", PAGE).is_ok(), "what runs is gone");

    // Allowed: its tip is delivered, by its own plan, and the record tells it on the component's own commit.
    world.kill_reconciler()?;
    Component::allow(&world)?;
    world.serve()?;
    world.wait_for(&first, "delivered")?;
    everywhere(&world, "one")?;
    for node in NODES {
        let mode = fs::metadata(world.root_of(node).join("srv/site/run"))?
            .permissions()
            .mode();
        ensure!(mode & 0o777 == 0o755, "{node}: {mode:o}");
    }
    let said = story(&world, &first)?;
    ensure!(
        said.contains(&format!("acme/site@{}", first.get(..12).unwrap_or_default()))
            && said.contains("the plan site walks it"),
        "{said}"
    );
    world.poll("the record is pushed", |world| {
        Ok(note(world, &first).is_ok_and(|note| note.contains(&format!("Fleet-Commit: {commit}"))))
    })?;

    // The next one breaks its first machine: it goes back there, nobody else had it, and commits of the fleet go on without.
    site.write("index.html", "broken")?;
    let broken = site.push("a mistake")?;
    world.wait_for(&broken, "rolled-back")?;
    world.poll("the first machine has the former site", |world| {
        Ok(everywhere(world, "one").is_ok())
    })?;
    let policy = fs::read_to_string(world.work().join(POLICY))?;
    let commit = world.merge(POLICY, &policy.replace("= 2000", "= 900"))?;
    world.wait_for(&commit, "delivered")?;
    let said = story(&world, &commit)?;
    ensure!(said.contains("module:web skipped (known-bad since"), "{said}");
    everywhere(&world, "one")?;

    // One that may not be carried is no order, and no fault of the fleet's own commits: they leave the module out.
    symlink("index.html", site.work().join("link"))?;
    let linked = site.push("a link")?;
    world.wait_for(&linked, "failed")?;
    let said = story(&world, &linked)?;
    ensure!(said.contains("link is a symbolic link"), "{said}");
    let commit = world.merge(PAGE.source, SECOND)?;
    world.wait_for(&commit, "delivered")?;
    ensure!(world.at("ace", PAGE)? != SECOND, "the module was to be left out");
    fs::remove_file(site.work().join("link"))?;
    site.write("index.html", "two")?;
    let mended = site.push("mended")?;
    world.wait_for(&mended, "delivered")?;
    everywhere(&world, "two")?;
    ensure!(
        world.at("cid", PAGE)? == SECOND,
        "what waited with the module goes with it"
    );

    // Database and mirror are lost: what trees are made of stands in the record.
    world.poll("the note is written to its end", |w| {
        Ok(note(w, &mended).is_ok_and(|note| note.contains("-> delivered (done)")))
    })?;
    world.kill_reconciler()?;
    for name in ["meshplan.db", "meshplan.db-wal", "meshplan.db-shm"] {
        let path = world.state().join(name);
        if path.exists() {
            fs::remove_file(path)?;
        }
    }
    fs::remove_dir_all(world.state().join("mirror"))?;
    // The repository of one that no tree needs is gone: that is said, and hinders nothing.
    let url = world.forge.url("gone.git");
    world.configure(|config| {
        let mut component = toml::Table::new();
        component.insert("repo".to_owned(), "acme/gone".into());
        component.insert("url".to_owned(), url.into());
        if let Some(toml::Value::Array(all)) = config.get_mut("components") {
            all.push(component.into());
        }
        Ok(())
    })?;
    let said = world.meshplan(&["recover"])?.ok()?;
    ensure!(
        said.contains("not rebuilt: the component acme/gone (main) cannot be fetched"),
        "{said}"
    );
    // From here on a webhook alone brings what is new.
    world.configure_forge("poll_secs", 3600)?;
    world.serve()?;
    world.wait_for(&mended, "delivered")?;
    site.write("index.html", "three")?;
    let last = site.push("after the loss")?;
    world.webhook(&World::push_event_of("acme/site", &last), "site", None)?;
    world.wait_for(&last, "delivered")?;
    everywhere(&world, "three")?;
    world.meshplan(&["notes", "verify"])?.ok()?;
    Ok(())
}
