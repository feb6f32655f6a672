//! Signed journal blocks on their way into notes (DL-9): stored with the transition that they tell of, marked when
//! they stand in the repository.

use meshplan_schemas::ident::CommitId;
use meshplan_schemas::timestamp::BlockMark;

use super::cell::{cell, int};
use super::db::{Tx, args};
use super::{Store, StoreError, queue};

/// The kind of outbox rows that write blocks into notes.
pub const NOTES: &str = "notes";

/// A block after it is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedBlock {
    /// Its number and the digest of its signed bytes.
    pub mark: BlockMark,
    /// The commit on whose note it stands.
    pub commit: CommitId,
    /// The whole block, its `Sig:` line too.
    pub text: String,
}

type BlockRow = (i64, String, String, String);

fn block(row: BlockRow) -> Result<SignedBlock, StoreError> {
    let (number, commit, digest, text) = row;
    Ok(SignedBlock {
        mark: BlockMark {
            number: cell("blocks", "number", &commit).number(number)?,
            digest: cell("blocks", "digest", &number).parse(&digest)?,
        },
        commit: cell("blocks", "commit_id", &number).parse(&commit)?,
        text,
    })
}

/// Stores a block and queues its note, unless its number was used with other bytes.
pub(super) async fn put(tx: &mut Tx, block: &SignedBlock, now: i64) -> Result<(), StoreError> {
    const INSERT: &str = "INSERT INTO blocks (number, commit_id, digest, text) VALUES ($1, $2, $3, $4) \
        ON CONFLICT DO NOTHING";
    const FORMER: &str = "SELECT commit_id, text FROM blocks WHERE number = $1";
    let number = int(block.mark.number)?;
    let row = args![
        number,
        block.commit.as_str(),
        block.mark.digest.to_string(),
        block.text.as_str()
    ];
    if tx.run(INSERT, row).await? == 0 {
        let former: Option<(String, String)> = tx.row(FORMER, args![number]).await?;
        let same = former.is_some_and(|(commit, text)| commit == block.commit.as_str() && text == block.text);
        if !same {
            return Err(StoreError::NumberReused {
                kind: "journal block",
                number: block.mark.number,
            });
        }
        return Ok(());
    }
    queue::put(tx, NOTES, &number.to_string(), block.commit.as_str(), now).await
}

impl Store {
    /// The blocks that stand in no note yet, in order.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn unwritten_blocks(&self) -> Result<Vec<SignedBlock>, StoreError> {
        const SQL: &str = "SELECT number, commit_id, digest, text FROM blocks WHERE written_at IS NULL \
            ORDER BY number";
        let rows = self.db().rows(SQL, args![]).await?;
        rows.into_iter().map(block).collect()
    }

    /// All blocks of a commit, in order.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn blocks_of(&self, commit: &CommitId) -> Result<Vec<SignedBlock>, StoreError> {
        const SQL: &str = "SELECT number, commit_id, digest, text FROM blocks WHERE commit_id = $1 \
            ORDER BY number";
        let rows = self.db().rows(SQL, args![commit.as_str()]).await?;
        rows.into_iter().map(block).collect()
    }

    /// These blocks stand in pushed notes; said twice it changes nothing.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn blocks_written(&self, numbers: &[u64]) -> Result<(), StoreError> {
        const SQL: &str = "UPDATE blocks SET written_at = $2 WHERE number = $1 AND written_at IS NULL";
        let now = self.now().as_microsecond();
        let mut tx = self.db().begin_write().await?;
        for number in numbers {
            tx.run(SQL, args![int(*number)?, now]).await?;
        }
        tx.commit().await
    }
}
