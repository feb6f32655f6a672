//! How a container that stands differs from the one that is asked for, in words for whoever decides to take it (HR-8).

use std::collections::BTreeSet;

use super::{Kept, Reach, Wanted};
use crate::edge::engine::Engine;

/// In words; of one that the host did not make, all that a take compares.
pub(super) fn differs(wanted: &Wanted, found: &Kept, reach: Reach<'_>) -> String {
    let image = &wanted.asked.image;
    if found.spec.is_some() {
        return if found.image == *image {
            "it is made anew, as its fields are others".to_owned()
        } else {
            format!(
                "it is made anew from the image {image} instead of {}",
                found.image
            )
        };
    }
    let engine = reach.system.engine();
    let compared = compared(wanted, found, engine);
    format!(
        "it is made anew, as the host did not make the one that is there: {}",
        compared.join("; ")
    )
}

fn compared(wanted: &Wanted, found: &Kept, engine: &dyn Engine) -> Vec<String> {
    let name = &wanted.asked.name;
    let mut words = vec![images(wanted, found, engine)];
    let Ok(Some(there)) = engine.container(name) else {
        return words;
    };
    let asked = &wanted.asked;
    // Who else is on its networks would lose sight of it.
    let others = engine.containers().unwrap_or_default();
    let with_others = |network: &String| {
        let others = others
            .iter()
            .filter(|other| other.name != *name && other.networks.contains(network));
        let names: Vec<&str> = others.map(|other| other.name.as_str()).collect();
        match names.as_slice() {
            [] => network.clone(),
            names => format!("{network} (with {})", names.join(", ")),
        }
    };
    let is_in: BTreeSet<String> = there.networks.iter().map(with_others).collect();
    let mounts = asked.mounts.iter().map(|mount| {
        let source = mount.volume.as_ref().or(mount.source.as_ref());
        format!("{}:{}", source.map_or("", String::as_str), mount.target)
    });
    let ports = asked.ports.iter().map(|port| {
        let address = port
            .address
            .as_ref()
            .map_or_else(String::new, |address| format!("{address}:"));
        format!(
            "{address}{}->{}/{}",
            port.host,
            port.container,
            port.protocol.word()
        )
    });
    let networks = match asked.host_network {
        true => BTreeSet::from(["host".to_owned()]),
        false => asked.networks.clone(),
    };
    words.extend(pair("networks", &is_in, &networks));
    words.extend(pair("mounts", &there.mounts, &mounts.collect()));
    words.extend(pair("ports", &there.ports, &ports.collect()));
    words
}

/// What is there beside what is asked for; none where both are nothing.
fn pair(what: &str, is: &BTreeSet<String>, asked: &BTreeSet<String>) -> Option<String> {
    let list = |all: &BTreeSet<String>| match all.is_empty() {
        true => "none".to_owned(),
        false => all.iter().cloned().collect::<Vec<_>>().join(", "),
    };
    (!is.is_empty() || !asked.is_empty()).then(|| format!("{what} {}, declared {}", list(is), list(asked)))
}

fn images(wanted: &Wanted, found: &Kept, engine: &dyn Engine) -> String {
    let made_at = |reference: &str| {
        engine
            .image(reference)
            .ok()
            .flatten()
            .and_then(|image| image.made_at)
    };
    let (is, asked) = (made_at(&found.image_id), made_at(&wanted.asked.image));
    let dated = |image: &str, date: &Option<String>| match date {
        Some(date) => format!("{image} of {date}"),
        None => image.to_owned(),
    };
    let instant = |date: &Option<String>| date.as_ref()?.parse::<jiff::Timestamp>().ok();
    let verdict = match (instant(&is), instant(&asked)) {
        (Some(is), Some(asked)) if asked < is => ", which is older: a downgrade",
        (Some(_), Some(_)) => ", which is not older",
        _ => "",
    };
    format!(
        "image {}, declared {}{verdict}",
        dated(&found.image, &is),
        dated(&wanted.asked.image, &asked)
    )
}
