//! What was started, between the two looks at it (HK-5, HK-8).

use super::container;
use crate::edge::engine;
use crate::edge::system::System;
use crate::pure::unit::{Unit, died_between};

/// Something that was started, as it stood at the first look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// A unit.
    Unit {
        /// Its name.
        name: String,
        /// How it stood.
        unit: Unit,
    },
    /// A container.
    Container {
        /// Its name.
        name: String,
        /// Its id.
        id: String,
        /// How it stood.
        state: engine::State,
    },
}

impl Seen {
    /// What is wrong with it at the second look; none when it is up and nothing happened to it in between.
    #[must_use]
    pub fn look_again(&self, system: &dyn System) -> Option<String> {
        match self {
            Self::Unit { name, unit } => {
                let why = match system.unit(name) {
                    Ok(second) => died_between(unit, second.as_ref()),
                    Err(why) => Some(format!("it was started, and could not be looked at again: {why}")),
                };
                why.map(|why| format!("{name}: {why}"))
            }
            Self::Container { name, id, state } => {
                let why = container::died_between((name, id, state), system.engine());
                why.map(|why| format!("container {name}: {why}"))
            }
        }
    }
}
