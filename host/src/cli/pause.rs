//! `pause` and `resume`: a person keeps the fleet's orders from this machine for a while (HR-17).

use anyhow::Context as _;
use meshplan_schemas::report::{DeclarationState, Paused};
use serde_json::json;

use super::exit::Exit;
use super::look::{Look, failed, look};
use super::words::at;
use super::{Answer, Failure, Place};
use crate::edge::boot;
use crate::edge::clock::Clock;
use crate::edge::disk::DiskError;
use crate::edge::orders;
use crate::edge::pause::{self, OnDisk};
use crate::pure::pause::{Moment, Pause, Seen, length};
use crate::pure::standing::Standing;

pub(super) fn pause(place: &Place, length_words: &str, why: &str, clock: Clock) -> Result<Answer, Failure> {
    let usage = |refusal| Failure::new(Exit::Usage, anyhow::Error::new(refusal));
    let secs = length(length_words).map_err(usage)?;
    let look = look(place)?;
    let now = clock.now().as_second();
    let boot_id = boot_id()?;
    let moment = Moment {
        now,
        boot_id: &boot_id,
        since_boot_secs: clock.since_boot_secs(),
    };
    let pause = Pause::begin(boot::instance(), secs, why, moment).map_err(usage)?;
    let former = match seen(&look, clock, &boot_id) {
        OrBroken::Seen(Seen::Holds { paused, .. }) => Some(paused),
        OrBroken::Seen(Seen::None | Seen::Over) | OrBroken::Broken(_) => None,
    };
    pause::write(&*look.disk, &pause).map_err(|e| unwritten(e, "the pause cannot be written"))?;
    let paused = Paused {
        until: pause.until,
        why: pause.why,
    };
    let shown = pause::show(&place.root, Some(&paused));
    let mut words = format!("paused until {}: {}\n", at(paused.until, now), paused.why);
    if let Some(former) = &former {
        words = format!(
            "{words}in place of the pause until {}: {}\n",
            at(former.until, now),
            former.why
        );
    }
    words.push_str(
        "nothing new is begun and drift is left alone; orders are kept, lists and rotations go on\n",
    );
    // Looked at after the pause stands: what begins from here on has seen it.
    if let Some(under_way) = under_way(&orders::load_standing(&*look.disk).0) {
        words = format!("{words}{under_way} was begun before, and goes on to its end\n");
    }
    words.push_str("`meshplan-host resume` ends it before that\n");
    if let Err(error) = &shown {
        words = format!("{words}whoever logs in is not told: {error}\n");
    }
    Ok(Answer {
        exit: Exit::Done,
        words,
        json: json!({ "paused": paused, "former": former }),
    })
}

pub(super) fn resume(place: &Place, clock: Clock) -> Result<Answer, Failure> {
    let look = look(place)?;
    let now = clock.now().as_second();
    let before = seen(&look, clock, &boot_id()?);
    pause::remove(&*look.disk).map_err(|e| unwritten(e, "the pause cannot be ended"))?;
    let shown = pause::show(&place.root, None);
    let (mut words, former) = match before {
        OrBroken::Seen(Seen::Holds { paused, .. }) => {
            let until = at(paused.until, now);
            let words = format!(
                "the pause until {until} is over: {}\nwhat waits is begun with the next heartbeat of the host at the latest\n",
                paused.why
            );
            (words, Some(paused))
        }
        OrBroken::Seen(Seen::None | Seen::Over) => ("this machine is not paused\n".to_owned(), None),
        OrBroken::Broken(why) => (format!("a pause that could not be read is over: {why}\n"), None),
    };
    if let Err(error) = shown {
        words = format!("{words}what whoever logs in reads of it stays: {error}\n");
    }
    Ok(Answer {
        exit: Exit::Done,
        words,
        json: json!({ "paused": null, "former": former }),
    })
}

/// What is seen of a pause; or why it cannot be read.
pub(super) enum OrBroken {
    /// As it stands.
    Seen(Seen),
    /// It holds until the host replaces it.
    Broken(String),
}

/// How it stands with a pause, a host may run or not.
pub(super) fn seen(look: &Look, clock: Clock, boot_id: &str) -> OrBroken {
    let moment = Moment {
        now: clock.now().as_second(),
        boot_id,
        since_boot_secs: clock.since_boot_secs(),
    };
    let over = |pause: &Pause| {
        let known = look.standing.pause.as_ref();
        known.is_some_and(|known| known.id == pause.id && known.over)
    };
    match pause::read(&*look.disk) {
        OnDisk::None => OrBroken::Seen(Seen::None),
        OnDisk::Pause(pause) if over(&pause) => OrBroken::Seen(Seen::Over),
        OnDisk::Pause(pause) => OrBroken::Seen(pause.seen(moment)),
        OnDisk::Broken(why) | OnDisk::Unread(why) => OrBroken::Broken(why),
    }
}

pub(super) fn boot_id() -> Result<String, Failure> {
    boot::boot_id()
        .context("the kernel does not tell its boot id")
        .map_err(|e| Failure::new(Exit::Internal, e))
}

/// What a pause does not break off.
fn under_way(standing: &Standing) -> Option<String> {
    if let Some(window) = &standing.window {
        return Some(window.change.to_string());
    }
    let declaration = standing.declaration.as_ref()?;
    let begun = declaration.state == DeclarationState::Applying;
    begun.then(|| format!("declaration {}", declaration.sequence))
}

fn unwritten(error: DiskError, what: &'static str) -> Failure {
    let failure = failed(error.into());
    Failure::new(
        failure.exit,
        failure.error.context(format!("{what}; run this as root")),
    )
}
