//! Teams of a double: of the organisation, or groups.

use serde_json::{Value, json};

use super::{Double, State};

/// The number of the first team.
const FIRST_ID: u64 = 31;

impl Double {
    /// Makes a team of these people, or makes it be of these.
    pub fn team(&self, name: &str, logins: &[&str]) {
        let logins = logins.iter().map(|login| (*login).to_owned()).collect();
        self.locked().teams.insert(name.to_owned(), logins);
    }
}

impl State {
    /// The teams, with their numbers.
    pub(super) fn numbered_teams(&self) -> impl Iterator<Item = (u64, &str)> {
        (FIRST_ID..).zip(self.teams.keys().map(String::as_str))
    }

    /// The members of a team, as `shape` says them; none where there is no such team.
    pub(super) fn members(&self, team: &str, shape: impl Fn(&Self, &str) -> Value) -> Option<Vec<Value>> {
        let logins = self.teams.get(team)?.iter();
        Some(logins.map(|login| shape(self, login)).collect())
    }

    /// A team, as Forgejo tells of it.
    pub(super) fn team(&self, id: u64, name: &str) -> Value {
        json!({
            "id": id, "name": name, "description": "", "organization": null, "includes_all_repositories": false,
            "permission": "write", "units": ["repo.code"], "units_map": { "repo.code": "write" },
            "can_create_org_repo": false,
        })
    }
}
