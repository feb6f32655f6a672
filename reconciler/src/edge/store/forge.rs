//! What is remembered of a forge: its pull requests, and what was said on them, so that nothing is said twice (FG-4).

use std::collections::BTreeMap;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::CommitId;

use super::cell::{cell, int, json};
use super::db::args;
use super::{Store, StoreError, queue};
use crate::pure::forge::kept::Kept;
use crate::pure::snapshot::{Checked, Review};

/// So many closed pull requests are kept beside those that are open.
const KEPT_CLOSED: i64 = 500;

impl Store {
    /// The pull requests that are remembered, by number.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn pull_requests(&self) -> Result<Vec<Kept>, StoreError> {
        const SQL: &str = "SELECT number, doc FROM pull_requests ORDER BY number";
        let rows: Vec<(i64, String)> = self.db().rows(SQL, args![]).await?;
        rows.into_iter()
            .map(|(number, doc)| cell("pull_requests", "doc", &number).json(&doc))
            .collect()
    }

    /// The newest deliveries, newest first, each with a number that is another whenever the delivery is.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn delivery_changes(&self, limit: u32) -> Result<Vec<(CommitId, i64)>, StoreError> {
        const SQL: &str = "SELECT commit_id, changes FROM deliveries ORDER BY order_no DESC LIMIT $1";
        let rows: Vec<(String, i64)> = self.db().rows(SQL, args![i64::from(limit)]).await?;
        rows.into_iter()
            .map(|(commit, changes)| Ok((cell("deliveries", "commit_id", &commit).parse(&commit)?, changes)))
            .collect()
    }

    /// Remembers a pull request. Closed ones of long ago are forgotten.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn put_pull_request(&self, kept: &Kept) -> Result<(), StoreError> {
        const SQL: &str = "INSERT INTO pull_requests (number, is_open, doc) VALUES ($1, $2, $3) \
            ON CONFLICT (number) DO UPDATE SET is_open = excluded.is_open, doc = excluded.doc";
        const TRIM: &str = "DELETE FROM pull_requests WHERE number <= $1 AND is_open = 0";
        let number = int(kept.number)?;
        let mut tx = self.db().begin_write().await?;
        tx.run(SQL, args![number, i64::from(kept.open), json(kept)?])
            .await?;
        tx.run(TRIM, args![number - KEPT_CLOSED]).await?;
        tx.commit().await
    }

    /// Queues a text that shall stand at the forge, where it is another than the one that was queued last under this key;
    /// whether it is.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn say(&self, kind: &str, key: &str, body: &str) -> Result<bool, StoreError> {
        const LAST: &str = "SELECT digest FROM said WHERE kind = $1 AND key = $2";
        const SQL: &str = "INSERT INTO said (kind, key, digest) VALUES ($1, $2, $3) \
            ON CONFLICT (kind, key) DO UPDATE SET digest = excluded.digest";
        let digest = Digest::of(body.as_bytes()).to_string();
        let now = self.now().as_microsecond();
        let mut tx = self.db().begin_write().await?;
        let last: Option<(String,)> = tx.row(LAST, args![kind, key]).await?;
        let other = last.is_none_or(|(last,)| last != digest);
        if other {
            tx.run(SQL, args![kind, key, digest]).await?;
            queue::put(&mut tx, kind, key, body, now).await?;
        }
        tx.commit().await?;
        Ok(other)
    }

    /// By which id the forge knows what was said under a key; none where it was not said yet.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn said(&self, kind: &str, key: &str) -> Result<Option<u64>, StoreError> {
        const SQL: &str = "SELECT there FROM said WHERE kind = $1 AND key = $2";
        let row: Option<(Option<i64>,)> = self.db().row(SQL, args![kind, key]).await?;
        row.and_then(|(there,)| there)
            .map(|there| cell("said", "there", &key).number(there))
            .transpose()
    }

    /// The forge knows by this id what was said under a key.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn is_said(&self, kind: &str, key: &str, there: u64) -> Result<(), StoreError> {
        const SQL: &str = "UPDATE said SET there = $3 WHERE kind = $1 AND key = $2";
        self.db().run(SQL, args![kind, key, int(there)?]).await?;
        Ok(())
    }

    /// Takes down what the forge says of a commit's checks; whether it is something else than before.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn put_checks(&self, commit: &CommitId, checks: &[Checked]) -> Result<bool, StoreError> {
        const LAST: &str = "SELECT doc FROM checks WHERE commit_id = $1";
        const SQL: &str = "INSERT INTO checks (commit_id, doc) VALUES ($1, $2) \
            ON CONFLICT (commit_id) DO UPDATE SET doc = excluded.doc";
        let doc = json(&checks)?;
        let mut tx = self.db().begin_write().await?;
        let last: Option<(String,)> = tx.row(LAST, args![commit.as_str()]).await?;
        let other = last.is_none_or(|(last,)| last != doc);
        if other {
            tx.run(SQL, args![commit.as_str(), doc]).await?;
        }
        tx.commit().await?;
        Ok(other)
    }

    /// What the forge said of the checks of these commits, as far as it did.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn checks(
        &self,
        commits: impl Iterator<Item = &CommitId>,
    ) -> Result<BTreeMap<CommitId, Vec<Checked>>, StoreError> {
        const SQL: &str = "SELECT doc FROM checks WHERE commit_id = $1";
        let mut tx = self.db().begin_read().await?;
        let mut said = BTreeMap::new();
        for commit in commits {
            if let Some((doc,)) = tx.row::<(String,)>(SQL, args![commit.as_str()]).await? {
                said.insert(commit.clone(), cell("checks", "doc", commit).json(&doc)?);
            }
        }
        Ok(said)
    }

    /// The reviews of a commit are just these.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn set_reviews(&self, commit: &CommitId, reviews: &[Review]) -> Result<(), StoreError> {
        const CLEAR: &str = "DELETE FROM reviews WHERE commit_id = $1";
        const SQL: &str = "INSERT INTO reviews (commit_id, by_whom, doc) VALUES ($1, $2, $3)";
        let mut tx = self.db().begin_write().await?;
        tx.run(CLEAR, args![commit.as_str()]).await?;
        for review in reviews {
            tx.run(SQL, args![commit.as_str(), review.by.as_str(), json(review)?])
                .await?;
        }
        tx.commit().await
    }
}
