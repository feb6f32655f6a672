//! Takes people's words from comments: read once each, and only from whom the forge confirms (DL-4, B57).

use std::collections::{BTreeMap, BTreeSet};

use super::{Keeper, Memory, Part, TurnError};
use crate::edge::forge::ForgeError;
use crate::pure::delivery::Delivery;
use crate::pure::forge::kept::{Kept, Word};
use crate::pure::forge::orders::order;
use crate::pure::forge::{Comment, User};
use crate::pure::snapshot::{InTeam, Person, Request};

/// What is said where the forge does not tell what somebody may do.
const NOT_TOLD: &str = "refused: the forge does not tell whether you may write here; the token's user must administer the \
                        repository for that";

impl Keeper {
    /// Reads the comments of pull requests whose deliveries are not over, when they are looked at anyway, and of those on
    /// which somebody spoke.
    pub(super) async fn take_words(
        &self,
        memory: &mut Memory,
        spoken: &BTreeSet<u64>,
    ) -> Result<(), TurnError> {
        let looked = memory.listed_at != memory.words_at;
        let mut asked = spoken.clone();
        if looked {
            // There may be words that nobody has read.
            asked.extend(memory.passed_over_as(Part::Comments));
        }
        for kept in self.store.pull_requests().await? {
            let Some(merged) = &kept.merged else { continue };
            if !looked && !asked.contains(&kept.number) {
                continue;
            }
            let Some(delivery) = self.store.delivery(&merged.commit).await? else {
                continue;
            };
            if delivery.state.is_final() && !asked.contains(&kept.number) {
                continue;
            }
            let number = kept.number;
            let said = self.read_comments(kept, &delivery).await;
            if memory.pass_over(number, Part::Comments, said)? == Some(true) {
                Self::is_due(memory, &delivery.commit);
            }
        }
        memory.words_at = memory.listed_at;
        Ok(())
    }

    /// Whether somebody said a word that counts.
    async fn read_comments(&self, mut kept: Kept, delivery: &Delivery) -> Result<bool, TurnError> {
        // A word of before the merge was not about what was merged: nobody needs it.
        let since = kept.merged.as_ref().map(|merged| merged.at);
        let comments = self.forge.comments(kept.number, since).await?;
        let me = self.forge.me().await?.id;
        let new: Vec<Comment> = comments
            .into_iter()
            .filter(|comment| comment.id > kept.read_to)
            .collect();
        let (mut said, read) = (false, !new.is_empty());
        for comment in new {
            kept.read_to = comment.id;
            let Some(author) = comment.author.as_ref().filter(|author| author.id != me) else {
                continue;
            };
            said |= self.take(&mut kept, delivery, author, &comment).await?;
        }
        if read {
            self.store.put_pull_request(&kept).await?;
        }
        Ok(said)
    }

    async fn take(
        &self,
        kept: &mut Kept,
        delivery: &Delivery,
        author: &User,
        comment: &Comment,
    ) -> Result<bool, TurnError> {
        let (Some(merged), Some(order)) = (kept.merged.clone(), order(comment)) else {
            return Ok(false);
        };
        // A word of before the merge was not about what was merged.
        if comment.created_at < merged.at {
            return Ok(false);
        }
        let mut word = Word {
            by: author.login.clone(),
            word: order.word,
            request: None,
            refused: None,
        };
        match self.forge.may_write(author).await {
            Ok(true) => {
                let teams = self.teams_of(author, &delivery.teams).await?;
                // The comment's own id: read twice, it is asked once.
                let id = format!("comment-{}-{}", kept.number, comment.id);
                let request = Request {
                    id: id.clone(),
                    at: self.clock.now(),
                    actor: author.login.clone(),
                    verb: order.verb,
                    commit: Some(merged.commit),
                    until: None,
                    why: order.why,
                    start: None,
                    by: Some(Person {
                        login: author.login.clone(),
                        teams,
                    }),
                };
                self.store.add_request(&request).await?;
                self.pass.wake();
                word.request = Some(id);
            }
            Ok(false) => {
                // Said to nobody: an answer would tell a stranger that there is something to ask.
                tracing::info!(
                    number = kept.number,
                    by = author.login,
                    "a word of somebody who may not write"
                );
                return Ok(false);
            }
            // It waits.
            Err(error) if error.is_later() => return Err(error.into()),
            Err(error) => {
                tracing::warn!(%error, "a word is not taken");
                word.refused = Some(match error {
                    ForgeError::Refused { .. } => NOT_TOLD.to_owned(),
                    error => format!("refused: nobody knows whether you may write here: {error}"),
                });
            }
        }
        kept.words.push(word);
        Ok(true)
    }

    /// Whether somebody is in each of these teams, as the forge says. While it does not answer, the word waits.
    async fn teams_of(
        &self,
        author: &User,
        teams: &[String],
    ) -> Result<BTreeMap<String, InTeam>, ForgeError> {
        let mut said = BTreeMap::new();
        for team in teams {
            let of_team = match self.forge.members(team).await {
                Ok(members) if members.contains(&author.id) => InTeam::Yes,
                Ok(_) => InTeam::No,
                Err(error) if error.is_later() => return Err(error),
                Err(error) => InTeam::Untold(error.to_string()),
            };
            said.insert(team.clone(), of_team);
        }
        Ok(said)
    }
}
