//! Admissions at work: invitations are stored, machines answered, their records proposed and merged (LK-3, FG-5).

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use meshplan_schemas::fleet_list::Author;
use meshplan_schemas::ident::{CommitId, FleetName, NodeId, NodeName};
use meshplan_schemas::session::token::Token;
use meshplan_schemas::wire::{FromEnrolling, ToEnrolling};
use serde::{Deserialize, Serialize};

use super::activation::Waker;
use super::clock::Clock;
use super::desk::StoreDesk;
use super::enrol::{FleetFacts, InviteError, InviteSpec, make_invites};
use super::forge::{Forge, ForgeError};
use super::health::Health;
use super::mirror::{MergeError, Mirror, Person, Proposal};
use super::outbox::{Carried, Carrier, Trouble};
use super::repository::LookNow;
use super::store::people::InviteUse;
use super::store::{Store, StoreError};
use crate::config::Config;
use crate::edge::key_file::PublicKeys;
use crate::pure::compose::Composed;
use crate::pure::enrol::{Admission, EnrolRequest, InviteRow, Verdict, check, record_with_keys};
use crate::pure::forge::NewPull;

/// The kind of outbox rows that propose a record.
pub const ADMISSION: &str = "admission";

/// The branch that proposes a node's record.
fn branch(name: &NodeName) -> String {
    format!("meshplan/admit/{name}")
}

/// Invitations and admissions of one fleet.
#[derive(Clone)]
pub struct Admissions {
    facts: FleetFacts,
    mirror: Arc<Mutex<Mirror>>,
    health: Arc<Health>,
    outbox: Waker,
    look_now: LookNow,
    clock: Clock,
    branch: String,
    forge: Option<Arc<Forge>>,
}

impl std::fmt::Debug for Admissions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Admissions({})", self.facts.fleet)
    }
}

/// What `meshplan fleet invite` asks for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NewInvite {
    /// The node's name, or a pattern with `{n}`.
    pub name: String,
    /// How many.
    pub count: u32,
    /// Roles of new records.
    pub roles: Vec<meshplan_schemas::ident::RoleName>,
    /// Modules of new records.
    pub modules: Vec<meshplan_schemas::ident::ModuleName>,
    /// For how long, in seconds.
    pub expires_secs: u32,
    /// The token is the consent.
    pub admit: bool,
}

/// A token that was made, and the row that is stored of it.
pub type Made = Vec<(Token, InviteRow)>;

/// Why nothing came of it.
#[derive(Debug, thiserror::Error)]
pub enum AdmissionError {
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No invitation can be made.
    #[error(transparent)]
    Invite(#[from] InviteError),
    /// The node is enrolled already.
    #[error(
        "the node `{0}` is enrolled already; a machine that enrols again gets a new record under a new name (RT-8)"
    )]
    Enrolled(NodeName),
    /// Not a node's name.
    #[error("`{0}` is no name of a node")]
    Name(String),
    /// The forge does not take the pull request.
    #[error(transparent)]
    Forge(#[from] ForgeError),
    /// The branch could not be merged.
    #[error(transparent)]
    Merge(#[from] MergeError),
    /// Our own fault.
    #[error("{0}")]
    Internal(String),
}

impl AdmissionError {
    /// Whether the fault is not the caller's.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        matches!(self, Self::Store(_) | Self::Internal(_))
    }
}

impl Admissions {
    /// The admissions of a configuration. `outbox` wakes whoever carries proposals out.
    #[must_use]
    pub fn new(
        config: &Config,
        keys: &PublicKeys,
        mirror: Arc<Mutex<Mirror>>,
        health: Arc<Health>,
        outbox: Waker,
        look_now: LookNow,
        clock: Clock,
    ) -> Self {
        let facts = FleetFacts {
            fleet: FleetName::clone(&config.fleet),
            addresses: config.addresses.clone(),
            link_key: keys.link,
            authors: vec![Author {
                id: keys.author_id.clone(),
                key: keys.author,
            }],
        };
        Self {
            facts,
            mirror,
            health,
            outbox,
            look_now,
            clock,
            branch: config.branch.clone(),
            forge: None,
        }
    }

    /// Records are proposed as pull requests of this forge (FG-5); without one they are branches alone.
    #[must_use]
    pub fn at(mut self, forge: Option<Arc<Forge>>) -> Self {
        self.forge = forge;
        self
    }

