//! `enrol TOKEN`: the machine joins a fleet (LK-3).

use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::time::Duration;

use anyhow::Context as _;
use meshplan_schemas::session::token::Token;
use serde_json::json;

use super::exit::Exit;
use super::look::failed;
use super::words::span;
use super::{Answer, Failure, Place};
use crate::edge::boot;
use crate::edge::capabilities::Asker;
use crate::edge::disk::StateLock;
use crate::edge::enrol::{Machine, Step, enrol as join};

/// How long the machine may take to say what it can do: its first declaration is composed by that.
const ASKED: Duration = Duration::from_secs(10);

pub(super) async fn enrol(place: &Place, token: &str, wait_secs: Option<u64>) -> Result<Answer, Failure> {
    let token: Token = token
        .parse()
        .map_err(|e| Failure::new(Exit::Usage, anyhow::Error::new(e)))?;
    let state_dir = place.state_dir();
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&state_dir)
        .with_context(|| {
            format!(
                "cannot make the state folder {}; run this as root, or name another with --state-dir",
                state_dir.display()
            )
        })
        .map_err(|e| Failure::new(Exit::Internal, e))?;
    let _lock = StateLock::take(&state_dir).map_err(|e| failed(e.into()))?;
    let machine = Machine {
        capabilities: Asker::new(&place.root).afresh(ASKED).capabilities.clone(),
        host_version: boot::version().to_string(),
    };
    let joined = join(&token, &state_dir, &machine, say);
    let membership = match wait_secs {
        None => joined.await,
        Some(secs) => match tokio::time::timeout(Duration::from_secs(secs), joined).await {
            Ok(joined) => joined,
            Err(_) => {
                return Err(Failure::new(
                    Exit::Unreachable,
                    anyhow::anyhow!(
                        "not admitted within {secs} s; what was done is kept: run the same command again to go on"
                    ),
                ));
            }
        },
    }
    .map_err(|e| Failure::new(Exit::from(&e), e))?;
    Ok(Answer {
        exit: Exit::Done,
        words: format!(
            "this machine is `{}` of the fleet `{}`\nstart its host: `meshplan-host run`, or its service\n",
            membership.name, membership.fleet
        ),
        json: json!({
            "fleet": membership.fleet,
            "name": membership.name,
            "node": membership.node,
        }),
    })
}

/// Steps go to standard error: standard output has the answer alone.
fn say(step: Step) {
    let words = match step {
        Step::Keys { fingerprint } => {
            format!("keys are made; the admission must show the fingerprint {fingerprint}")
        }
        Step::Waiting { name, fingerprint } => format!(
            "asked to be admitted as `{name}` (fingerprint {fingerprint}); waiting until the admission is merged"
        ),
        Step::Again { why, after } => {
            let secs = i64::try_from(after.as_secs()).unwrap_or(0).max(1);
            format!("{why}; again in {}", span(secs))
        }
    };
    // Where nobody reads it, nothing is lost.
    let _unread = writeln!(anstream::stderr(), "{words}");
}
