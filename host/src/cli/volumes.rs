//! `volumes`: the volumes that the host made, and which of them nothing declares any more (HR-16).

use std::fmt::Write as _;

use anyhow::anyhow;
use serde_json::json;

use super::exit::Exit;
use super::look::machine;
use super::{Answer, Failure, Place};
use crate::edge::machine::Machine;

/// A volume of the host's.
struct Own {
    name: String,
    path: String,
    /// A resource has it.
    is_declared: bool,
    /// The containers that have it.
    users: Vec<String>,
}

pub(super) fn volumes(place: &Place) -> Result<Answer, Failure> {
    let machine = machine(place)?;
    let own = own(&machine).map_err(|why| Failure::new(Exit::Internal, anyhow!(why)))?;
    let mut words = String::new();
    for volume in &own {
        let users = match volume.users.as_slice() {
            [] => "no container has it".to_owned(),
            users => format!("in {}", users.join(", ")),
        };
        let left = if volume.is_declared {
            ""
        } else {
            "; nothing declares it any more"
        };
        // Writing to a text does not fail.
        let _written = writeln!(words, "{} at {}: {users}{left}", volume.name, volume.path);
    }
    if own.is_empty() {
        words.push_str("the host has made no volume on this machine\n");
    }
    let own: Vec<_> = own
        .iter()
        .map(|volume| {
            json!({
                "name": volume.name, "path": volume.path, "declared": volume.is_declared, "containers": volume.users,
            })
        })
        .collect();
    Ok(Answer {
        exit: Exit::Done,
        words,
        json: json!({ "volumes": own }),
    })
}

fn own(machine: &Machine) -> Result<Vec<Own>, String> {
    let engine = machine.engine();
    let (volumes, containers) = (engine.volumes()?, engine.containers()?);
    let own = volumes.into_iter().filter(|volume| volume.is_own).map(|volume| {
        let users = containers.iter().filter(|one| one.volumes.contains(&volume.name));
        Own {
            is_declared: machine.declares_volume(&volume.name),
            users: users.map(|one| one.name.clone()).collect(),
            name: volume.name,
            path: volume.path,
        }
    });
    Ok(own.collect())
}
