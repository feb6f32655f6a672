//! What nothing declares any more is taken away or given back (HR-2, HR-6).

use meshplan_schemas::report::{Outcome, ResourceLine};

use super::{Machine, ORIGINALS};
use crate::edge::disk::{DiskError, NewFile, Owner, atomic};
use crate::edge::ledger::blob;
use crate::kinds;
use crate::pure::apply_plan::{Sweep, SweepHow};
use crate::pure::outcome::line;
use crate::pure::record::{Ledger, Thing};
use crate::pure::target::Target;
use crate::pure::target_path::TargetPath;

impl Machine {
    /// Does away with something; its line, none where it must wait.
    pub(super) fn sweep(&self, sweep: &Sweep, next: &mut Ledger) -> Option<ResourceLine> {
        // A moved resource's former target goes only when the new one stands.
        if let (true, Some(target)) = (sweep.moved, &sweep.target)
            && !next.orphans.contains_key(target)
        {
            return None;
        }
        let words = |e: DiskError| e.to_string();
        let given_back = match (&sweep.how, &sweep.target) {
            (SweepHow::Remove, Some(Target::Path(path))) => kinds::remove(&sweep.kind, self.root(), path)
                .map_err(words)
                .map(|()| None),
            (SweepHow::Restore(thing), Some(Target::Path(path))) => {
                self.restore(path, thing).map_err(words).map(|()| None)
            }
            (SweepHow::Remove, Some(Target::Thing(sort, name))) => {
                kinds::give_back((*sort, name), None, self.reach()).map(Some)
            }
            (SweepHow::Restore(thing), Some(Target::Thing(sort, name))) => {
                kinds::give_back((*sort, name), Some(thing), self.reach()).map(Some)
            }
            _ => Ok(None),
        };
        match (given_back, &sweep.target) {
            (Err(e), Some(target)) => {
                // The removal of what nobody declares hinders nothing else (HR-6); it is tried again.
                next.orphan(&sweep.name, target);
                let why = format!("it stays for now: {e}");
                Some(line(&sweep.name, Outcome::Kept, why, None))
            }
            (given_back, _) => {
                settle_sweep(sweep, next);
                if let (true, Some(target)) = (sweep.acts(), &sweep.target) {
                    next.leavings.extend(kinds::leaving_of_swept(target));
                }
                let mut line = sweep.line();
                // A removal says what it in fact did (HK-5).
                if let Ok(Some(what)) = given_back {
                    line.reason = format!("{what}: {}", sweep.because());
                }
                Some(line)
            }
        }
    }

    /// Puts back what was there before the host.
    fn restore(&self, target: &TargetPath, thing: &Thing) -> Result<(), DiskError> {
        let owner = |uid, gid| Owner {
            uid: Some(uid),
            gid: Some(gid),
        };
        match thing {
            Thing::File {
                content,
                mode,
                uid,
                gid,
            } => {
                let bytes = self.state().read(&blob(ORIGINALS, *content))?;
                let file = NewFile {
                    bytes: &bytes,
                    mode: *mode,
                    owner: owner(*uid, *gid),
                };
                atomic::put_file(self.root(), target, &file, None)
            }
            Thing::Directory { mode, uid, gid } => {
                atomic::put_folder(self.root(), target, *mode, owner(*uid, *gid))
            }
            Thing::Link { target: to, uid, gid } => {
                atomic::put_link(self.root(), target, to, owner(*uid, *gid))
            }
            Thing::Unit { .. }
            | Thing::Process { .. }
            | Thing::User(_)
            | Thing::Group { .. }
            | Thing::Setting { .. }
            | Thing::KernelModule { .. }
            | Thing::Package { .. }
            | Thing::Tree { .. }
            | Thing::Container(_)
            | Thing::Network { .. }
            | Thing::Volume
            | Thing::Filter { .. } => Ok(()),
        }
    }
}

/// What the ledger says after a sweep.
pub(super) fn settle_sweep(sweep: &Sweep, next: &mut Ledger) {
    match (&sweep.how, &sweep.target) {
        (SweepHow::Keep(_) | SweepHow::Refuse(_), Some(target)) => next.orphan(&sweep.name, target),
        (_, target) => next.forget(&sweep.name, target.as_ref()),
    }
}
