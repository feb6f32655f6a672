//! `run` and `apply --once`: the agent, until it is stopped or has nothing left to do.

use meshplan_schemas::report::DeclarationState;
use serde_json::json;

use super::exit::Exit;
use super::look::{failed, look, setup};
use super::pause::{self, OrBroken};
use super::words::{at, word};
use super::{Answer, Failure, Place};
use crate::edge::agent::{self, Until};
use crate::edge::clock::Clock;
use crate::pure::pause::Seen;

pub(super) async fn run(place: &Place, reconcile_secs: Option<u32>, clock: Clock) -> Result<Answer, Failure> {
    let mut setup = setup(place, Until::Stopped);
    setup.reconcile_secs = reconcile_secs;
    agent::run(setup, clock).await.map_err(failed)?;
    Ok(Answer {
        exit: Exit::Done,
        words: String::new(),
        json: json!({ "stopped": true }),
    })
}

/// The same agent with the same safety: what needs a confirm waits for it, and goes back without one.
pub(super) async fn once(place: &Place, clock: Clock) -> Result<Answer, Failure> {
    let standing = agent::run(setup(place, Until::Rest), clock)
        .await
        .map_err(failed)?;
    let look = look(place)?;
    if let OrBroken::Seen(Seen::Holds { paused, .. }) = pause::seen(&look, clock, &pause::boot_id()?) {
        let until = at(paused.until, clock.now().as_second());
        let words = format!(
            "paused on this machine until {until}: {}\n  nothing was begun; `meshplan-host resume` ends it\n",
            paused.why
        );
        return Ok(Answer {
            exit: Exit::No,
            words,
            json: json!({ "declaration": standing.declaration, "resources": standing.lines, "paused": paused }),
        });
    }
    let Some(declaration) = &standing.declaration else {
        return Ok(Answer {
            exit: Exit::Done,
            words: "nothing is declared for this machine yet\n".to_owned(),
            json: json!({ "declaration": null }),
        });
    };
    let exit = match declaration.state {
        DeclarationState::Confirmed => Exit::Done,
        DeclarationState::KnownBad => Exit::Refused,
        DeclarationState::Queued
        | DeclarationState::Applying
        | DeclarationState::AwaitingConfirm
        | DeclarationState::Reverted
        | DeclarationState::Failed => Exit::No,
    };
    let mut words = format!(
        "declaration {}: {}",
        declaration.sequence,
        word(&declaration.state)
    );
    if !declaration.reason.is_empty() {
        words = format!("{words}: {}", declaration.reason);
    }
    if standing.window.is_some() {
        words.push_str("\n  stopped inside the confirm window: it is judged when the host runs again");
    }
    for line in &standing.lines {
        words = format!(
            "{words}\n  {}: {} {}",
            line.name,
            word(&line.outcome),
            line.reason
        );
    }
    words.push('\n');
    Ok(Answer {
        exit,
        words,
        json: json!({ "declaration": declaration, "resources": standing.lines }),
    })
}
