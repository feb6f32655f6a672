//! The pages about forges: their settings are settings, their scopes are enough and none of them too many, their hook works.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Context as _, Result, ensure};
use meshplan_reconciler::config::{Config, ForgeKind};
use scenarios::double::{BOT, Brand};
use scenarios::house::workspace;
use scenarios::tree::{PAGE, SECOND};
use scenarios::world::{REPO, World};

use super::{Scene, client, every_verb, wait};

fn page(kind: &str) -> Result<String> {
    let path = workspace().join(format!("docs/forges/{kind}.md"));
    fs::read_to_string(&path).with_context(|| format!("{}", path.display()))
}

/// The table `[forge]` that a page shows.
fn shown(page: &str) -> Result<toml::Table> {
    let (_, after) = page
        .split_once("    # meshplan.toml\n")
        .context("a configuration")?;
    let lines = after.lines().map_while(|line| line.strip_prefix("    "));
    let text = lines.collect::<Vec<_>>().join("\n");
    let table: toml::Table = text.parse()?;
    let forge = table.get("forge").and_then(toml::Value::as_table);
    Ok(forge.context("a table [forge]")?.clone())
}

// holds: FG-6
#[test]
fn each_page_shows_a_configuration_that_is_read_and_the_address_of_its_webhook() -> Result<()> {
    let world = World::new("pages")?;
    for kind in ["forgejo", "github", "gitlab", "bare"] {
        let text = page(kind)?;
        let forge = shown(&text)?;
        ensure!(forge["kind"].as_str() == Some(kind), "{forge}");
        world.configure(|config| {
            config.insert("forge".to_owned(), forge.into());
            Ok(())
        })?;
        Config::read(&world.config()).with_context(|| format!("docs/forges/{kind}.md"))?;
        let address = format!("https://reconciler.example.org/hooks/{kind}");
        ensure!(text.contains(&address), "{kind}: no {address}");
    }
    Ok(())
}

/// A scope as a page calls it.
fn called(brand: Brand, scope: &str) -> String {
    match (brand, scope) {
        (Brand::Github, "contents:write") => "| Contents: read and write |".to_owned(),
        (Brand::Github, "pull_requests:write") => "| Pull requests: read and write |".to_owned(),
        (Brand::Github, "statuses:write") => "| Commit statuses: read and write |".to_owned(),
        (Brand::Github, "checks:read") => "| Checks: read |".to_owned(),
        (Brand::Github, "metadata:read") => "| Metadata: read |".to_owned(),
        (Brand::Github, "members:read") => "| Members: read (of the organisation) |".to_owned(),
        (_, scope) => format!("`{scope}`"),
    }
}

/// Whether git may push with a token.
fn pushes(scene: &Scene, token: &str) -> bool {
    let url = scene.double.url();
    let url = url.replacen("http://", &format!("http://{BOT}:{token}@"), 1);
    let notes = "HEAD:refs/notes/mesh-plan";
    scene
        .world
        .git(&["push", "--quiet", "--force", &url, notes])
        .is_ok()
}

fn scopes(brand: Brand) -> Result<()> {
    let text = page(brand.kind())?;
    for scope in brand.scopes() {
        let called = called(brand, scope);
        ensure!(
            text.contains(&called),
            "{brand:?}: the page does not name {called}"
        );
        let scene = Scene::at(brand)?;
        let others: Vec<&str> = brand.scopes().iter().copied().filter(|of| of != scope).collect();
        let token = scene.double.token(BOT, &others);
        let file = scene.world.folder().join("token-with-less");
        fs::write(&file, &token)?;
        let kind = match brand {
            Brand::Forgejo => ForgeKind::Forgejo,
            Brand::Github => ForgeKind::Github,
            Brand::Gitlab => ForgeKind::Gitlab,
        };
        let forge = client(kind, scene.double.url(), None, file)?;
        let all = wait(every_verb(&forge, &scene)).is_ok() && pushes(&scene, &token);
        ensure!(!all, "{brand:?}: nothing needs {scope}");
    }
    Ok(())
}

/// With all of them everything works.
fn all_scopes(brand: Brand, kind: ForgeKind) -> Result<()> {
    let scene = Scene::at(brand)?;
    let token_file = scene.world.state().join("forge-token");
    let forge = client(kind, scene.double.url(), None, token_file)?;
    wait(every_verb(&forge, &scene))?;
    ensure!(pushes(&scene, &scene.token()?), "git");
    Ok(())
}

// holds: FG-6
#[test]
fn the_scopes_that_the_page_of_forgejo_names_are_enough_and_each_is_needed() -> Result<()> {
    all_scopes(Brand::Forgejo, ForgeKind::Forgejo)?;
    scopes(Brand::Forgejo)
}

// holds: FG-6
#[test]
fn the_scopes_that_the_page_of_github_names_are_enough_and_each_is_needed() -> Result<()> {
    all_scopes(Brand::Github, ForgeKind::Github)?;
    scopes(Brand::Github)
}

// holds: FG-6
#[test]
fn the_scopes_that_the_page_of_gitlab_names_are_enough_and_each_is_needed() -> Result<()> {
    all_scopes(Brand::Gitlab, ForgeKind::Gitlab)?;
    scopes(Brand::Gitlab)
}

// holds: FG-1, FG-2
#[test]
fn the_hook_that_the_page_of_bare_repositories_shows_tells_the_reconciler_of_a_push() -> Result<()> {
    let text = page("bare")?;
    let (_, after) = text.split_once("```python\n").context("a hook")?;
    let (hook, _) = after.split_once("```").context("its end")?;
    let mut world = World::new("bare")?;
    // Everything comes by the hook here.
    world.configure_forge("poll_secs", 3600)?;
    let secret = world.state().join("webhook-secret");
    let hook = hook
        .replace(
            "https://reconciler.example.org",
            &format!("http://{}", world.address()),
        )
        .replace("/etc/meshplan/webhook-secret", &secret.to_string_lossy());
    let path = world.forge.folder(REPO).join("hooks/post-receive");
    fs::write(&path, hook)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    world.start_three_hosts()?;
    let commit = world.merge(PAGE.source, SECOND)?;
    world.wait_for(&commit, "delivered")?;
    ensure!(world.at("cid", PAGE)? == SECOND);
    Ok(())
}