    /// Makes and stores invitations; the tokens are shown once and never kept.
    ///
    /// # Errors
    /// [`AdmissionError`].
    pub async fn invite(&self, store: &Store, new: &NewInvite) -> Result<Made, AdmissionError> {
        let spec = InviteSpec {
            name: new.name.clone(),
            count: new.count,
            roles: new.roles.clone(),
            modules: new.modules.clone(),
            expires_secs: new.expires_secs,
            admit: new.admit,
        };
        let roster = self.health.roster();
        let mut facts = self.facts.clone();
        if let Some(tree) = &roster {
            facts.authors.clone_from(&tree.fleet.authors);
        }
        let record = |name: &NodeName| roster.as_deref().and_then(|tree| by_name(tree, name));
        let made = make_invites(
            &spec,
            &facts,
            |name| record(name).map(|(id, _)| id),
            self.clock.now().as_second(),
        )?;
        for (_, row) in &made {
            if record(&row.name).is_some_and(|(_, enrolled)| enrolled) {
                return Err(AdmissionError::Enrolled(row.name.clone()));
            }
        }
        for (_, row) in &made {
            // Found by the secret's hash: the caller brings the secret and nothing else.
            store.put_invite(&row.secret_hash.to_string(), row).await?;
        }
        Ok(made)
    }

