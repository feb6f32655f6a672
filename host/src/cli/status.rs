//! `status`: how this machine stands, from its files; a host may run or not.

use meshplan_schemas::report::{Health, Outcome};
use serde_json::json;

use super::exit::Exit;
use super::look::{Look, failed, look};
use super::pause::{self, OrBroken};
use super::words::{at, row, word};
use super::{Answer, Failure, Place};
use crate::edge::agent::Presence;
use crate::edge::clock::Clock;
use crate::edge::deadline;
use crate::edge::disk::{LockError, StateLock};
use crate::edge::reporter::{self, Waiting};
use crate::edge::window;
use crate::pure::commit_confirm::{Decided, FoundVerdict};
use crate::pure::confirm::Window;
use crate::pure::pause::Seen;

pub(super) fn status(place: &Place, clock: Clock) -> Result<Answer, Failure> {
    let look = look(place)?;
    let now = clock.now().as_second();
    let state_dir = place.state_dir();
    // Who holds the lock is alive, whatever a file says. A lock that may not be opened is held by root or by nobody.
    let running = match StateLock::take(&state_dir) {
        Ok(_) => false,
        Err(LockError::Busy(_)) => true,
        Err(LockError::Io { .. }) => Presence::read(&state_dir).is_some(),
    };
    // Another command, or the launcher, may have the lock of a host that is dead.
    let presence = Presence::read(&state_dir).filter(|host| running && host.is_there());
    let waiting = reporter::waiting(&*look.disk).map_err(|e| failed(e.into()))?;
    let verdict = match window::standing(&*look.disk).map_err(|e| failed(e.into()))? {
        Some(on_disk) => match on_disk.verdict {
            FoundVerdict::Given(verdict) => Some(verdict),
            FoundVerdict::None | FoundVerdict::Unreadable => None,
        },
        None => None,
    };
    let taken_back = verdict.as_ref().filter(|v| v.decided == Decided::Reverted);
    let seen = Host {
        running,
        presence: presence.as_ref(),
        taken_back: taken_back.map(|verdict| verdict.why.as_str()),
        armed: deadline::is_armed(&place.root),
    };
    let paused = pause::seen(&look, clock, &pause::boot_id()?);
    let words = tell(&look, &seen, &waiting, &paused, now);
    let paused = match &paused {
        OrBroken::Seen(Seen::Holds { paused, .. }) => json!(paused),
        OrBroken::Seen(Seen::None | Seen::Over) => serde_json::Value::Null,
        OrBroken::Broken(why) => json!({ "broken": why }),
    };
    let standing = &look.standing;
    let json = json!({
        "fleet": look.membership.fleet,
        "node": look.membership.node,
        "name": look.membership.name,
        "short_id": look.membership.node.short(),
        "running": running,
        "host": presence,
        "declaration": standing.declaration,
        "epoch": standing.epoch,
        "window": standing.window,
        "paused": paused,
        "verdict": verdict,
        "policy_digest": standing.policy,
        "resources": standing.lines,
        "held": standing.held,
        "strays": standing.strays,
        "probes": standing.probes,
        "rollbacks": standing.rollbacks,
        "left_out": standing.left_out,
        "known_bad": standing_known_bad(&look),
        "marks": look.marks.as_ref().map(|m| &m.marks),
        "stale": look.orders.stale(now),
        "reports": waiting,
        "broken": look.broken,
    });
    Ok(Answer {
        exit: Exit::Done,
        words,
        json,
    })
}

fn standing_known_bad(look: &Look) -> serde_json::Value {
    serde_json::to_value(&look.known_bad).unwrap_or_default()
}

/// What is known of the host beside its files.
struct Host<'a> {
    running: bool,
    presence: Option<&'a Presence>,
    /// Why the open window goes back, when that is decided.
    taken_back: Option<&'a str>,
    /// The service manager takes the window back at its deadline.
    armed: bool,
}

/// What becomes of an open window.
fn waiting_for(window: &Window, seen: &Host<'_>, now: i64) -> String {
    let what = window.change;
    let until = at(window.deadline, now);
    match (seen.taken_back, seen.running, seen.armed) {
        (Some(why), true, _) => format!("{what} is being taken back: {why}"),
        (Some(why), false, _) => {
            format!("{what} was taken back: {why}; the host reports it when it runs again")
        }
        (None, true, _) => {
            format!("{what} is taken back at {until} unless a fresh session and the probes confirm it")
        }
        (None, false, true) => {
            format!("{what} is judged when the host runs again; if it does not, it is taken back at {until}")
        }
        (None, false, false) => {
            format!("{what} is judged when the host runs again; its deadline is {until}")
        }
    }
}

