//! Looks at what is on this machine without the lock: a host may run meanwhile.

use std::sync::Arc;

use super::exit::Exit;
use super::{Failure, Place};
use crate::edge::agent::{RunError, Setup, Until, machine_setup};
use crate::edge::boot;
use crate::edge::capabilities::{Asker, PATIENCE};
use crate::edge::disk::{Disk, RealDisk};
use crate::edge::identity::Identity;
use crate::edge::link::Membership;
use crate::edge::machine::Machine;
use crate::edge::marks::{self, Held, MarksFile};
use crate::edge::orders;
use crate::pure::known_bad::KnownBad;
use crate::pure::orders::Orders;
use crate::pure::standing::Standing;

/// What was seen.
pub(super) struct Look {
    pub(super) membership: Membership,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) orders: Orders,
    pub(super) standing: Standing,
    pub(super) known_bad: KnownBad,
    /// None when both files are lost; the default before the first order.
    pub(super) marks: Option<MarksFile>,
    /// What is damaged, in sentences.
    pub(super) broken: Vec<String>,
}

pub(super) fn setup(place: &Place, until: Until) -> Setup {
    Setup {
        root: place.root.clone(),
        state_dir: place.state_dir(),
        policy_out: place.policy_out.clone(),
        reconcile_secs: None,
        until,
    }
}

pub(super) fn failed(error: RunError) -> Failure {
    Failure::new(Exit::from(&error), error)
}

pub(super) fn look(place: &Place) -> Result<Look, Failure> {
    let state_dir = place.state_dir();
    let membership = Membership::load(&state_dir)
        .map_err(RunError::from)
        .and_then(|m| m.ok_or(RunError::NotEnrolled))
        .map_err(failed)?;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(&state_dir).map_err(|e| failed(e.into()))?);
    let (orders, mut broken) = orders::load(&*disk);
    let (standing, words) = orders::load_standing(&*disk);
    broken.extend(words);
    let (known_bad, words) = orders::load_known_bad(&*disk);
    broken.extend(words);
    let marks = match marks::marks().read(&*disk) {
        Held::Value(file, words) => {
            broken.extend(words);
            Some(file)
        }
        Held::Never => Some(MarksFile {
            marks: orders.rebuilt_marks(),
            anchor: None,
        }),
        Held::Lost(why) => {
            broken.push(format!("both files with the highest numbers are lost: {why}"));
            None
        }
    };
    Ok(Look {
        membership,
        disk,
        orders,
        standing,
        known_bad,
        marks,
        broken,
    })
}

/// The machine, to look only.
pub(super) fn machine(place: &Place) -> Result<Machine, Failure> {
    let boot_id = boot::boot_id().unwrap_or_default();
    let mut machine = machine_setup(&setup(place, Until::Rest), &boot_id)
        .and_then(|setup| Ok(Machine::look(setup)?))
        .map_err(failed)?;
    machine.tell_abilities(Asker::new(&place.root).afresh(PATIENCE).capabilities.clone());
    // Without the keys what is sealed to them is said to be so.
    if let Ok(identity) = Identity::load(&place.state_dir()) {
        machine.tell_keys(vec![identity.transport]);
    }
    Ok(machine)
}
