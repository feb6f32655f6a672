//! The journal's way to the remote.

use std::time::Duration;

use jiff::Timestamp;

use super::super::mirror::{
    FetchError, LOCK_WAIT, NOTES_REF, Pushed, REMOTE_NOTES_REF, bring_notes, patiently, push_ref,
};
use super::{NotesWriter, tip, union};

/// How often a push is made again because the ref moved, and how long is waited before each.
const WAITS_MS: [u64; 5] = [50, 100, 200, 400, 800];

/// What came of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushOutcome {
    /// The remote has all blocks.
    Pushed,
    /// It had them before.
    NothingToDo,
    /// The ref moved each time: others write much. Try again later.
    Moved,
    /// We may not, or a hook said no: trying again helps only when somebody changes something there.
    Refused {
        /// Its words.
        why: String,
    },
    /// Later.
    Unreachable {
        /// What happened.
        why: String,
    },
}

impl NotesWriter {
    /// Pushes the journal, never by force. A ref that has moved is answered by fetch, union, push again, with a limit.
    pub fn push(&mut self, at: Timestamp) -> PushOutcome {
        for wait in WAITS_MS.iter().copied().map(Some).chain([None]) {
            match self.push_once(at) {
                Ok(PushOutcome::Moved) => {}
                Ok(outcome) => return outcome,
                Err(why) => return PushOutcome::Unreachable { why },
            }
            let Some(wait) = wait else { break };
            tracing::debug!(
                remote = self.remote.shown(),
                "the notes ref has moved: taking in what is there"
            );
            // Two reconcilers that lost to each other must not stay in step.
            let mut random = [0u8; 1];
            let _ = getrandom::fill(&mut random);
            std::thread::sleep(Duration::from_millis(wait + wait * u64::from(random[0]) / 256));
            if let Err(e) = self.fetch_and_absorb(at) {
                return PushOutcome::Unreachable { why: e };
            }
        }
        PushOutcome::Moved
    }

    fn push_once(&mut self, at: Timestamp) -> Result<PushOutcome, String> {
        let remote = self.remote.clone();
        self.locked(|objects, absorbed| {
            let repo = objects.repo;
            union::absorb(objects, absorbed, at)?;
            let Some(ours) = tip(repo, NOTES_REF)? else {
                return Ok(PushOutcome::NothingToDo);
            };
            let known = tip(repo, REMOTE_NOTES_REF)?;
            if known == Some(ours) {
                return Ok(PushOutcome::NothingToDo);
            }
            Ok(match push_ref(repo, &remote, ours, NOTES_REF, known) {
                Pushed::Done => {
                    patiently(LOCK_WAIT, || repo.reference(REMOTE_NOTES_REF, ours, true, "push"))?;
                    *absorbed = Some(ours);
                    PushOutcome::Pushed
                }
                Pushed::Moved => PushOutcome::Moved,
                Pushed::Refused(why) => PushOutcome::Refused { why },
                Pushed::Failed(e @ FetchError::Auth { .. }) => PushOutcome::Refused { why: e.to_string() },
                Pushed::Failed(e) => PushOutcome::Unreachable { why: e.to_string() },
            })
        })
        .map_err(|e| format!("the notes in {}: {}", self.path.display(), e.message()))
    }

    fn fetch_and_absorb(&mut self, at: Timestamp) -> Result<(), String> {
        let remote = self.remote.clone();
        let fetched = self.locked(|objects, absorbed| match bring_notes(objects.repo, &remote) {
            Ok(()) => union::absorb(objects, absorbed, at).map(|()| None),
            Err(e) => Ok(Some(e)),
        });
        match fetched {
            Ok(None) => Ok(()),
            Ok(Some(e)) => Err(e.to_string()),
            Err(e) => Err(format!("the notes in {}: {}", self.path.display(), e.message())),
        }
    }
}