fn tell(look: &Look, seen: &Host<'_>, waiting: &Waiting, paused: &OrBroken, now: i64) -> String {
    let (running, presence) = (seen.running, seen.presence);
    let mut out = String::new();
    let (member, standing) = (&look.membership, &look.standing);
    row(
        &mut out,
        "machine",
        format!(
            "{} ({}) of the fleet {}",
            member.name,
            member.node.short(),
            member.fleet
        ),
    );
    match presence {
        Some(host) => {
            let since = at(host.started_at, now);
            row(
                &mut out,
                "host",
                format!(
                    "runs since {since}, version {}, process {}",
                    host.version, host.pid
                ),
            );
            let link = if host.link_up {
                format!("up since {}", at(host.link_since, now))
            } else {
                format!("down since {}: {}", at(host.link_since, now), host.link_why)
            };
            row(&mut out, "link", link);
        }
        None if running => row(
            &mut out,
            "host",
            "is starting, or another command works on the state folder",
        ),
        None => row(
            &mut out,
            "host",
            "does not run; start it with `meshplan-host run`, or its service",
        ),
    }
    match paused {
        OrBroken::Seen(Seen::Holds { paused, .. }) => {
            let until = at(paused.until, now);
            row(&mut out, "paused", format!("until {until}: {}", paused.why));
            row(&mut out, "", "`meshplan-host resume` ends it");
        }
        OrBroken::Seen(Seen::None | Seen::Over) => {}
        OrBroken::Broken(why) => row(
            &mut out,
            "paused",
            format!("{why}; it counts as one of a day at most, and `meshplan-host resume` ends it"),
        ),
    }
    match &standing.declaration {
        None => row(&mut out, "declaration", "none yet"),
        Some(d) => {
            let mut text = format!("{} is {} since {}", d.sequence, word(&d.state), at(d.since, now));
            if d.converged {
                text.push_str("; nothing had to be changed");
            }
            if !d.reason.is_empty() {
                text = format!("{text}: {}", d.reason);
            }
            row(&mut out, "declaration", text);
            if d.confirmed_sequence != d.sequence {
                let text = match d.confirmed_sequence {
                    0 => "none was confirmed yet".to_owned(),
                    n => format!("{n} is the last confirmed one"),
                };
                row(&mut out, "", text);
            }
        }
    }
    match &standing.epoch {
        None => row(&mut out, "policy", "none yet"),
        Some(e) => {
            let mut text = format!("epoch {} is {}", e.state_epoch, word(&e.state));
            if e.running != e.state_epoch {
                text = format!("{text}; epoch {} runs", e.running);
            }
            if !e.reason.is_empty() {
                text = format!("{text}: {}", e.reason);
            }
            row(&mut out, "policy", text);
        }
    }
    if let Some(window) = &standing.window {
        row(&mut out, "waiting", waiting_for(window, seen, now));
    }
    for line in standing.lines.iter().filter(|l| l.outcome != Outcome::Unchanged) {
        row(
            &mut out,
            "resource",
            format!("{} ({}): {}", line.name, word(&line.outcome), line.reason),
        );
    }
    for probe in standing.probes.iter().filter(|p| p.health != Health::Healthy) {
        row(
            &mut out,
            "probe",
            format!("{} ({}): {}", probe.name, word(&probe.health), probe.reason),
        );
    }
    for verdict in &standing.rollbacks {
        let when = at(verdict.at, now);
        row(
            &mut out,
            "taken back",
            format!("{} at {when}: {}", verdict.component, verdict.why),
        );
    }
    if !standing.held.is_empty() {
        row(
            &mut out,
            "held",
            format!("{} found things; see `meshplan-host held`", standing.held.len()),
        );
    }
    for stray in &standing.strays {
        row(&mut out, "stray", stray);
    }
    if !look.known_bad.is_empty() {
        row(
            &mut out,
            "known bad",
            format!(
                "{} contents are not tried again by themselves",
                look.known_bad.len()
            ),
        );
    }
    let mut reports = format!("{} wait to be sent", waiting.queued.len());
    if !waiting.set_aside.is_empty() {
        reports = format!(
            "{reports}, {} were rejected and set aside",
            waiting.set_aside.len()
        );
    }
    row(&mut out, "reports", reports);
    for (counter, reason) in &waiting.set_aside {
        row(&mut out, "", format!("report {counter}: {reason}"));
    }
    if look.orders.stale(now) {
        row(
            &mut out,
            "stale",
            "the newest timestamp of this host has run out: it may not know the newest orders",
        );
    }
    for broken in &look.broken {
        row(
            &mut out,
            "damaged",
            format!("{broken}; it is asked for again at the next session"),
        );
    }
    out
}
