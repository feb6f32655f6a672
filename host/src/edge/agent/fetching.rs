//! Fetches what an order's archives and bundles are made of (HK-15): what [`Fetch`] decides, done beside everything else.
//!
//! The disk is read and checked on threads that may wait; a fetch that was given up for a newer order is not listened to
//! any more. Invariant: an order is said to be stocked only when all of it was checked and synced.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64;
use meshplan_schemas::artifact::FileList;
use meshplan_schemas::declaration::Declaration;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::wire::FromHost;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{RunError, Shell};
use crate::edge::artifacts::Artifacts;
use crate::edge::disk::{Disk, DiskError};
use crate::pure::agent::Event;
use crate::pure::fetch::{Fetch, Need, Step};

/// The fetch that is under way, and who does its work on the disk.
#[derive(Debug)]
pub(super) struct Fetching {
    fetch: Option<Fetch>,
    /// How much of the first artifact ahead is on the disk, once somebody has looked.
    begun: Option<u64>,
    /// Work on the disk is under way.
    is_busy: bool,
    /// A session stands.
    is_linked: bool,
    /// Something was fetched since what nobody names was taken away.
    is_stocked: bool,
    /// When there is something to do by time alone.
    due: Option<Instant>,
    since: Instant,
    done: mpsc::UnboundedSender<(Digest, Worked)>,
    works: mpsc::UnboundedReceiver<(Digest, Worked)>,
}

/// What came of work on the disk for an order.
#[derive(Debug)]
pub(super) enum Worked {
    /// So much of an artifact is there; none when it is there whole, with the files that it names.
    Looked(Result<Option<u64>, DiskError>, Option<Result<FileList, String>>),
    /// What was fetched does not have the digest, and is gone.
    Spoiled,
    /// All is on the disk.
    Synced(Result<(), DiskError>),
}

impl Default for Fetching {
    fn default() -> Self {
        let (done, works) = mpsc::unbounded_channel();
        Self {
            fetch: None,
            begun: None,
            is_busy: false,
            is_linked: false,
            is_stocked: false,
            due: None,
            since: Instant::now(),
            done,
            works,
        }
    }
}

impl Fetching {
    /// The next work on the disk that is done. Cancel-safe.
    pub(super) async fn worked(&mut self) -> Option<(Digest, Worked)> {
        self.works.recv().await
    }

    /// When there is something to do by time alone.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    fn work(&mut self, disk: &Arc<dyn Disk>, work: impl FnOnce(&dyn Disk) -> Worked + Send + 'static) {
        let Some(order) = self.fetch.as_ref().map(Fetch::order) else {
            return;
        };
        self.is_busy = true;
        let (disk, done) = (Arc::clone(disk), self.done.clone());
        tokio::task::spawn_blocking(move || {
            // Nobody listens any more only when the host ends.
            let _ended = done.send((order, work(&*disk)));
        });
    }
}

/// Room that fetching leaves on the state folder's disk, in bytes.
const LEFT_BYTES: u64 = 64 << 20;

/// In words that there is no room for so many bytes more; none where there is, or nobody can tell.
fn lacking(state: &dyn Disk, bytes: u64) -> Option<String> {
    let free = state.space(None).ok()?.free_bytes;
    (free < bytes.saturating_add(LEFT_BYTES)).then(|| {
        format!("no room for what is fetched: {free} bytes are free in the state folder, and {LEFT_BYTES} are left alone")
    })
}

fn looked(disk: &dyn Disk, need: &Need) -> Worked {
    let artifacts = Artifacts(disk);
    let begun = artifacts.begun(need.sha256);
    let list = (need.is_list && matches!(begun, Ok(None))).then(|| artifacts.list(need.sha256));
    Worked::Looked(begun, list)
}

fn finished(disk: &dyn Disk, need: &Need) -> Worked {
    match Artifacts(disk).finish(need.sha256) {
        Ok(true) => looked(disk, need),
        Ok(false) => Worked::Spoiled,
        Err(e) => Worked::Looked(Err(e), None),
    }
}

/// The artifacts of a declaration that are lists of files, and the others.
fn named(declaration: &Declaration) -> (BTreeSet<Digest>, BTreeSet<Digest>) {
    let resources = declaration.resources.iter();
    let named =
        resources.filter_map(|resource| Some((resource.kind == "bundle", resource.artifact()?.sha256)));
    let (lists, wholes): (Vec<_>, Vec<_>) = named.partition(|(is_list, _)| *is_list);
    let digests = |named: Vec<(bool, Digest)>| named.into_iter().map(|(_, digest)| digest).collect();
    (digests(lists), digests(wholes))
}

impl Shell {
    pub(super) fn begin_fetch(&mut self, declaration: &Declaration, order: Digest) {
        let (lists, _) = named(declaration);
        self.fetching.fetch = Some(Fetch::new(order, &declaration.artifacts, &lists));
        self.fetching.begun = None;
        // Work that is under way is waited for: two of them would meet on one artifact.
    }

    pub(super) fn fetch_linked(&mut self, is_linked: bool) {
        self.fetching.is_linked = is_linked;
        if let Some(fetch) = &mut self.fetching.fetch {
            fetch.line_lost();
        }
    }

