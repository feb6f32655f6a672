//! A volume of containers (HK-10): made when it is missing, and never removed (HR-16): what is in it is nobody's to judge.
//!
//! That holds for the way back too: a volume that came with a window may have data in it by then.

use meshplan_schemas::resource::containers::Volume;

use super::{Decision, Invalid};
use crate::edge::engine::Engine;
use crate::pure::container_spec::{MADE, is_name};
use crate::pure::observed::Observed;
use crate::pure::record::Thing;

/// A volume that is asked for properly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The fields.
    pub asked: Volume,
}

/// Checks the fields.
///
/// # Errors
/// [`Invalid`].
pub fn validate(asked: &Volume) -> Result<Wanted, Invalid> {
    if !is_name(&asked.name) {
        return Err(Invalid::Fields(format!(
            "{:?} is no name of a volume",
            asked.name.chars().take(100).collect::<String>()
        )));
    }
    Ok(Wanted { asked: asked.clone() })
}

/// How it stands.
#[must_use]
pub fn state(engine: &dyn Engine, name: &str) -> Observed {
    match engine.volumes() {
        Err(why) => Observed::Unknown(why),
        Ok(all) if all.iter().any(|volume| volume.name == name) => Observed::Is(Thing::Volume),
        Ok(_) => Observed::Absent,
    }
}

/// What would change.
#[must_use]
pub fn plan(wanted: &Wanted, observed: &Observed) -> Decision {
    let name = &wanted.asked.name;
    match observed {
        Observed::Absent => Decision::Create(format!("volume {name} is made")),
        Observed::Is(Thing::Volume) => Decision::Unchanged,
        Observed::Unknown(why) => Decision::Unknown(format!("volume {name}: {why}")),
        other => Decision::Unknown(format!("volume {name} is {}", other.word())),
    }
}

/// Makes it.
///
/// # Errors
/// In words.
pub fn apply(wanted: &Wanted, engine: &dyn Engine) -> Result<(), String> {
    let mut labels = wanted.asked.labels.0.clone();
    labels.insert(MADE.to_owned(), "yes".to_owned());
    engine.make_volume(&wanted.asked.name, &labels)
}
