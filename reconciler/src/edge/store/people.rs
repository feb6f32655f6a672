//! What people read and write: deliveries with their transitions, nodes, requests with their answers, invitations.

use std::sync::Arc;
use std::time::Duration;

use meshplan_schemas::ident::CommitId;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::cell::{cell, json};
use super::db::args;
use super::deliveries::Row;
use super::heard::Since;
use super::{Store, StoreError};
use crate::pure::delivery::{Delivery, Transition};
use crate::pure::snapshot::{Nodes, Request, Review};

/// Why no delivery goes by a text.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// None does.
    #[error("no delivery goes by `{0}`; `meshplan deliveries list` shows them all")]
    NotFound(String),
    /// Several do.
    #[error("`{text}` fits {} deliveries: {}; write more digits", .candidates.len(), .candidates.join(", "))]
    Ambiguous {
        /// What was asked.
        text: String,
        /// The full ids that it fits, at most [`CANDIDATES`].
        candidates: Vec<String>,
    },
    /// Too little to go by.
    #[error(
        "`{0}` is no commit: write at least {SHORTEST} of its hexadecimal digits, or a delivery's name \
         such as `fleet@0123456789ab`"
    )]
    NotACommit(String),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The fewest digits that name a commit.
pub const SHORTEST: usize = 4;
/// The most candidates that an ambiguous text is answered with.
pub const CANDIDATES: i64 = 10;

/// What became of an attempt to use an invitation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InviteUse {
    /// It is used by this one, now or since before.
    Yours,
    /// Another was first.
    Taken,
    /// There is none with that id.
    Unknown,
}