    /// Does what there is to do for the fetch now.
    pub(super) fn fetch_on(&mut self) -> Result<(), RunError> {
        let pace = self.agent.duties().artifact_kib_per_sec;
        let fetching = &mut self.fetching;
        fetching.due = None;
        let (Some(fetch), false) = (&mut fetching.fetch, fetching.is_busy) else {
            return Ok(());
        };
        let now = fetching.since.elapsed();
        // Nothing is asked without a session; a look, and what ends the fetch, needs none.
        let step = match (fetching.begun, fetching.is_linked) {
            (Some(begun), false) if fetch.lacks(begun) => Step::Wait(None),
            (begun, _) => fetch.step(begun, now, pace),
        };
        match step {
            Step::Look(need) => fetching.work(&self.disk, move |disk| looked(disk, &need)),
            Step::Finish(need) => fetching.work(&self.disk, move |disk| finished(disk, &need)),
            Step::Ask {
                artifact,
                offset,
                length,
            } => {
                if let Some(why) = lacking(&*self.disk, u64::from(length)) {
                    return self.fetch_ended(Some(why));
                }
                fetching.due = Some(Instant::now() + Duration::from_secs(1));
                self.say([FromHost::Fetch {
                    artifact,
                    offset,
                    length,
                }]);
            }
            Step::Wait(wait) => fetching.due = wait.map(|wait| Instant::now() + wait),
            Step::Done => fetching.work(&self.disk, |disk| Worked::Synced(Artifacts(disk).sync())),
            Step::Failed(why) => return self.fetch_ended(Some(why)),
        }
        Ok(())
    }

    fn fetch_ended(&mut self, fault: Option<String>) -> Result<(), RunError> {
        self.fetching.is_stocked = true;
        match self.fetching.fetch.take() {
            Some(fetch) => self.event(Event::Fetched {
                order: fetch.order(),
                fault,
            }),
            None => Ok(()),
        }
    }

    /// A piece came.
    pub(super) fn fetch_piece(
        &mut self,
        artifact: Digest,
        (offset, size_bytes): (u64, u64),
        text: &str,
    ) -> Result<(), RunError> {
        let Some(fetch) = &mut self.fetching.fetch else {
            return Ok(());
        };
        let Ok(bytes) = BASE64.decode(text.as_bytes()) else {
            return self.fetch_ended(Some(format!("the reconciler's piece of {artifact} is no base64")));
        };
        match fetch.piece(artifact, offset, size_bytes, bytes.len()) {
            Ok(false) => Ok(()),
            Err(why) => self.fetch_ended(Some(why)),
            Ok(true) => match Artifacts(&*self.disk).add(artifact, &bytes) {
                Ok(()) => {
                    self.fetching.begun = Some(offset + bytes.len() as u64);
                    Ok(())
                }
                Err(e) => self.fetch_ended(Some(format!("what is fetched cannot be kept: {e}"))),
            },
        }
    }

    /// The reconciler does not have what was asked for.
    pub(super) fn fetch_absent(&mut self, artifact: Digest) -> Result<(), RunError> {
        let fetch = self.fetching.fetch.as_mut();
        match fetch.and_then(|fetch| fetch.absent(artifact)) {
            Some(why) => self.fetch_ended(Some(why)),
            None => Ok(()),
        }
    }

    /// Work on the disk is done.
    pub(super) fn fetch_worked(&mut self, order: Digest, worked: Worked) -> Result<(), RunError> {
        self.fetching.is_busy = false;
        let fetch = (self.fetching.fetch.as_mut()).filter(|fetch| fetch.order() == order);
        let Some(fetch) = fetch else { return Ok(()) };
        let fault = match worked {
            Worked::Looked(Ok(None), list) => match list.transpose() {
                Ok(list) => {
                    fetch.here(list.as_ref());
                    self.fetching.begun = None;
                    None
                }
                Err(why) => Some(why),
            },
            Worked::Looked(Ok(begun), _) => {
                self.fetching.begun = begun;
                None
            }
            Worked::Spoiled => {
                self.fetching.begun = Some(0);
                fetch.spoiled().err()
            }
            Worked::Synced(Ok(())) => return self.fetch_ended(None),
            Worked::Looked(Err(e), _) | Worked::Synced(Err(e)) => {
                Some(format!("what is fetched cannot be kept: {e}"))
            }
        };
        match fault {
            Some(why) => self.fetch_ended(Some(why)),
            None => Ok(()),
        }
    }

    /// What the newest orders do not name is set aside, once nothing is being done with it.
    pub(super) fn collect_artifacts(&mut self) {
        let orders = self.agent.orders();
        let is_calm =
            self.machine.is_some() && self.jobs.is_empty() && self.agent.standing().window.is_none();
        let is_fetching = self.fetching.fetch.is_some() || self.fetching.is_busy;
        if !is_calm || is_fetching || !std::mem::take(&mut self.fetching.is_stocked) {
            return;
        }
        let newest = [&orders.declaration, &orders.confirmed, &orders.trying];
        let (mut lists, mut wholes) = (BTreeSet::new(), BTreeSet::new());
        for kept in newest.into_iter().flatten() {
            let (more_lists, more_wholes) = named(&kept.payload);
            lists.extend(more_lists);
            wholes.extend(more_wholes);
        }
        // No fetch looks at them meanwhile.
        self.fetching.is_busy = true;
        let (disk, done) = (Arc::clone(&self.disk), self.fetching.done.clone());
        tokio::task::spawn_blocking(move || {
            let collected = Artifacts(&*disk).collect(&lists, &wholes);
            if let Err(error) = &collected {
                tracing::warn!(%error, "artifacts that nobody names stay");
            }
            // For no order: nothing waits for it but the next work.
            let _ended = done.send((Digest::of(b""), Worked::Synced(collected)));
        });
    }
}
