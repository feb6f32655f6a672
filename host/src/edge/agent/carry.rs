//! Carries out what was decided, in its order.

use meshplan_schemas::ident::ModuleName;
use meshplan_schemas::report::Cause;

use super::*;
use crate::edge::capabilities::PATIENCE;
use crate::edge::{boot, probe_run};
use crate::pure::agent::Effect;
use crate::pure::report::{Facts, compose};

/// Requests of people on this machine, a file each (HR-12).
pub(crate) const REQUESTS: &str = "requests";
/// Before the module's name.
pub(crate) const TAKE: &str = "take-";

impl Shell {
    pub(super) fn carry(&mut self, effects: Vec<Effect>, now: i64) -> Result<(), RunError> {
        for effect in effects {
            match effect {
                Effect::SaveMarks(value) => {
                    let (marks, anchor) = *value;
                    let file = MarksFile { marks, anchor };
                    self.with_room(|shell| shell.marks.write(&*shell.disk, &file))?;
                }
                Effect::Keep(slot, text) => self.put(slot, Some(text))?,
                Effect::Drop(slot) => self.put(slot, None)?,
                Effect::SaveStanding => self.save_standing()?,
                Effect::SaveKnownBad => self.save_known_bad()?,
                Effect::Journal(entry) => self.journal.write(now, &entry),
                Effect::Say(word) => self.to_link.push_back(ToLink::Say(word)),
                Effect::Renew => {
                    self.renewing += 1;
                    self.to_link.push_back(ToLink::Renew);
                }
                Effect::Fetch(kept) => self.begin_fetch(&kept.payload, kept.digest),
                Effect::Machine(job) => self.jobs.push_back(job),
                Effect::AskProbes(purpose, probes) => {
                    let (root, probed) = (self.setup.root.clone(), self.probed.clone());
                    tokio::spawn(async move {
                        let lines = probe_run::ask(probes, &root).await;
                        // Nobody listens any more only when the host ends.
                        let _ended = probed.send(Event::Probed { purpose, lines });
                    });
                }
                Effect::Report(cause) => self.report(cause, now)?,
            }
        }
        Ok(())
    }

    fn report(&mut self, cause: Cause, now: i64) -> Result<(), RunError> {
        let heartbeat = cause == Cause::Heartbeat;
        // Small, and its loss is fine: one that cannot be said now is not made.
        if heartbeat && !self.reporter.lets_heartbeat_pass() {
            return Ok(());
        }
        let counter = match self.reporter.counter() {
            Ok(counter) => counter,
            Err(error) => {
                tracing::error!(%error, "no report can be counted, so none is made");
                return Ok(());
            }
        };
        if !heartbeat {
            let synchronised = self.asker.afresh(PATIENCE).synchronised;
            // Between two looks at the wall clock the host keeps its own time, which nobody has checked.
            self.agent
                .trust_clock(synchronised.map(|yes| yes && !self.clock.parted()));
        }
        let facts = self.facts(counter);
        let report = compose(&self.agent, cause, facts, now);
        let said = if heartbeat {
            Reporter::once(&report, &self.signer).map(|word| vec![word])
        } else {
            self.reporter.spool(&report, &self.signer, now)
        };
        match said {
            Err(error) => tracing::error!(%error, "a report could not be signed"),
            Ok(words) => {
                self.say(words);
                if !report.refused.is_empty() {
                    self.agent.refusals_said();
                    self.save_standing()?;
                }
            }
        }
        Ok(())
    }

    fn facts(&self, counter: u64) -> Facts {
        Facts {
            counter,
            boot_id: self.boot_id.clone(),
            instance: self.instance.clone(),
            started_at: self.started_at,
            host_version: boot::version().to_string(),
            launcher_version: boot::launcher_version(),
            capabilities: self.asker.last().capabilities.clone(),
            filters: self.asker.last().filters.lines.clone(),
            firewalls: self.asker.last().filters.firewalls.clone(),
            take_requests: self.take_requests(),
            disk_free_bytes: boot::disk_free_bytes(&self.setup.state_dir),
            load_hundredths: boot::load_hundredths(),
        }
    }

    /// What people have asked for on this machine; a request that was granted is done with.
    fn take_requests(&self) -> Vec<ModuleName> {
        let folder = self.setup.state_dir.join(REQUESTS);
        let Ok(files) = std::fs::read_dir(&folder) else {
            return Vec::new();
        };
        let mut modules: Vec<ModuleName> = files
            .filter_map(|file| {
                let name = file.ok()?.file_name();
                name.to_str()?.strip_prefix(TAKE)?.parse().ok()
            })
            .collect();
        modules.sort_unstable();
        let confirmed = self.agent.orders().confirmed.as_ref();
        modules.retain(|module| {
            let granted = confirmed.is_some_and(|c| c.payload.take.contains(module));
            if granted {
                // One that stays is left out of each report all the same.
                let _gone = std::fs::remove_file(folder.join(format!("{TAKE}{module}")));
            }
            !granted
        });
        modules
    }
}