impl Store {
    /// The newest deliveries, newest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn deliveries(&self, limit: u32) -> Result<Vec<Delivery>, StoreError> {
        const SQL: &str = "SELECT commit_id, changes FROM deliveries ORDER BY order_no DESC LIMIT $1";
        let mut tx = self.db().begin_read().await?;
        let rows = tx.rows(SQL, args![i64::from(limit)]).await?;
        self.inner.walking.read(&mut tx, rows).await
    }

    /// The deliveries that wait, and no order of which is out.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn waiting_deliveries(&self) -> Result<Vec<Delivery>, StoreError> {
        const SQL: &str = "SELECT commit_id, changes FROM deliveries WHERE state IN ('proposed', 'held')";
        let mut tx = self.db().begin_read().await?;
        let rows = tx.rows(SQL, args![]).await?;
        let mut open = self.inner.walking.read(&mut tx, rows).await?;
        open.retain(Delivery::waits);
        Ok(open)
    }

    /// The delivery of a commit.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn delivery(&self, commit: &CommitId) -> Result<Option<Delivery>, StoreError> {
        const SQL: &str = "SELECT commit_id, changes FROM deliveries WHERE commit_id = $1";
        let mut tx = self.db().begin_read().await?;
        let rows = tx.rows(SQL, args![commit.as_str()]).await?;
        Ok(self.inner.walking.read(&mut tx, rows).await?.pop())
    }

    /// The delivery that a person means: a commit id, its first digits, or a delivery's name.
    ///
    /// # Errors
    /// [`FindError`].
    pub async fn find_delivery(&self, text: &str) -> Result<Delivery, FindError> {
        const BY_NAME: &str =
            "SELECT commit_id, changes FROM deliveries WHERE name = $1 ORDER BY order_no DESC LIMIT $2";
        // `g` comes right after the last hexadecimal digit
        const BY_PREFIX: &str = "SELECT commit_id, changes FROM deliveries \
            WHERE commit_id >= $1 AND commit_id < $2 ORDER BY order_no DESC LIMIT $3";
        let mut tx = self.db().begin_read().await?;
        let rows: Vec<Row> = if text.contains('@') {
            tx.rows(BY_NAME, args![text, CANDIDATES]).await?
        } else {
            let digits = text.to_ascii_lowercase();
            if digits.len() < SHORTEST || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(FindError::NotACommit(text.to_owned()));
            }
            let args = args![digits.clone(), format!("{digits}g"), CANDIDATES];
            tx.rows(BY_PREFIX, args).await?
        };
        match rows.len() {
            0 | 1 => {
                let found = self.inner.walking.read(&mut tx, rows).await?.pop();
                found.ok_or_else(|| FindError::NotFound(text.to_owned()))
            }
            _ => Err(FindError::Ambiguous {
                text: text.to_owned(),
                candidates: rows.into_iter().map(|(commit, _)| commit).collect(),
            }),
        }
    }

    /// The transitions of a delivery, oldest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn transitions_of(&self, commit: &CommitId) -> Result<Vec<Transition>, StoreError> {
        const SQL: &str = "SELECT doc FROM transitions WHERE commit_id = $1 ORDER BY seq";
        let rows: Vec<(String,)> = self.db().rows(SQL, args![commit.as_str()]).await?;
        rows.into_iter()
            .map(|(doc,)| cell("transitions", "doc", commit).json(&doc))
            .collect()
    }

    /// What is heard of each node.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn nodes(&self) -> Result<Arc<Nodes>, StoreError> {
        let mut tx = self.db().begin_read().await?;
        self.inner.heard.read(&mut tx).await
    }

    /// What is heard of each node, and from whom after this change; none: since ever.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn heard_since(&self, change: Option<i64>) -> Result<Since, StoreError> {
        let mut tx = self.db().begin_read().await?;
        self.inner.heard.since(&mut tx, change).await
    }

    /// Takes down a review of a commit; a later one of the same person takes its place.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn put_review(&self, commit: &CommitId, review: &Review) -> Result<(), StoreError> {
        const SQL: &str = "INSERT INTO reviews (commit_id, by_whom, doc) VALUES ($1, $2, $3) \
            ON CONFLICT (commit_id, by_whom) DO UPDATE SET doc = excluded.doc";
        let args = args![commit.as_str(), review.by.as_str(), json(review)?];
        self.db().run(SQL, args).await?;
        Ok(())
    }

    /// Takes down what a person asks for; the same id again changes nothing.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn add_request(&self, request: &Request) -> Result<(), StoreError> {
        const SQL: &str =
            "INSERT INTO requests (id, asked_at, doc) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
        let args = args![request.id.as_str(), request.at.as_microsecond(), json(request)?];
        self.db().run(SQL, args).await?;
        Ok(())
    }

    /// The answer to a request; none while there is none.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn answer(&self, id: &str) -> Result<Option<String>, StoreError> {
        const SQL: &str = "SELECT answer FROM requests WHERE id = $1";
        let row: Option<(Option<String>,)> = self.db().row(SQL, args![id]).await?;
        Ok(row.and_then(|(answer,)| answer))
    }

    /// Waits for the answer to a request, at most so long; none when it has not come by then.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn wait_answer(&self, id: &str, within: Duration) -> Result<Option<String>, StoreError> {
        let mut answered = self.inner.answered.subscribe();
        let until = tokio::time::Instant::now() + within;
        loop {
            answered.mark_unchanged();
            if let Some(answer) = self.answer(id).await? {
                return Ok(Some(answer));
            }
            match tokio::time::timeout_at(until, answered.changed()).await {
                Ok(Ok(())) => {}
                _ => return self.answer(id).await,
            }
        }
    }

    /// Keeps an invitation; one of the same id is replaced, who used it stays.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn put_invite<T: Serialize + Sync>(&self, id: &str, doc: &T) -> Result<(), StoreError> {
        const SQL: &str = "INSERT INTO invites (id, doc) VALUES ($1, $2) \
            ON CONFLICT (id) DO UPDATE SET doc = excluded.doc";
        self.db().run(SQL, args![id, json(doc)?]).await?;
        Ok(())
    }

    /// An invitation and who used it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn invite<T: DeserializeOwned>(
        &self,
        id: &str,
    ) -> Result<Option<(T, Option<String>)>, StoreError> {
        const SQL: &str = "SELECT doc, used_by FROM invites WHERE id = $1";
        let row: Option<(String, Option<String>)> = self.db().row(SQL, args![id]).await?;
        row.map(|(doc, used_by)| Ok((cell("invites", "doc", &id).json(&doc)?, used_by)))
            .transpose()
    }

    /// All invitations by id, with who used them.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn invites<T: DeserializeOwned>(&self) -> Result<Vec<(String, T, Option<String>)>, StoreError> {
        const SQL: &str = "SELECT id, doc, used_by FROM invites ORDER BY id";
        let rows: Vec<(String, String, Option<String>)> = self.db().rows(SQL, args![]).await?;
        rows.into_iter()
            .map(|(id, doc, used_by)| {
                let doc = cell("invites", "doc", &id).json(&doc)?;
                Ok((id, doc, used_by))
            })
            .collect()
    }

    /// Uses an invitation, once: the first one has it, and has it again when it asks again (LK-3).
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn use_invite(&self, id: &str, by: &str) -> Result<InviteUse, StoreError> {
        const USE: &str = "UPDATE invites SET used_by = $2 WHERE id = $1 AND used_by IS NULL";
        const BY: &str = "SELECT used_by FROM invites WHERE id = $1";
        let mut tx = self.db().begin_write().await?;
        tx.run(USE, args![id, by]).await?;
        let row: Option<(Option<String>,)> = tx.row(BY, args![id]).await?;
        tx.commit().await?;
        Ok(match row {
            None => InviteUse::Unknown,
            Some((Some(used_by),)) if used_by == by => InviteUse::Yours,
            Some(_) => InviteUse::Taken,
        })
    }

    /// Forgets an invitation; whether there was one.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn remove_invite(&self, id: &str) -> Result<bool, StoreError> {
        let removed = self
            .db()
            .run("DELETE FROM invites WHERE id = $1", args![id])
            .await?;
        Ok(removed > 0)
    }
}
