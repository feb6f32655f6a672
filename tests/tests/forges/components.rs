//! A pull request of a fleet that has components is previewed with their files.

use std::fs;

use anyhow::{Result, ensure};
use scenarios::component::Component;
use scenarios::double::{Brand, Double};
use scenarios::world::World;

use super::{CHECK, PREVIEW, back_to_main, push, wait_comment, wait_status};

const MODULE: &str = "modules/web/module.toml";
const BUNDLE: &str = "\n[[bundle]]\nid = \"site\"\npath = \"/srv/site\"\nsource = \"component\"\n";
const NAMED: &str = "\n[[components]]\nrepo = \"acme/site\"\nbranch = \"main\"\nmodule = \"web\"\n";

// holds: DL-1, DL-8
#[test]
fn a_pull_request_is_previewed_with_the_files_of_components() -> Result<()> {
    let (mut world, forge): (World, Double) = World::at_forge(Brand::Forgejo, "parts")?;
    let site = Component::new(&world)?;
    site.write("index.html", "one")?;
    site.push("the site")?;
    Component::allow(&world)?;
    let fleet = fs::read_to_string(world.work().join("fleet.toml"))?;
    let module = fs::read_to_string(world.work().join(MODULE))?;
    world.write("fleet.toml", &format!("{fleet}{NAMED}"))?;
    world.serve()?;
    let named = world.merge(MODULE, &format!("{module}{BUNDLE}"))?;
    world.wait_for(&named, "delivered")?;

    back_to_main(&world)?;
    world.git(&["checkout", "--quiet", "-b", "move"])?;
    let moved = BUNDLE.replace("/srv/site", "/srv/www");
    world.write(MODULE, &format!("{module}{moved}"))?;
    let head = push(&world, "move", "the site elsewhere")?;
    let number = forge.open_pull("dana", "move", "The site elsewhere")?;
    wait_status(&mut world, &forge, &head, CHECK, "success")?;
    let (_, text) = wait_comment(&mut world, &forge, number, PREVIEW, "module web changes on")?;
    ensure!(text.contains("/srv/www") && !text.contains("left out"), "{text}");
    Ok(())
}
