//! The heads of the fleet list that blocks hold whole (DL-9): hosts that slept walk the chain of those that changed who may sign
//! (SG-12).
//!
//! Invariant: a [`SignedHead`] was read, and is the revision that its block says; a block with another one is an error.

use meshplan_schemas::digest::Digest;
use meshplan_schemas::envelope::{Envelope, Payload as _};
use meshplan_schemas::fleet_list::FleetHead;
use meshplan_schemas::ident::CommitId;

use super::{RecordError, said};
use crate::pure::journal::HEAD;
use crate::pure::note::Block;

/// A head as it was signed, and what the store needs to know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedHead {
    /// The envelope's exact text.
    pub envelope: String,
    /// The digest of its payload.
    pub digest: Digest,
    /// The commit whose delivery signed it.
    pub commit: CommitId,
    /// When it was issued, in Unix seconds.
    pub issued_at: i64,
}

impl SignedHead {
    /// The head that a block holds, with its revision; none where it holds none.
    ///
    /// # Errors
    /// [`RecordError::Head`].
    pub fn in_block(block: &Block) -> Result<Option<(u64, Self)>, RecordError> {
        let Some(text) = said(block, HEAD).next() else {
            return Ok(None);
        };
        let revision = said(block, "List-Revision").next();
        read(text, revision, &block.commit)
            .map(Some)
            .map_err(|why| RecordError::Head {
                number: block.number,
                commit: block.commit.clone(),
                why,
            })
    }
}

/// Reads a head out of its trailer; an error says what is wrong with it.
fn read(text: &str, revision: Option<&str>, commit: &CommitId) -> Result<(u64, SignedHead), String> {
    let bytes = data_encoding::BASE64.decode(text.as_bytes());
    let bytes = bytes.map_err(|e| format!("its base64 is broken ({e})"))?;
    let envelope = Envelope::read(&bytes).map_err(|e| e.to_string())?;
    if envelope.payload_type != FleetHead::TYPE {
        return Err(format!(
            "the envelope is signed as `{}`, not as a head",
            envelope.payload_type
        ));
    }
    let head: FleetHead =
        serde_json::from_slice(&envelope.payload).map_err(|e| format!("its payload is no head ({e})"))?;
    if revision != Some(head.revision.to_string().as_str()) {
        return Err(format!(
            "it is revision {}, and the block speaks of {}",
            head.revision,
            revision.map_or_else(|| "none".to_owned(), |said| format!("revision {said}"))
        ));
    }
    let signed = SignedHead {
        digest: envelope.payload_digest(),
        commit: commit.clone(),
        issued_at: head.issued_at,
        envelope: String::from_utf8(bytes).map_err(|e| format!("it is no text ({e})"))?,
    };
    Ok((head.revision, signed))
}
