//! Carries blocks into notes: appends what is stored and not written, keeps notes within their cap, pushes (DL-9,
//! DL-10). Repeated, it changes nothing.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use jiff::Timestamp;
use meshplan_schemas::envelope::Signer;
use meshplan_schemas::limits::NOTE_BYTES;

use super::clock::Clock;
use super::health::Health;
use super::mirror::Mirror;
use super::notes::{NotesWriter, PushOutcome, SignedText};
use super::outbox::{Carried, Carrier, Trouble};
use super::store::Store;
use super::store::journal::SignedBlock;
use crate::pure::note;

/// What the keeper works with.
#[derive(Clone)]
pub struct Keeper {
    /// Where unwritten blocks are.
    pub store: Store,
    /// Where notes are.
    pub mirror: Arc<Mutex<Mirror>>,
    /// Where trouble is said.
    pub health: Arc<Health>,
    /// The time.
    pub clock: Clock,
    /// Signs elided blocks.
    pub signer: Arc<dyn Signer + Send + Sync>,
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keeper({})", self.signer.key_id())
    }
}

impl Keeper {
    /// The carrier of the outbox's notes.
    #[must_use]
    pub fn carrier(self) -> Carrier {
        let writer: Arc<Mutex<Option<NotesWriter>>> = Arc::default();
        Arc::new(move |rows| {
            let (keeper, writer) = (self.clone(), Arc::clone(&writer));
            async move {
                let done = match keeper.write(writer).await {
                    Ok(()) => {
                        keeper.health.clear("notes");
                        return Carried {
                            done: rows.into_iter().map(|r| r.id).collect(),
                            ..Carried::default()
                        };
                    }
                    Err(why) => why,
                };
                keeper
                    .health
                    .set("notes", format!("notes are kept and not pushed yet: {done}"));
                Carried {
                    trouble: Some(Trouble {
                        why: done,
                        retry_after: None,
                    }),
                    ..Carried::default()
                }
            }
            .boxed()
        })
    }

    async fn write(&self, writer: Arc<Mutex<Option<NotesWriter>>>) -> Result<(), String> {
        let blocks = self.store.unwritten_blocks().await.map_err(|e| e.to_string())?;
        let numbers: Vec<u64> = blocks.iter().map(|b| b.mark.number).collect();
        let (keeper, now) = (self.clone(), self.clock.now());
        tokio::task::spawn_blocking(move || keeper.append_and_push(&writer, &blocks, now))
            .await
            .map_err(|e| e.to_string())??;
        self.store
            .blocks_written(&numbers)
            .await
            .map_err(|e| e.to_string())
    }

    fn append_and_push(
        &self,
        writer: &Mutex<Option<NotesWriter>>,
        blocks: &[SignedBlock],
        now: Timestamp,
    ) -> Result<(), String> {
        let mut slot = writer.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.is_none() {
            let mirror = self.mirror.lock().unwrap_or_else(PoisonError::into_inner);
            *slot = Some(mirror.notes().map_err(|e| e.to_string())?);
        }
        let Some(writer) = slot.as_mut() else {
            return Ok(());
        };
        let texts: Vec<SignedText> = blocks
            .iter()
            .map(|b| SignedText {
                commit: b.commit.clone(),
                text: b.text.clone(),
            })
            .collect();
        let appended = writer.append(&texts, now).map_err(|e| e.to_string())?;
        for commit in appended.over {
            let Some(text) = writer.read(&commit).map_err(|e| e.to_string())? else {
                continue;
            };
            for elision in note::elide(&text, NOTE_BYTES) {
                let unsigned = elision.new.text();
                let signature = self
                    .signer
                    .sign(&note::signed_bytes(&unsigned))
                    .map_err(|e| e.to_string())?;
                let signed = note::seal(&unsigned, &self.signer.key_id(), &signature);
                writer
                    .replace(&commit, &elision, &signed, now)
                    .map_err(|e| e.to_string())?;
            }
        }
        match writer.push(now) {
            PushOutcome::Pushed | PushOutcome::NothingToDo => Ok(()),
            PushOutcome::Moved => Err("the notes ref moved each time; tried again later".to_owned()),
            PushOutcome::Refused { why } => Err(format!(
                "the forge refuses the push of refs/notes/mesh-plan: {why}"
            )),
            PushOutcome::Unreachable { why } => Err(why),
        }
    }
}
