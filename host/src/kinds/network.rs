//! A network of containers (HK-10): made when it is missing; nothing declared any more, it goes with the confirm, unless
//! something of others' is in it.
//!
//! A network cannot be changed while it stands, so one that is asked for otherwise is refused and not made anew: what is in
//! it would lose its way.

use std::collections::BTreeMap;

use meshplan_schemas::resource::containers::Network;

use super::{Back, Decision, Invalid, Reach};
use crate::edge::engine::{self, Engine};
use crate::pure::container_spec::{MADE, is_name};
use crate::pure::inverse::When;
use crate::pure::observed::Observed;
use crate::pure::record::Thing;
use crate::pure::target::Sort;

/// A network that is asked for properly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The fields.
    pub asked: Network,
}

/// Checks the fields.
///
/// # Errors
/// [`Invalid`].
pub fn validate(asked: &Network) -> Result<Wanted, Invalid> {
    if !is_name(&asked.name) || ["host", "none", "bridge", "default"].contains(&asked.name.as_str()) {
        return Err(Invalid::Fields(format!(
            "{:?} is no name of a network of the fleet's",
            asked.name.chars().take(100).collect::<String>()
        )));
    }
    Ok(Wanted { asked: asked.clone() })
}

/// How it stands.
#[must_use]
pub fn state(engine: &dyn Engine, name: &str) -> Observed {
    let users = |all: Vec<engine::Listed>| {
        let users = all.into_iter().filter(|one| one.networks.contains(name));
        users.map(|one| one.name).collect()
    };
    let found = engine.network(name).and_then(|found| match found {
        None => Ok(None),
        Some(network) => Ok(Some((network, users(engine.containers()?)))),
    });
    match found {
        Err(why) => Observed::Unknown(why),
        Ok(None) => Observed::Absent,
        Ok(Some((network, users))) => Observed::Is(Thing::Network {
            subnet: network.subnet,
            is_internal: network.is_internal,
            users,
        }),
    }
}

/// What would change.
#[must_use]
pub fn plan(wanted: &Wanted, observed: &Observed) -> Decision {
    let Network {
        name,
        subnet,
        internal,
        ..
    } = &wanted.asked;
    match observed {
        Observed::Absent => Decision::Create(format!("network {name} is made")),
        Observed::Unknown(why) => Decision::Unknown(format!("network {name}: {why}")),
        Observed::Is(Thing::Network {
            subnet: is,
            is_internal,
            ..
        }) => {
            let is_another = subnet.is_some() && subnet != is || internal != is_internal;
            if !is_another {
                return Decision::Unchanged;
            }
            let words = |subnet: &Option<String>, internal: bool| {
                let way = if internal { "no way out" } else { "a way out" };
                format!(
                    "{} and {way}",
                    subnet.as_deref().unwrap_or("addresses of the engine's choice")
                )
            };
            Decision::Refuse(format!(
                "network {name} has {} instead of {}: a network cannot be changed while it stands; give the other one \
                 another name",
                words(is, *is_internal),
                words(subnet, *internal)
            ))
        }
        other => Decision::Unknown(format!("network {name} is {}", other.word())),
    }
}

/// Makes it.
///
/// # Errors
/// In words.
pub fn apply(wanted: &Wanted, engine: &dyn Engine) -> Result<(), String> {
    let asked = &wanted.asked;
    if engine.network(&asked.name)?.is_some() {
        return Ok(());
    }
    let mut labels: BTreeMap<String, String> = asked.labels.0.clone();
    labels.insert(MADE.to_owned(), "yes".to_owned());
    let network = engine::Network {
        subnet: asked.subnet.clone(),
        is_internal: asked.internal,
        labels,
    };
    engine.make_network(&asked.name, &network)
}

/// The way back: one that was not there goes. One that is swept goes only with the confirm, so it has none.
///
/// # Errors
/// In words.
pub fn way_back(name: &str, there: &Observed, reach: Reach<'_>) -> Result<Back, String> {
    let mut back = Back::default();
    if there.thing().is_none() {
        let argv = reach.system.engine().undo(&["unmake-network", name])?;
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        back.run(When::First, (Sort::Network, name), &argv, &[]);
    }
    Ok(back)
}

/// Takes away one that nothing declares, once that is confirmed and nothing is in it. One that the host did not make stays.
///
/// # Errors
/// In words: something is in it.
pub fn clear(name: &str, engine: &dyn Engine) -> Result<(), String> {
    if !(engine.network(name)?).is_some_and(|network| network.labels.contains_key(MADE)) {
        return Ok(());
    }
    let all = engine.containers()?;
    let users: Vec<String> = all
        .into_iter()
        .filter(|one| one.networks.contains(name))
        .map(|one| one.name)
        .collect();
    if !users.is_empty() {
        return Err(format!("{} is in it", users.join(", ")));
    }
    engine.remove_network(name)
}
