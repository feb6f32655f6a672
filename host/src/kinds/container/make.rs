//! Making a container anew, and running it: the former one makes way and comes back where this fails.

use std::collections::BTreeMap;

use meshplan_schemas::resource::programs::Run;

use super::{Foreseen, Wanted, bound};
use crate::edge::engine::{Container, Engine, New, Turn};
use crate::pure::container_spec::{IMAGE, SPEC, former_of};

/// Fetches an image that is not here; its id where it was fetched.
pub(super) fn fetch(engine: &dyn Engine, reference: &str) -> Result<Option<String>, String> {
    if engine.image(reference)?.is_some() {
        return Ok(None);
    }
    engine
        .pull(reference)
        .map_err(|why| format!("the image {reference} is not here and cannot be fetched: {why}"))?;
    let image = engine.image(reference)?;
    let image = image.ok_or_else(|| format!("the image {reference} was fetched and is not here"))?;
    Ok(Some(image.id))
}

/// Makes it, and runs it as it runs. What has its name is stopped and waits under another; where this fails it comes back.
pub(super) fn anew(
    wanted: &Wanted,
    foreseen: &Foreseen,
    found: Option<Container>,
    engine: &dyn Engine,
) -> Result<(), String> {
    let name = wanted.asked.name.as_str();
    let image = &wanted.asked.image;
    let id = engine
        .image(image)?
        .ok_or_else(|| format!("the image {image} is not here"))?
        .id;
    let labels = BTreeMap::from([
        (SPEC.to_owned(), foreseen.digest.clone()),
        (IMAGE.to_owned(), image.clone()),
    ]);
    // Where one waits already, a try of the same change was cut off; nor can anybody see how one of the host's ran before
    // such a try stopped it.
    let waits = engine.container(&former_of(name))?.is_some();
    let is_own = found
        .as_ref()
        .is_some_and(|found| found.labels.contains_key(SPEC));
    let is_up = found.as_ref().is_some_and(|found| found.state.is_up());
    let was_up = is_up || wanted.asked.run == Run::Daemon && (waits || is_own);
    match &found {
        Some(found) if waits => engine.turn(&found.id, Turn::Remove)?,
        Some(found) => make_way(found, wanted, engine)?,
        None => {}
    }
    let new = New {
        name,
        spec: &foreseen.spec,
        image: &id,
        labels: &labels,
    };
    let made = engine.make(&new).and_then(|()| {
        let made = engine.container(name)?;
        let made = made.ok_or_else(|| format!("container {name} was made and is gone"))?;
        run(wanted, &made.id, false, engine)
    });
    let Err(why) = made else { return Ok(()) };
    match bring_back(name, &foreseen.digest, was_up, engine) {
        Ok(()) => Err(why),
        Err(other) => Err(format!("{why}; and the former one is not back: {other}")),
    }
}

/// Stops what has the name and renames it.
fn make_way(found: &Container, wanted: &Wanted, engine: &dyn Engine) -> Result<(), String> {
    let former = former_of(&wanted.asked.name);
    if !found.state.is_at_rest() {
        engine.turn(&found.id, Turn::Stop(wanted.asked.stop_secs))?;
    }
    let renamed = engine.turn(&found.id, Turn::Rename(&former));
    if renamed.is_err() && found.state.is_up() {
        engine.turn(&found.id, Turn::Start)?;
    }
    renamed
}

/// Takes away what was made under this digest, and nothing that somebody else made meanwhile; the former one has its name
/// again.
fn bring_back(name: &str, digest: &str, was_up: bool, engine: &dyn Engine) -> Result<(), String> {
    match engine.container(name)? {
        Some(failed) if failed.labels.get(SPEC).is_some_and(|made| made == digest) => {
            engine.turn(&failed.id, Turn::Remove)?;
        }
        Some(_) => return Err(format!("somebody else's container has the name {name}")),
        None => {}
    }
    let Some(former) = engine.container(&former_of(name))? else {
        return Ok(());
    };
    engine.turn(&former.id, Turn::Rename(name))?;
    if was_up {
        engine.turn(&former.id, Turn::Start)?;
    }
    Ok(())
}

/// Runs one that is made as it runs, and has it join its further networks.
pub(super) fn run(wanted: &Wanted, id: &str, ran: bool, engine: &dyn Engine) -> Result<(), String> {
    let name = &wanted.asked.name;
    let is_daemon = wanted.asked.run == Run::Daemon;
    if is_daemon {
        engine.turn(id, Turn::Start)?;
    }
    let is_in = engine
        .container(name)?
        .map(|found| found.networks)
        .unwrap_or_default();
    for network in wanted.asked.networks.difference(&is_in) {
        engine
            .turn(id, Turn::Join(network))
            .map_err(|why| format!("it cannot join {network}: {why}"))?;
    }
    if wanted.asked.run != Run::Once || ran {
        return Ok(());
    }
    engine.turn(id, Turn::Start)?;
    match engine.wait(id, bound(&wanted.asked))? {
        Some(0) => Ok(()),
        Some(code) => Err(format!("container {name} ran once and ended with {code}")),
        None => {
            engine.turn(id, Turn::Stop(wanted.asked.stop_secs))?;
            let secs = wanted.asked.timeout_secs;
            Err(format!(
                "container {name} did not end within {secs} s (`timeout_secs`) and was stopped"
            ))
        }
    }
}
