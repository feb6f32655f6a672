//! `meshplan deliveries announce`: somebody says that the branch has moved, and hears what became known of it (DL-1).
//!
//! It is a look like any other, as a webhook, the poll and the start bring one: what is not on a branch that is watched does
//! not become an order by being named.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use meshplan_schemas::ident::CommitId;
use serde::{Deserialize, Serialize};

use super::health::RECOVERING;
use super::mirror::Mirror;
use super::operator::{Counter, No};
use super::repository::LookNow;
use super::store::people::FindError;
use crate::pure::delivery::Delivery;
use crate::pure::parts::Branch;

/// How long somebody waits for a look.
const LOOK: Duration = Duration::from_secs(60);
/// How many deliveries an answer names, newest first.
const NAMED: u32 = 50;

/// The branches whose merges are orders, and where they are looked at.
#[derive(Clone)]
pub struct Watched {
    /// The fleet's branch, then those of components.
    pub branches: Vec<Branch>,
    /// Asks for a look.
    pub look_now: LookNow,
    /// What was fetched of them.
    pub mirror: Arc<Mutex<Mirror>>,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Watched").field(&self.branches).finish()
    }
}

/// Which commit, where one is meant.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    #[serde(default)]
    commit: Option<String>,
}

/// What became known.
#[derive(Debug, Serialize)]
pub(super) struct Announced {
    /// In a sentence.
    answer: String,
    /// The deliveries, oldest first.
    deliveries: Vec<Named>,
}

/// A delivery.
#[derive(Debug, Serialize)]
struct Named {
    name: String,
    commit: String,
    state: String,
    code: String,
    reason: String,
}

impl Named {
    fn of(delivery: &Delivery) -> Self {
        Self {
            name: delivery.name.to_string(),
            commit: delivery.commit.to_string(),
            state: delivery.state.to_string(),
            code: delivery.code.to_string(),
            reason: delivery.reason.clone(),
        }
    }

    fn words(&self) -> String {
        let reason = match self.reason.as_str() {
            "" => String::new(),
            reason => format!(": {reason}"),
        };
        format!("{} is {} ({}){reason}", self.name, self.state, self.code)
    }
}

/// Looks at the repository now, and says what became known of it.
pub(super) async fn announce(
    State(counter): State<Counter>,
    asked: Option<Json<Asked>>,
) -> Result<Json<Announced>, No> {
    let Json(asked) = asked.unwrap_or_default();
    let newest = counter.store.deliveries(1).await?.first().map_or(0, |d| d.order);
    if let Some(text) = &asked.commit
        && let Some(known) = find(&counter, text).await?
    {
        let named = Named::of(&known);
        return Ok(Json(Announced {
            answer: format!("known already: {}", named.words()),
            deliveries: vec![named],
        }));
    }
    let looked = counter.watched.look_now.looked(|| counter.waker.wake());
    if tokio::time::timeout(LOOK, looked).await.is_err() {
        let trouble = ["repository", "pass", "branch"]
            .into_iter()
            .find_map(|about| counter.health.trouble(about));
        let why = trouble.unwrap_or_else(|| {
            "it takes longer; `meshplan deliveries list` shows what comes of it".to_owned()
        });
        let sentence = format!("the repository was not looked at in {} s: {why}", LOOK.as_secs());
        return Err(No(StatusCode::SERVICE_UNAVAILABLE, sentence));
    }
    if let Some(words) = counter.health.trouble(RECOVERING) {
        return Err(No(StatusCode::SERVICE_UNAVAILABLE, words));
    }
    let mut deliveries = match &asked.commit {
        Some(text) => match find(&counter, text).await? {
            Some(delivery) => vec![delivery],
            None => return Err(No(StatusCode::NOT_FOUND, why_not(&counter, text).await?)),
        },
        None => {
            let mut all = counter.store.deliveries(NAMED).await?;
            all.retain(|delivery| delivery.order > newest);
            all
        }
    };
    deliveries.reverse();
    let deliveries: Vec<Named> = deliveries.iter().map(Named::of).collect();
    let answer = if deliveries.is_empty() {
        format!("nothing new: {}", heads(&counter).await?)
    } else {
        deliveries.iter().map(Named::words).collect::<Vec<_>>().join("\n")
    };
    Ok(Json(Announced { answer, deliveries }))
}

/// The delivery of a commit; none where there is none yet.
async fn find(counter: &Counter, text: &str) -> Result<Option<Delivery>, No> {
    match counter.store.find_delivery(text).await {
        Ok(delivery) => Ok(Some(delivery)),
        Err(FindError::NotFound(_)) => Ok(None),
        Err(error @ FindError::NotACommit(_)) => Err(No(StatusCode::BAD_REQUEST, error.to_string())),
        Err(error) => Err(error.into()),
    }
}

/// Up to where the branches are read, in a sentence.
async fn heads(counter: &Counter) -> Result<String, No> {
    let mut said = Vec::new();
    for (of, head) in cursors(counter).await? {
        said.push(match head {
            Some(head) => format!("{} of {} is at {}", of.branch, of.repo, head.short()),
            None => format!("{} of {} was not read yet", of.branch, of.repo),
        });
    }
    Ok(said.join(", "))
}

async fn cursors(counter: &Counter) -> Result<Vec<(Branch, Option<CommitId>)>, No> {
    let mut all = Vec::new();
    for of in &counter.watched.branches {
        let head = counter.store.cursor(&of.repo, &of.branch).await?;
        all.push((of.clone(), head));
    }
    Ok(all)
}

/// Why a commit is no delivery although every branch was looked at.
async fn why_not(counter: &Counter, text: &str) -> Result<String, No> {
    let heads = cursors(counter).await?;
    let mirror = Arc::clone(&counter.watched.mirror);
    // A delivery's name is of a commit too.
    let digits = text
        .rsplit_once('@')
        .map_or(text, |(_, digits)| digits)
        .to_ascii_lowercase();
    let of = heads.clone();
    let within = tokio::task::spawn_blocking(move || {
        let mirror = mirror.lock().unwrap_or_else(PoisonError::into_inner);
        let commit = mirror.named(&digits)?;
        let wanted = std::collections::BTreeSet::from([commit]);
        of.into_iter().find(|(_, head)| {
            let left = head.as_ref().map(|head| mirror.not_behind(&wanted, head));
            left.is_some_and(|left| left.is_ok_and(|left| left.is_empty()))
        })
    });
    let within = within.await.ok().flatten();
    let at = self::heads(counter).await?;
    Ok(match within {
        Some((Branch { repo, branch }, _)) => format!(
            "`{text}` is in the history of {branch} of {repo}, and in what was delivered after it: deliveries are made of the \
             commits that the branch itself got since it was first read; {at}"
        ),
        None => format!(
            "`{text}` is on no branch whose merges are orders, so it is none: {at}; push it there, or merge it, and say this again"
        ),
    })
}
