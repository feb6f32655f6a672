//! Opens what declarations carry sealed to this machine, in memory, with its transport key (FR-9).
//!
//! It stands alone because it is the only place where values come into being on a host, so that none comes without being
//! kept out of what commands say ([`super::scrub`]). Invariant: no value is in an error.

use std::collections::BTreeMap;

use meshplan_schemas::declaration::Declaration;
use meshplan_schemas::ident::ResourceName;
use meshplan_schemas::sealed::{OpenError, Place};
use meshplan_schemas::session::LinkSecret;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

use super::scrub;
use crate::kinds::Opened;

/// Keeps this process out of core dumps, which would have values in them.
///
/// # Errors
/// The kernel refused; a container may forbid it.
pub fn leave_no_core() -> std::io::Result<()> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// The values of a declaration's sealed contents. `keys` are this machine's transport keys, the newest first: a former
/// one opens what was sealed before the node was known by the newer (FR-9).
#[must_use]
pub fn open(declaration: &Declaration, keys: &[LinkSecret]) -> BTreeMap<ResourceName, Opened> {
    let place = Place::of(declaration);
    let open = |name: &ResourceName, value| {
        let tries = keys
            .iter()
            .map(|key| place.open(key, &declaration.sealed, name, value));
        let mut last = OpenError::Closed;
        for opened in tries {
            match opened {
                Ok(value) => return Ok(value),
                Err(why) => last = why,
            }
        }
        Err(last)
    };
    let mut out = BTreeMap::new();
    for resource in &declaration.resources {
        let Some(content) = resource.sealed() else {
            continue;
        };
        for value in &resource.hides {
            // One that does not open is in no content either.
            if let Ok(value) = open(&resource.name, *value) {
                scrub::hide(&value);
            }
        }
        let opened = open(&resource.name, content);
        if let Ok(value) = &opened {
            scrub::hide(value);
            if resource.kind == "container" {
                // An environment: what a program is told is the value without its name.
                for line in value.split(|byte| *byte == b'\n') {
                    if let Some(at) = line.iter().position(|byte| *byte == b'=') {
                        scrub::hide(line.get(at + 1..).unwrap_or_default());
                    }
                }
            }
        }
        out.insert(resource.name.clone(), opened.map_err(|why| said(why, keys)));
    }
    out
}

fn said(why: OpenError, keys: &[LinkSecret]) -> String {
    if keys.is_empty() {
        return "its content is sealed, and this machine's transport key cannot be read".to_owned();
    }
    match why {
        OpenError::Missing | OpenError::Damaged => {
            format!("{why}: the order is not whole, and a newer one mends it")
        }
        OpenError::Closed => format!(
            "{why}: it was made for another key, or for another place; an order that is signed after the list knows \
             this machine's key opens"
        ),
    }
}
