//! Reports on their way: counted, signed, spooled on disk, said in order, deleted when they are stored (HR-11, B49).
//!
//! It stands alone because reporting is never tied to applying: a report that is lost, refused or said twice changes
//! nothing on the machine. Which one is said next is decided in [`crate::pure::outbound`].

use std::collections::BTreeMap;
use std::sync::Arc;

use meshplan_schemas::envelope::{SignError, Signer, seal};
use meshplan_schemas::limits::{REPORT_QUEUE, REPORT_QUEUE_BYTES};
use meshplan_schemas::report::Report;
use meshplan_schemas::wire::FromHost;
use serde::{Deserialize, Serialize};

use super::checked::{self, Found, path};
use super::disk::{Disk, DiskError, Owner, atomic};
use super::marks::{self, Held, Pair};
use crate::pure::outbound::{Bound, Effect, Event, Outbound};
use crate::pure::target_path::TargetPath;

const SPOOL: &str = "/spool";
const ASIDE: &str = "/spool-aside";
/// So many numbers are taken from the disk at once; after a crash the rest of them is never used.
const BLOCK: u64 = 32;
/// So many more may be given out while the disk takes none; a start goes on above all of them.
const UNKEPT: u64 = 10_000;
/// The most reports that wait in memory when the disk takes none.
const UNSPOOLED: usize = 100;
/// The most that waits on disk.
const SPOOLED: Bound = Bound {
    reports: REPORT_QUEUE,
    bytes: REPORT_QUEUE_BYTES,
};
/// The most rejected reports that are kept.
const KEPT_ASIDE: usize = 100;

/// Why a report cannot be made or kept.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The signature.
    #[error(transparent)]
    Sign(#[from] SignError),
}

/// A report that the reconciler will never take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aside {
    /// Its counter.
    pub counter: u64,
    /// Why, in the reconciler's words.
    pub reason: String,
    /// Unix seconds.
    pub at: i64,
    /// Its envelope.
    pub envelope: String,
}

/// What waits in a state folder, as a person sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Waiting {
    /// The counters of reports that are not acknowledged, in order.
    pub queued: Vec<u64>,
    /// Counter and reason of reports that were rejected.
    pub set_aside: Vec<(u64, String)>,
}

/// The reporter.
#[derive(Debug)]
pub struct Reporter {
    disk: Arc<dyn Disk>,
    pair: Pair<u64>,
    /// The last counter that was given out.
    used: u64,
    /// Counters up to here may be given out without the disk.
    reserved: u64,
    queue: Outbound,
    /// Reports that the disk did not take, said from memory.
    unspooled: BTreeMap<u64, String>,
}

impl Reporter {
    /// Opens the spool of a state folder. The sentences tell what was damaged.
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn open(disk: Arc<dyn Disk>, now: i64) -> Result<(Self, Vec<String>), DiskError> {
        for folder in [SPOOL, ASIDE] {
            atomic::put_folder(&*disk, &path(folder), 0o700, Owner::default())?;
        }
        let mut broken = Vec::new();
        let mut counters = Vec::new();
        for counter in listed(&*disk, SPOOL)? {
            match checked::read(&*disk, &report(SPOOL, counter)) {
                Found::Whole(text) => counters.push((counter, text.len() as u64)),
                // It was never said, or is in the reconciler's hands already: nothing can be said with it.
                Found::Broken(why) => {
                    broken.push(why);
                    atomic::remove_file(&*disk, &report(SPOOL, counter))?;
                }
                Found::Missing => {}
            }
        }
        let mut pair = marks::counter();
        let used = match pair.read(&*disk) {
            Held::Value(value, words) => {
                broken.extend(words);
                // The file that is whole may be the one before; and the disk may have taken none after it.
                value.saturating_add(BLOCK).saturating_add(UNKEPT)
            }
            Held::Never if counters.is_empty() => 0,
            // Lost, and it may never fall: seconds grow faster than reports are made, so the present one lies above
            // every counter that was ever used here.
            Held::Never | Held::Lost(_) => {
                broken.push("the counter of reports was lost; it goes on from the time".to_owned());
                u64::try_from(now).unwrap_or(0)
            }
        };
        let used = counters.iter().map(|(counter, _)| *counter).fold(used, u64::max);
        let reporter = Self {
            disk,
            pair,
            used,
            reserved: used,
            queue: Outbound::new(counters),
            unspooled: BTreeMap::new(),
        };
        Ok((reporter, broken))
    }

    /// The next counter: on disk before it is used, or below what every start goes on above; never given out twice.
    ///
    /// # Errors
    /// [`DiskError`]; no counter was given out.
    pub fn counter(&mut self) -> Result<u64, DiskError> {
        if self.used >= self.reserved {
            let reserved = self.used.saturating_add(BLOCK);
            match self.pair.write(&*self.disk, &reserved) {
                Ok(()) => self.reserved = reserved,
                Err(e) if self.used - self.reserved >= UNKEPT => return Err(e),
                // A failure must be told though the disk is full (B40).
                Err(error) => {
                    tracing::warn!(%error, "the counter of reports cannot be kept; it is kept in memory");
                }
            }
        }
        self.used += 1;
        Ok(self.used)
    }

    /// Whether a heartbeat may be said now.
    #[must_use]
    pub fn lets_heartbeat_pass(&self) -> bool {
        self.queue.lets_heartbeat_pass()
    }

