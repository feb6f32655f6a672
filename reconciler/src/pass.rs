//! One pass: gather, decide, act, record. The only file that sees every stage of the road.
//!
//! # Flow
//! Fetch when a webhook, the poll or the start asks for it; read the store; compose the trees that are open; decide;
//! sign; store everything in one transaction; then publish. Again, until nothing is left to decide at this instant.
//!
//! # Guarantees
//! Nothing is published that is not stored; a process that dies at any line finds its way at the next start: what
//! was not stored is decided again, what was stored and not published is sent when a host connects or is next told.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use meshplan_schemas::declaration::ModuleContent;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::envelope::{Envelope, SignError, Signer};
use meshplan_schemas::limits::SCHEMA;
use meshplan_schemas::timestamp::Timestamp as TimestampPayload;

use crate::edge::artifacts::ArtifactStore;
use crate::edge::clock::Clock;
use crate::edge::health::{Health, RECOVERING};
use crate::edge::mesh::{Links, Mesh};
use crate::edge::repository::{FleetRepo, News, Repository};
use crate::edge::rollouts::{Asking, Moved, PutAway};
use crate::edge::store::act::{Changed, Signed};
use crate::edge::store::orders::OrderKind;
use crate::edge::store::{Store, StoreError};
use crate::edge::vault::Vault;
use crate::pure::act::Act;
use crate::pure::decide::{Contents, DecideError, Known, Settings, decide};
use crate::pure::events;
use crate::pure::freshness;
use crate::pure::hearing::{Hearing, Jump, Went};
use crate::pure::scope::Scope;
use crate::pure::snapshot::{Assignment, Snapshot};
use crate::pure::trigger::Event;

mod sealing;
mod signing;
mod trees;

/// The term of the lease: 1 until there is more than one reconciler (LK-6).
const TERM: u64 = 1;
/// How often one pass decides before it lets others run; a rest is a rest well before.
const ROUNDS: usize = 64;
/// How long a timestamp holds where no tree says so, in seconds (SG-9).
const TIMESTAMP_VALID_SECS: u32 = 2_592_000;
/// So many contents that nobody names any more are kept beside twice those that were named.
const SPARE_CONTENTS: usize = 1000;
/// How often artifacts that nobody names are looked for.
const COLLECT_EVERY: jiff::SignedDuration = jiff::SignedDuration::from_hours(24);
/// How long one stays that nobody names.
const COLLECT_AGE: std::time::Duration = std::time::Duration::from_secs(7 * 86_400);
/// How soon a pass that failed is tried again, in seconds.
const AGAIN_SECS: i64 = 5;

/// Who signs.
pub struct Signers {
    /// Epochs, lists, declarations, journal blocks.
    pub author: Box<dyn Signer + Send + Sync>,
    /// Timestamps.
    pub timestamp: Box<dyn Signer + Send + Sync>,
}

impl std::fmt::Debug for Signers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Signers({}, {})",
            self.author.key_id(),
            self.timestamp.key_id()
        )
    }
}

