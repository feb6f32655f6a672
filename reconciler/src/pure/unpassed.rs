//! Commits whose place another took before they had passed their gate (DL-15): whatever takes their place answers for their
//! checks, and to the plans that theirs go by, where it changes the same.
//!
//! It stands alone because the gate asks it, the note says it, and a recovery reads it back. Invariant: what is written is
//! read back as it was, or not at all.

use std::collections::BTreeSet;

use meshplan_schemas::ident::{CommitId, DeliveryName};
use serde::{Deserialize, Serialize};

use super::scope::Scope;

/// A commit that was superseded before it had passed its gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unpassed {
    /// The commit.
    pub commit: CommitId,
    /// Its delivery.
    pub name: DeliveryName,
    /// What it changes.
    pub scopes: BTreeSet<Scope>,
    /// The checks that its plans name and that had not passed.
    pub checks: Vec<String>,
    /// It came in one look with what took its place, so nobody had asked yet. Of a push of many commits only the last one is
    /// checked: what never ran on this one is not missed, what failed is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unasked: bool,
}

/// The trailer of a gate that was not passed when another commit took the place: commit, scopes, and up to the end of the line the
/// name of a check, where there is one.
pub const UNPASSED: &str = "Unpassed";
/// The same of a commit that nobody had asked about yet.
pub const UNASKED: &str = "Unasked";

impl Unpassed {
    /// As trailers of the transition by which another commit takes the place, one for each check.
    pub fn facts(&self) -> impl Iterator<Item = (String, String)> {
        let scopes: Vec<String> = self.scopes.iter().map(ToString::to_string).collect();
        let of = format!("{} {}", self.commit, scopes.join(","));
        let none = self.checks.is_empty().then(|| of.clone());
        let checks = self.checks.iter().map(move |check| format!("{of} {check}"));
        let key = if self.unasked { UNASKED } else { UNPASSED };
        none.into_iter().chain(checks).map(|line| (key.to_owned(), line))
    }

    /// The repository that it is of.
    #[must_use]
    pub fn repo(&self) -> &str {
        self.name.0.rsplit_once('@').map_or("", |(repo, _)| repo)
    }

    /// Adds what a commit of `repo` answers for that takes the place of others. Where there is no check, their plans are
    /// all that is asked: its own repository's are asked of it anyway, and those of another one once.
    pub fn gather(all: &mut Vec<Self>, owed: Vec<Self>, repo: &str) {
        for one in owed {
            if one.checks.is_empty() {
                let same = |other: &&mut Self| other.checks.is_empty() && other.repo() == one.repo();
                if let Some(other) = all.iter_mut().find(same) {
                    other.scopes.extend(one.scopes);
                    continue;
                }
                if one.repo() == repo {
                    continue;
                }
            }
            all.push(one);
        }
    }

    /// Takes a trailer into what was read so far, where those of one commit stand together; `name` is how its delivery is
    /// called. None where it is not one of [`Unpassed::facts`].
    pub fn read(
        (key, value): (&str, &str),
        name: impl FnOnce(&CommitId) -> DeliveryName,
        so_far: &mut Vec<Self>,
    ) -> Option<()> {
        let mut words = value.splitn(3, ' ');
        let commit: CommitId = words.next()?.parse().ok()?;
        let scopes = words.next()?.split(',').map(str::parse);
        let scopes = scopes.collect::<Result<_, _>>().ok()?;
        let check = words.next().map(ToOwned::to_owned);
        match so_far.iter_mut().find(|unpassed| unpassed.commit == commit) {
            Some(unpassed) => unpassed.checks.extend(check),
            None => so_far.push(Self {
                name: name(&commit),
                commit,
                scopes,
                checks: check.into_iter().collect(),
                unasked: key == UNASKED,
            }),
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpassed(n: u8, scopes: &[&str], checks: &[&str]) -> Unpassed {
        let commit: CommitId = format!("{n:040x}").parse().unwrap();
        Unpassed {
            name: DeliveryName::new("fleet", &commit),
            commit,
            scopes: scopes.iter().map(|scope| scope.parse().unwrap()).collect(),
            checks: checks.iter().map(|check| (*check).to_owned()).collect(),
            unasked: n == 3,
        }
    }

    // holds: DL-12, DL-15
    #[test]
    fn the_record_says_it_and_gives_it_back() {
        let all = [
            unpassed(1, &["module:web", "policy"], &["ci / a, b", "ci/c"]),
            unpassed(2, &["list"], &["ci/c"]),
            unpassed(3, &["list"], &["ci/c"]),
            unpassed(4, &["gate"], &[]),
        ];
        let mut read = Vec::new();
        for (key, value) in all.iter().flat_map(Unpassed::facts) {
            Unpassed::read(
                (&key, &value),
                |commit| DeliveryName::new("fleet", commit),
                &mut read,
            )
            .unwrap();
        }
        assert_eq!(read, all);
        let commit = &all[0].commit;
        for broken in [
            "",
            "x",
            "x list ci/a",
            commit.as_str(),
            &format!("{commit} wrong ci/a"),
        ] {
            let said = Unpassed::read(
                (UNPASSED, broken),
                |commit| DeliveryName::new("fleet", commit),
                &mut read,
            );
            assert_eq!(said, None, "{broken}");
        }
        assert_eq!(read, all);
    }

    // holds: DL-15
    #[test]
    fn plans_of_another_repository_are_asked_once_and_checks_each_by_itself() {
        let of = |repo: &str, n, checks: &[&str]| Unpassed {
            name: DeliveryName::new(repo, &format!("{n:040x}").parse().unwrap()),
            ..unpassed(n, &["module:web"], checks)
        };
        let mut all = Vec::new();
        let owed = vec![
            of("site", 1, &[]),
            of("fleet", 2, &[]),
            of("fleet", 4, &["ci"]),
            of("site", 5, &[]),
        ];
        Unpassed::gather(&mut all, owed, "fleet");
        assert_eq!(all, [of("site", 1, &[]), of("fleet", 4, &["ci"])]);
    }
}