    /// Whether reports wait.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Signs a report that is not kept: a heartbeat.
    ///
    /// # Errors
    /// [`SignError`].
    pub fn once(report: &Report, signer: &dyn Signer) -> Result<FromHost, SignError> {
        Ok(word(report.counter, text(report, signer)?))
    }

    /// Signs and spools a report; what is to be said now.
    ///
    /// # Errors
    /// The signature; a disk that takes nothing is none, the report waits in memory then.
    pub fn spool(
        &mut self,
        made: &Report,
        signer: &dyn Signer,
        now: i64,
    ) -> Result<Vec<FromHost>, SignError> {
        let counter = made.counter;
        let text = text(made, signer)?;
        let bytes = text.len() as u64;
        if let Err(error) = checked::write(&*self.disk, &report(SPOOL, counter), &text) {
            tracing::error!(%error, counter, "the report cannot be kept on disk; it waits in memory");
            self.unspooled.insert(counter, text);
            while self.unspooled.len() > UNSPOOLED {
                self.unspooled.pop_first();
            }
        }
        let said = self.on(Event::Queued { counter, bytes }, now, "");
        while let Some(oldest) = self.queue.overflow(SPOOLED) {
            tracing::warn!(counter = oldest, "too many reports wait; the oldest is dropped");
            self.delete(oldest);
        }
        Ok(said)
    }

    /// Takes an event of the link or of time; what is to be said now.
    pub fn on(&mut self, event: Event, now: i64, reason: &str) -> Vec<FromHost> {
        let mut said = Vec::new();
        let mut effects = self.queue.on(event, now);
        while !effects.is_empty() {
            let mut more = Vec::new();
            for effect in effects {
                match effect {
                    Effect::Delete(counter) => self.delete(counter),
                    Effect::SetAside(counter) => self.set_aside(counter, reason, now),
                    Effect::Say(counter) => match self.read(counter) {
                        Some(text) => said.push(word(counter, text)),
                        None => more.extend(self.queue.on(Event::Reject(counter), now)),
                    },
                }
            }
            effects = more;
        }
        said
    }

    fn read(&self, counter: u64) -> Option<String> {
        if let Some(text) = self.unspooled.get(&counter) {
            return Some(text.clone());
        }
        match checked::read(&*self.disk, &report(SPOOL, counter)) {
            Found::Whole(text) => Some(text),
            Found::Missing | Found::Broken(_) => None,
        }
    }

    fn delete(&mut self, counter: u64) {
        self.unspooled.remove(&counter);
        if let Err(error) = atomic::remove_file(&*self.disk, &report(SPOOL, counter)) {
            // It is said again after the next start, and the reconciler knows its counter.
            tracing::warn!(%error, counter, "a stored report cannot be deleted");
        }
    }

    fn set_aside(&mut self, counter: u64, reason: &str, now: i64) {
        let aside = Aside {
            counter,
            reason: reason.to_owned(),
            at: now,
            envelope: self.read(counter).unwrap_or_default(),
        };
        tracing::warn!(
            counter,
            reason,
            "the reconciler will never take this report; it is set aside"
        );
        let text = serde_json::to_string(&aside).unwrap_or_default();
        if let Err(error) = checked::write(&*self.disk, &report(ASIDE, counter), &text) {
            tracing::warn!(%error, counter, "the rejected report cannot be kept");
        }
        self.delete(counter);
        let kept = listed(&*self.disk, ASIDE).unwrap_or_default();
        for oldest in kept.iter().take(kept.len().saturating_sub(KEPT_ASIDE)) {
            let _kept_longer = atomic::remove_file(&*self.disk, &report(ASIDE, *oldest));
        }
    }
}

/// What waits and what was set aside; for people, without the lock.
///
/// # Errors
/// [`DiskError`].
pub fn waiting(disk: &dyn Disk) -> Result<Waiting, DiskError> {
    let set_aside = listed(disk, ASIDE)?
        .into_iter()
        .map(|counter| {
            let reason = match checked::read(disk, &report(ASIDE, counter)) {
                Found::Whole(text) => serde_json::from_str::<Aside>(&text).map(|a| a.reason).ok(),
                Found::Missing | Found::Broken(_) => None,
            };
            (
                counter,
                reason.unwrap_or_else(|| "its file is damaged".to_owned()),
            )
        })
        .collect();
    Ok(Waiting {
        queued: listed(disk, SPOOL)?,
        set_aside,
    })
}

fn text(report: &Report, signer: &dyn Signer) -> Result<String, SignError> {
    let bytes = seal(report, signer)?;
    String::from_utf8(bytes).map_err(|e| SignError(e.to_string()))
}

fn word(counter: u64, envelope: String) -> FromHost {
    FromHost::Report { counter, envelope }
}

fn report(folder: &str, counter: u64) -> TargetPath {
    path(&format!("{folder}/{counter:020}"))
}

/// The counters in a folder, lowest first; other names are not ours.
fn listed(disk: &dyn Disk, folder: &str) -> Result<Vec<u64>, DiskError> {
    let folder = path(folder);
    if disk.stat(&folder)?.is_none() {
        return Ok(Vec::new());
    }
    let mut counters: Vec<u64> = disk
        .list(Some(&folder))?
        .iter()
        .filter(|name| name.len() == 20)
        .filter_map(|name| name.parse().ok())
        .collect();
    counters.sort_unstable();
    Ok(counters)
}

#[cfg(test)]
mod tests;