/// Why a pass could not be made; it is tried again.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Nothing could be decided: our own fault.
    #[error("cannot decide")]
    Decide(#[from] DecideError),
    /// A value cannot be encrypted for the store.
    #[error("a secret cannot be kept: {0}")]
    Close(String),
    /// What travels beside a declaration cannot be kept.
    #[error("an artifact cannot be kept")]
    Artifacts(#[source] std::io::Error),
    /// The signer did not sign.
    #[error(transparent)]
    Sign(#[from] SignError),
    /// Content in the store that cannot be read.
    #[error("the content {digest} cannot be read")]
    Content {
        /// Which.
        digest: Digest,
        /// Why.
        source: serde_json::Error,
    },
}

/// What a pass works with: the real forge and the real links, or simulated ones.
#[derive(Debug)]
pub struct Engine<R = Repository, L = Mesh> {
    /// The store.
    pub store: Store,
    /// The fleet repo.
    pub repository: R,
    /// The sessions.
    pub mesh: L,
    /// Who signs.
    pub signers: Signers,
    /// Who opens secrets.
    pub vault: Arc<Vault>,
    /// What travels beside declarations.
    pub artifacts: ArtifactStore,
    /// When what nobody names was last taken out of them.
    pub collected_at: Option<Timestamp>,
    /// Who we are.
    pub settings: Settings,
    /// The time.
    pub clock: Clock,
    /// What people and desks read of us.
    pub health: Arc<Health>,
    /// Content that was read before; it never changes under its digest.
    pub contents: Contents,
    /// At which number of changes all content that assignments name was in memory.
    pub read_at: Option<i64>,
    /// How many contents of modules that were.
    pub read_modules: usize,
    /// Since when hosts are judged by what is heard of them (RO-8).
    pub hearing: Hearing,
    /// Puts rollouts away that are over (RO-5).
    pub put_away: PutAway,
}

impl<R: FleetRepo, L: Links> Engine<R, L> {
    /// Runs one pass; says when the next is due although nothing wakes it.
    pub async fn pass(&mut self) -> Option<Timestamp> {
        let jump = self.hearing.begin(self.clock.moment());
        self.say(jump).await;
        self.health.set_hearing(self.hearing.since());
        let result = self.try_pass().await;
        let went = if result.is_ok() { Went::Well } else { Went::Failed };
        let jump = self.hearing.end(self.clock.moment(), went);
        self.say(jump).await;
        match result {
            Ok(next) => {
                self.health.clear("pass");
                self.repository.stored();
                next
            }
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the pass failed and is tried again"
                );
                // What a look had brought may be lost with this pass; the cursor has not moved, so it is found again.
                self.repository.look_again();
                self.health
                    .set("pass", format!("the last pass failed: {}", chain(&error)));
                self.clock
                    .now()
                    .checked_add(jiff::SignedDuration::from_secs(AGAIN_SECS))
                    .ok()
            }
        }
    }

    async fn try_pass(&mut self) -> Result<Option<Timestamp>, PassError> {
        let inbox: Vec<String> = self
            .store
            .inbox_open()
            .await?
            .into_iter()
            // What is of pull requests is for whoever keeps them.
            .filter(|row| !matches!(row.event, Event::PullRequest { .. }))
            .map(|row| row.id)
            .collect();
        let now = self.clock.now();
        let mut news = self
            .repository
            .look(&inbox, &self.store, &self.health, now)
            .await?;
        let recovering = self.store.recovering().await?;
        if recovering.is_some() {
            // No commit becomes an order before numbers may be used again; it is found again then.
            news = News::default();
        }
        let mut next = None;
        let mut moved = Moved::No;
        for _ in 0..ROUNDS {
            let mut act = if news.is_empty() && self.nothing_is_open().await? {
                Act::default()
            } else {
                self.decide_once(&news).await?
            };
            let rest = act.is_empty() && news.is_empty();
            if !rest {
                moved = Moved::Yes;
                match self.carry_out(&mut act, &news).await {
                    Ok(()) if act.recovered => self.repository.look_again(),
                    Ok(()) => {}
                    // Another act came between: decide on what is there now.
                    Err(PassError::Store(StoreError::Moved { .. })) => continue,
                    Err(error) => return Err(error),
                }
            }
            match act.faults.join("; ") {
                faults if faults.is_empty() => self.health.clear("decisions"),
                faults => {
                    tracing::error!(
                        faults,
                        "what could not be decided was ended, or is left as it stands"
                    );
                    self.health.set("decisions", faults);
                }
            }
            for look in &act.looks {
                // A look that is not heard is asked again when it is next due.
                self.mesh.look(look.node, look.id);
            }
            next = act.next_at;
            news = News::default();
            if rest {
                break;
            }
        }
        self.collect_artifacts();
        self.say_recovering().await?;
        if let Err(error) = self.renew_timestamp().await {
            // Everything else is stored; a timestamp is tried again with the next pass.
            self.health
                .set("timestamp", format!("no new timestamp: {}", chain(&error)));
        } else {
            self.health.clear("timestamp");
        }
        let asking = Asking {
            store: &self.store,
            health: &self.health,
            now: self.clock.now(),
        };
        match self.put_away.pass(asking, moved).await {
            Ok(put_away) => {
                self.health.clear("rollouts");
                next = earliest(next, put_away);
            }
            // Nothing is decided on it: a later pass looks again.
            Err(error) => self.health.set(
                "rollouts",
                format!("a rollout is not put away: {}", chain(&error)),
            ),
        }
        Ok(earliest(next, self.repository.next_look()))
    }

    /// Takes out of the artifacts what no assignment names and nobody wanted for a week, once a day (HK-15).
    fn collect_artifacts(&mut self) {
        let now = self.clock.now();
        let is_due = self
            .collected_at
            .is_none_or(|at| now.duration_since(at) >= COLLECT_EVERY);
        // Only what is known to be all that assignments name.
        if !is_due || self.read_at.is_none() {
            return;
        }
        self.collected_at = Some(now);
        let (mut lists, mut wholes) = (BTreeSet::new(), BTreeSet::new());
        let contents = self.contents.modules.values();
        for resource in contents.flat_map(|content| &content.resources) {
            let named = if resource.kind == "bundle" {
                &mut lists
            } else {
                &mut wholes
            };
            named.extend(resource.artifact().map(|artifact| artifact.sha256));
        }
        match self.artifacts.collect((&lists, &wholes), COLLECT_AGE, now) {
            Ok(0) => {}
            Ok(gone) => tracing::info!(gone, "artifacts that nobody names are gone"),
            Err(error) => tracing::warn!(%error, "artifacts that nobody names stay"),
        }
    }

    /// Says for whom a recovery waits, as long as it does (SG-8).
    async fn say_recovering(&self) -> Result<(), PassError> {
        let Some(recovering) = self.store.recovering().await? else {
            self.health.clear(RECOVERING);
            return Ok(());
        };
        let nodes = self.store.nodes().await?;
        let list = self.health.list();
        let awaited = list.map_or_else(Vec::new, |list| recovering.awaited(&list, &nodes));
        self.health.set(RECOVERING, recovering.words(&awaited));
        Ok(())
    }

    /// Says in the journal that the clocks have parted.
    async fn say(&self, jump: Option<Jump>) {
        let Some(event) = jump.map(|jump| events::jumped(jump, self.clock.now())) else {
            return;
        };
        tracing::warn!(reason = event.reason, "{}", event.event.word());
        if let Err(error) = self.store.add_event(&event).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "it stands in no journal"
            );
        }
    }

    /// Whether there is nothing to decide about: no delivery on its way, no question of a person. What is heard of
    /// nodes and what time it is matter to those alone, so a pass of a fleet at rest reads no node of it. After a start
    /// the newest tree is read all the same.
    async fn nothing_is_open(&self) -> Result<bool, PassError> {
        Ok(self.health.roster().is_some() && !self.store.anything_open().await?)
    }

    /// Gathers and decides.
    async fn decide_once(&mut self, news: &News) -> Result<Act, PassError> {
        let mut snapshot = self.store.snapshot().await?;
        snapshot.connected = self.mesh.connected().into_iter().collect();
        snapshot.of_components = self.store.names_beside(&self.settings.repo).await?;
        let made = self.made(&snapshot, news).await?;
        let trees = self.trees(&snapshot, news, &made).await;
        self.read_contents(&snapshot).await?;
        let formers = self.formers(&snapshot, &trees, news, &made).await;
        let signatures = self.signatures(&snapshot, &trees, news, &made).await;
        let known = Known {
            snapshot: &snapshot,
            trees: &trees,
            contents: &self.contents,
            formers: &formers,
            signatures: &signatures,
            settings: &self.settings,
            news: &news.commits,
            left: &news.left,
            now: self.clock.now(),
            serving_since: self.hearing.since(),
        };
        let mut act = decide(&known)?;
        act.events = events::of(&snapshot, &act, known.now);
        Ok(act)
    }

    /// Reads content that assignments, accepted scopes and walks name and that is not in memory yet.
    async fn read_contents(&mut self, snapshot: &Snapshot) -> Result<(), PassError> {
        // A walk keeps content of another commit for nodes that do not have it yet.
        let open = snapshot.deliveries.values().filter(|d| !d.state.is_final());
        let walked = open.flat_map(|d| &d.legs).filter(|leg| leg.from.is_some());
        let walked: BTreeSet<Digest> = walked
            .flat_map(|leg| leg.nodes.values().filter_map(|c| c.after))
            .collect();
        let unknown = walked
            .iter()
            .filter(|digest| !self.contents.modules.contains_key(digest));
        let mut missing: Vec<(bool, Digest)> = unknown.map(|digest| (false, *digest)).collect();
        let texts = snapshot.accepted.get(&Scope::Policy).map(|c| c.digest);
        let known = self.read_at.is_some() && self.read_at == snapshot.changes;
        if !known || self.contents.modules.len() > 2 * self.read_modules + SPARE_CONTENTS {
            let assigned = snapshot.assignments.iter();
            let assigned = assigned
                .flat_map(|((_, scope), a)| a.contents().map(move |c| (*scope == Scope::Policy, c.digest)));
            let named: BTreeSet<(bool, Digest)> = assigned
                .chain(walked.iter().map(|digest| (false, *digest)))
                .collect();
            let contents = &mut self.contents;
            contents
                .modules
                .retain(|digest, _| named.contains(&(false, *digest)));
            contents
                .policies
                .retain(|digest, _| named.contains(&(true, *digest)));
            let unread = |(policy, digest): &(bool, Digest)| {
                if *policy {
                    !contents.policies.contains_key(digest)
                } else {
                    !contents.modules.contains_key(digest)
                }
            };
            missing = named.into_iter().filter(unread).collect();
        }
        for (policy, digest) in missing {
            if let Some(bytes) = self.store.content(digest).await? {
                self.take_content(policy, digest, &bytes)?;
            }
        }
        if !known {
            self.read_modules = self.contents.modules.len();
        }
        self.read_at = snapshot.changes;
        if let Some(digest) = texts.filter(|d| !self.contents.texts.contains_key(d))
            && let Some(bytes) = self.store.content(digest).await?
        {
            let text: String =
                serde_json::from_slice(&bytes).map_err(|source| PassError::Content { digest, source })?;
            self.contents.texts.insert(digest, text.into());
        }
        Ok(())
    }

    fn take_content(&mut self, policy: bool, digest: Digest, bytes: &[u8]) -> Result<(), PassError> {
        let wrong = |source| PassError::Content { digest, source };
        if policy {
            let content = serde_json::from_slice(bytes).map_err(wrong)?;
            self.contents.policies.insert(digest, Arc::new(content));
        } else {
            let content: ModuleContent = serde_json::from_slice(bytes).map_err(wrong)?;
            self.contents.modules.insert(digest, Arc::new(content));
        }
        Ok(())
    }

    /// What an act assigns is content that it brings, or that was assigned before: nothing has to be read for it.
    fn take_assigned(&mut self, act: &Act, changed: Changed) -> Result<(), PassError> {
        if self.read_at.is_none() || self.read_at != changed.before {
            return Ok(());
        }
        self.read_at = None;
        for ((_, scope), assignment) in &act.assignments {
            let content = assignment.iter().flat_map(Assignment::contents);
            for digest in content.map(|c| c.digest) {
                let policy = *scope == Scope::Policy;
                let known = if policy {
                    self.contents.policies.contains_key(&digest)
                } else {
                    self.contents.modules.contains_key(&digest)
                };
                match act.contents.get(&digest) {
                    _ if known => {}
                    Some(bytes) => self.take_content(policy, digest, bytes)?,
                    // The next pass reads all that is named.
                    None => return Ok(()),
                }
            }
        }
        self.read_at = changed.after;
        Ok(())
    }

    /// Signs, stores in one transaction, publishes.
    async fn carry_out(&mut self, act: &mut Act, news: &News) -> Result<(), PassError> {
        let values = self.seal_values(act).await?;
        let signed = Signed {
            values,
            ..self.signers.sign(act)?
        };
        // Before an order names them.
        if !act.artifacts.is_empty() {
            let (store, artifacts, now) = (self.artifacts.clone(), act.artifacts.clone(), self.clock.now());
            let kept = tokio::task::spawn_blocking(move || store.put(&artifacts, now)).await;
            kept.map_err(std::io::Error::other)
                .flatten()
                .map_err(PassError::Artifacts)?;
        }
        fail::fail_point!("pass-before-store");
        let changed = self
            .store
            .commit(act, &signed, &news.cursors, &news.handled)
            .await?;
        self.take_assigned(act, changed)?;
        fail::fail_point!("pass-after-store");
        if !signed.blocks.is_empty() {
            self.repository.notes_are_due();
        }
        if !signed.orders.is_empty() {
            self.mesh.publish();
        }
        for transition in &act.transitions {
            tracing::info!(
                commit = transition.commit.short(),
                from = transition.from.map(|s| s.word()),
                to = transition.to.word(),
                code = transition.code.word(),
                actor = transition.actor,
                reason = transition.reason,
                "transition"
            );
        }
        for e in &act.events {
            let (rollout_id, node, epoch) = (&e.rollout_id, &e.node, e.epoch);
            tracing::info!(rollout_id, node, epoch, reason = e.reason, "{}", e.event.word());
        }
        fail::fail_point!("pass-after-publish");
        Ok(())
    }

    /// Makes a timestamp when the head is new, or the last one is a day old (SG-9).
    async fn renew_timestamp(&self) -> Result<(), PassError> {
        let Some(head) = self.store.newest_head().await? else {
            return Ok(());
        };
        if self.store.recovering().await?.is_some() {
            return Ok(());
        }
        let now = self.clock.now().as_second();
        let last = self.store.newest_timestamp().await?;
        let last = last.and_then(|t| Envelope::read(t.envelope.as_bytes()).ok());
        let last: Option<TimestampPayload> = last.and_then(|e| serde_json::from_slice(&e.payload).ok());
        let Some(issued_at) = freshness::next_issue(last.as_ref(), head.digest, now) else {
            return Ok(());
        };
        let valid_secs = self
            .health
            .roster()
            .map_or(TIMESTAMP_VALID_SECS, |tree| tree.fleet.timestamp_valid_secs);
        let block = self.store.newest_block().await?;
        let payload = TimestampPayload {
            schema: SCHEMA,
            fleet: self.settings.fleet.clone(),
            era: self.settings.era,
            issued_at,
            must_understand: Vec::new(),
            revision: head.number,
            head: head.digest,
            block,
            valid_to: now + i64::from(valid_secs),
        };
        let number = u64::try_from(issued_at).unwrap_or(0);
        let order = signing::sealed_for(
            &payload,
            &*self.signers.timestamp,
            OrderKind::Timestamp,
            number,
            None,
            payload.issued_at,
        )?;
        self.store.put_timestamp(&order).await?;
        self.mesh.publish();
        Ok(())
    }
}

fn earliest(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// An error and what caused it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
