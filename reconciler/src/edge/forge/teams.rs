//! Who is in a team: the forge's own list of its members, remembered for a moment (DL-4).
//!
//! Invariant: somebody is in a team, or is not, by a whole list that the forge gave; where it gives none there is an error.
//! Members are known by number: whoever takes over a login takes over no team (B57).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};

use super::{Forge, ForgeError};

/// For how long a list is remembered.
const REMEMBERED: SignedDuration = SignedDuration::from_secs(30);

/// Members by their numbers.
pub(super) type Members = Arc<BTreeSet<u64>>;

/// The teams that were asked about, and when.
#[derive(Debug, Default)]
pub(super) struct Teams(Mutex<BTreeMap<String, (Timestamp, Members)>>);

impl Teams {
    fn remembered(&self, team: &str, now: Timestamp) -> Option<Members> {
        let mut teams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Of a clock that was set back it says nothing.
        teams.retain(|_, (at, _)| now.duration_since(*at).abs() < REMEMBERED);
        teams.get(team).map(|(_, members)| Arc::clone(members))
    }

    fn remember(&self, team: &str, now: Timestamp, members: &Members) {
        let mut teams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        teams.insert(team.to_owned(), (now, Arc::clone(members)));
    }
}

impl Forge {
    /// The members of a team, by number. A team is named as plans name it: on Forgejo a team of the organisation, on GitHub
    /// one by the name in its address, on GitLab a group by its whole path.
    ///
    /// # Errors
    /// [`ForgeError`]: also where there is no such team, or the token is not shown it.
    pub async fn members(&self, team: &str) -> Result<Arc<BTreeSet<u64>>, ForgeError> {
        let now = self.api.now();
        if let Some(members) = self.teams.remembered(team, now) {
            return Ok(members);
        }
        let known_as = self.known_as(team).await?;
        let read = |body: &[u8]| self.says.read_members(body);
        let call = self.says.members(&known_as);
        let members = self.list(call, "the members of a team", read).await;
        let members = members.map_err(|error| self.named(team, error))?;
        let members = Arc::new(members.into_iter().map(|member| member.id).collect());
        self.teams.remember(team, now, &members);
        Ok(members)
    }

    /// How the forge is asked for a team: by its number where it has a list of them, else by its name.
    async fn known_as(&self, team: &str) -> Result<String, ForgeError> {
        let Some(call) = self.says.teams() else {
            return Ok(team.to_owned());
        };
        let read = |body: &[u8]| self.says.read_teams(body);
        let teams = self.list(call, "the teams of the organisation", read).await;
        let teams = teams.map_err(|error| self.named(team, error))?;
        let found = teams.into_iter().find(|of| of.name == team);
        let found = found.ok_or_else(|| self.no_team(team))?;
        Ok(found.id.to_string())
    }

    fn no_team(&self, team: &str) -> ForgeError {
        let what = format!("team `{team}` that it shows to this token, see docs/forges");
        self.api.missing(what)
    }

    /// What is not there is the team.
    fn named(&self, team: &str, error: ForgeError) -> ForgeError {
        match error {
            ForgeError::Missing { .. } => self.no_team(team),
            other => other,
        }
    }
}
