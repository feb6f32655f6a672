//! The effective policy, behind the same window as a declaration (EP-2, FR-7).

use std::collections::BTreeMap;

use meshplan_schemas::digest::Digest;

use super::verdict::Barred;
use super::{Applied, End, LedgerState, Machine, MachineError, Order, Window, WindowState, path_of, room};
use crate::edge::disk::{Disk, NewFile, Owner, atomic};
use crate::edge::failpoint::cut;
use crate::edge::ledger::json;
use crate::edge::observe::observe;
use crate::edge::window;
use crate::pure::commit_confirm::WINDOW_VERSION;
use crate::pure::confirm::Reason;
use crate::pure::inverse::{Before, Place, journal};
use crate::pure::observed::Observed;
use crate::pure::record::PolicyRecord;
use crate::pure::target_path::TargetPath;

/// The mode of the policy file: other programs read it.
const POLICY_MODE: u32 = 0o644;

impl Machine {
    /// The effective policy as it stands in the state folder; none before the first.
    ///
    /// # Errors
    /// The disk could not tell.
    pub fn policy(&self) -> Result<Option<Vec<u8>>, MachineError> {
        let path = path_of("/policy.toml");
        match self.state().stat(&path)? {
            None => Ok(None),
            Some(_) => Ok(Some(self.state().read(&path)?)),
        }
    }

    /// Writes the effective policy of an epoch to `policy.toml` of the state folder and to `policy_out`. `End` is
    /// `Converged` when the bytes stand there already (nothing is written then).
    ///
    /// # Errors
    /// As [`Machine::apply`].
    pub fn apply_policy(
        &mut self,
        text: &str,
        epoch: u64,
        apply_secs: u32,
        now: i64,
    ) -> Result<Applied, MachineError> {
        self.ready(Barred::GiveUp)?;
        let applied = self.policy_behind(text, epoch, apply_secs, now);
        self.broke_off(applied, now)
    }

    fn policy_behind(
        &mut self,
        text: &str,
        epoch: u64,
        apply_secs: u32,
        now: i64,
    ) -> Result<Applied, MachineError> {
        let ended = |end, failed| Applied {
            end,
            lines: Vec::new(),
            held: Vec::new(),
            failed,
        };
        let mut places = vec![(Place::State, path_of("/policy.toml"))];
        places.extend(self.setup.policy_out.clone().map(|path| (Place::Root, path)));
        let mut due = Vec::new();
        for (place, path) in places {
            match observe(self.place(place), &path) {
                Observed::File { bytes, mode, .. } if bytes == text.as_bytes() && mode == POLICY_MODE => {}
                there @ (Observed::Absent | Observed::File { .. } | Observed::Link { .. }) => {
                    due.push((place, path, there));
                }
                other => {
                    let why = format!(
                        "the policy file {path} cannot be written: {} is there",
                        other.word()
                    );
                    return Ok(ended(End::NotBegun { why }, true));
                }
            }
        }
        if due.is_empty() {
            return Ok(ended(End::Converged, false));
        }
        let digest = Digest::of(text.as_bytes());
        let window = Window {
            version: WINDOW_VERSION,
            boot_id: self.setup.boot_id.clone(),
            order: Order::Policy { epoch, digest },
            opened_at: now,
            apply_deadline: now.saturating_add(i64::from(apply_secs)),
            confirm_deadline: None,
            state: WindowState::Applying,
        };
        if let Some(why) = self.begin_policy(&due, text, &window)? {
            return Ok(ended(End::NotBegun { why }, true));
        }
        let mut book = self.book();
        let mut fault = None;
        for (place, path, _) in &due {
            cut("host::apply::step");
            let made = match place {
                Place::Root => self.make_folders(path, &mut book.made),
                Place::State => Ok(()),
            };
            let file = NewFile {
                bytes: text.as_bytes(),
                mode: POLICY_MODE,
                owner: Owner::default(),
            };
            let put = made.and_then(|()| atomic::put_file(self.place(*place), path, &file, None));
            fault = fault.or(put.err().map(|e| e.to_string()));
        }
        book.policy = Some(PolicyRecord { epoch, digest });
        // A lost ledger stays lost: a window about policy must not make an empty one of it.
        if fault.is_none() && matches!(self.ledger, LedgerState::Known(_)) {
            let kept = self.with_reserve(|state| window::keep_ledger(state, &json(&book)));
            fault = kept.err().map(|e| e.to_string());
        }
        if let Some(why) = fault {
            let reason = Reason::Interrupted(why);
            self.take_back(&reason, now, Vec::new())?;
            return Ok(ended(End::Reverted { reason }, true));
        }
        cut("host::apply::done");
        Ok(ended(End::WindowOpen, false))
    }

    fn place(&self, place: Place) -> &dyn Disk {
        match place {
            Place::Root => self.root(),
            Place::State => self.state(),
        }
    }

    fn begin_policy(
        &mut self,
        due: &[(Place, TargetPath, Observed)],
        text: &str,
        window: &Window,
    ) -> Result<Option<String>, MachineError> {
        let mut need = room::Need::default();
        let mut befores = Vec::new();
        let mut blobs = BTreeMap::new();
        for (place, path, there) in due {
            need.file(self.place(*place), path, text.len() as u64)?;
            if *place == Place::Root {
                let missing = atomic::missing_folders(self.root(), path).into_iter();
                befores.extend(missing.map(|folder| Before::path(None, Place::Root, folder, None)));
            }
            befores.push(Before::path(None, *place, path.clone(), there.thing()));
            if let Observed::File { bytes, .. } = there {
                need.file(self.state(), &path_of("/window"), bytes.len() as u64)?;
                blobs.insert(Digest::of(bytes), bytes.clone());
            }
        }
        need.book(self.state(), json(&self.book()).len() as u64)?;
        if let Some(why) = need.lacking() {
            return Ok(Some(why));
        }
        let opened = room::reserve(self.state())
            .and_then(|()| window::open(self.state(), window, &journal(befores), &blobs));
        self.open_window(window, opened)
    }
}