    /// Answers a machine; what goes wrong on our side is "busy", never "refused".
    pub async fn answer(&self, desk: &StoreDesk, said: FromEnrolling) -> ToEnrolling {
        const BUSY: ToEnrolling = ToEnrolling::Busy {
            retry_after_ms: 2_000,
        };
        let answer = match said {
            FromEnrolling::Poll { message_id } => self.poll(desk, &message_id).await,
            said @ FromEnrolling::Enrol { .. } => match EnrolRequest::of(said) {
                Some(request) => self.enrol(desk, &request).await,
                None => return ToEnrolling::Refused,
            },
            FromEnrolling::Unknown => return ToEnrolling::Refused,
        };
        answer.unwrap_or_else(|error| {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "an enrolment could not be answered"
            );
            BUSY
        })
    }

    async fn enrol(&self, desk: &StoreDesk, request: &EnrolRequest) -> Result<ToEnrolling, AdmissionError> {
        let id = request.secret_hash.to_string();
        let row: Option<InviteRow> = desk.store.invite(&id).await?.map(|(row, _)| row);
        let roster = self.health.roster();
        let key_of = roster.as_deref().and_then(|tree| {
            let of = |leaf: &&meshplan_schemas::fleet_list::Leaf| {
                leaf.transport_key == request.transport_key || leaf.signing_key == request.signing_key
            };
            (tree.leaves.values().map(|listed| &listed.leaf))
                .find(of)
                .map(|leaf| leaf.name.clone())
        });
        match check(
            request,
            row.as_ref(),
            key_of.as_ref(),
            self.clock.now().as_second(),
        ) {
            Verdict::Refused(why) => {
                tracing::warn!(reason = %why, "an enrolment is refused");
                Ok(ToEnrolling::Refused)
            }
            Verdict::Again(admission) => self.waiting_or_admitted(desk, &admission).await,
            Verdict::First(row, admission) => {
                if desk.store.use_invite(&id, &request.message_id).await? != InviteUse::Yours {
                    return Ok(ToEnrolling::Refused);
                }
                let body =
                    serde_json::to_string(&admission).map_err(|e| AdmissionError::Internal(e.to_string()))?;
                desk.store
                    .queue_outward(ADMISSION, admission.name.as_str(), &body)
                    .await?;
                // Queued first: a machine that asks again after a crash between the two is still proposed.
                desk.store.put_invite(&id, &*row).await?;
                self.outbox.wake();
                tracing::info!(node = %admission.name, fingerprint = admission.fingerprint, "a machine asks for admission");
                Ok(admission.waiting())
            }
        }
    }

    async fn poll(&self, desk: &StoreDesk, message_id: &str) -> Result<ToEnrolling, AdmissionError> {
        let rows: Vec<(String, InviteRow, Option<String>)> = desk.store.invites().await?;
        let mine = |row: &InviteRow| row.used.as_ref().is_some_and(|u| u.message_id == message_id);
        match rows
            .into_iter()
            .map(|(_, row, _)| row)
            .find(mine)
            .and_then(|row| row.admission())
        {
            Some(admission) => self.waiting_or_admitted(desk, &admission).await,
            None => Ok(ToEnrolling::Refused),
        }
    }

    /// Admitted once the newest signed list has the machine's keys.
    async fn waiting_or_admitted(
        &self,
        desk: &StoreDesk,
        admission: &Admission,
    ) -> Result<ToEnrolling, AdmissionError> {
        let Some(leaf) = desk.store.leaf_by_key(&admission.transport_key).await? else {
            return Ok(admission.waiting());
        };
        let node: NodeId = leaf.leaf.id;
        let (Some(head), Some(record)) = (desk.store.newest_head().await?, desk.record(node).await?) else {
            return Ok(admission.waiting());
        };
        Ok(ToEnrolling::Admitted {
            name: admission.name.clone(),
            node,
            head: head.envelope,
            record,
        })
    }

    /// Merges the branch that proposes a node's record.
    ///
    /// # Errors
    /// [`AdmissionError`].
    pub async fn admit(&self, name: &str) -> Result<CommitId, AdmissionError> {
        let name: NodeName = name.parse().map_err(|_| AdmissionError::Name(name.to_owned()))?;
        let (mirror, at) = (Arc::clone(&self.mirror), self.clock.now());
        let merged = tokio::task::spawn_blocking(move || {
            let mut mirror = mirror.lock().unwrap_or_else(PoisonError::into_inner);
            mirror.merge_branch(&branch(&name), &Person::us(), at)
        });
        let commit = merged
            .await
            .map_err(|e| AdmissionError::Internal(e.to_string()))??;
        self.look_now.say();
        Ok(commit)
    }

    /// The carrier of proposals: pushes a branch with the record, and merges it where the token was the consent.
    #[must_use]
    pub fn carrier(&self, wake: Waker) -> Carrier {
        let admissions = self.clone();
        Arc::new(move |rows| {
            let (admissions, wake) = (admissions.clone(), wake.clone());
            async move {
                let mut carried = Carried::default();
                for row in rows {
                    match admissions.propose(&row.body).await {
                        Ok(()) => carried.done.push(row.id),
                        Err(error) => {
                            carried.trouble = Some(Trouble {
                                why: error.to_string(),
                                retry_after: None,
                            });
                        }
                    }
                }
                wake.wake();
                carried
            }
            .boxed()
        })
    }

    async fn propose(&self, body: &str) -> Result<(), AdmissionError> {
        let admission: Admission =
            serde_json::from_str(body).map_err(|e| AdmissionError::Internal(e.to_string()))?;
        let (mirror, at) = (Arc::clone(&self.mirror), self.clock.now());
        let name = admission.name.clone();
        let merge = admission.admit;
        let new = NewPull {
            title: format!("Admit {name}"),
            body: format!(
                "The machine `{}` asks to be admitted as `{name}`, with the invitation `{}`.\n\nMerging this admits it. \
                 Compare the fingerprint with what the machine shows before you do.",
                admission.fingerprint, admission.invite
            ),
            from: branch(&name),
            into: self.branch.clone(),
        };
        tokio::task::spawn_blocking(move || {
            let mut mirror = mirror.lock().unwrap_or_else(PoisonError::into_inner);
            let (path, existing) = record_file(&mut mirror, &admission);
            let text = record_with_keys(existing.as_deref(), &admission)
                .map_err(|e| AdmissionError::Internal(e.to_string()))?;
            let message = format!(
                "nodes/{}: admit the machine {}\n\nIt enrolled with the invitation {}; compare the fingerprint with what the machine shows.",
                admission.name, admission.fingerprint, admission.invite
            );
            mirror.propose_file(&Proposal {
                branch: &branch(&admission.name),
                path: &path,
                contents: text.as_bytes(),
                message: &message,
                author: &Person::us(),
                at,
            })?;
            Ok::<_, AdmissionError>(())
        })
        .await
        .map_err(|e| AdmissionError::Internal(e.to_string()))??;
        match &self.forge {
            _ if merge => drop(self.admit(name.as_str()).await?),
            Some(forge) => forge.open_pull_request(&new).await?,
            None => {}
        }
        Ok(())
    }
}

/// Where a node's record is, and its text: the invited record keeps its folder, a new one goes to `nodes/`.
fn record_file(mirror: &mut Mirror, admission: &Admission) -> (String, Option<String>) {
    let fallback = (format!("nodes/{}.toml", admission.name), None);
    let Ok(Some(head)) = mirror.fetch().map(|f| f.head) else {
        return fallback;
    };
    let Ok(entries) = mirror.read_tree(&head) else {
        return fallback;
    };
    let wanted = format!("{}.toml", admission.name);
    for entry in entries {
        let Ok(path) = String::from_utf8(entry.path) else {
            continue;
        };
        let file = path
            .strip_prefix("nodes/")
            .and_then(|rest| rest.rsplit('/').next());
        if file == Some(wanted.as_str())
            && !path.starts_with("nodes/revoked/")
            && let super::mirror::Content::Bytes(bytes) = entry.content
        {
            return (path, String::from_utf8(bytes.to_vec()).ok());
        }
    }
    fallback
}

fn by_name(tree: &Composed, name: &NodeName) -> Option<(NodeId, bool)> {
    tree.nodes
        .values()
        .find(|n| n.name == *name)
        .map(|n| (n.id, n.enrolled))
}
