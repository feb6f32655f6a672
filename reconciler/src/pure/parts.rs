//! What a delivery's tree is made of: a commit of the fleet repo, and the commits of components that feed its modules (DL-1).
//!
//! Commits of all these branches are one row, in the order in which they became known; each one's tree has what those before
//! it brought, as if all were one repository. So whatever holds for commits of one branch holds for all: what is delivered,
//! superseded or known to be bad is told by content alone.

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::State;
use serde::{Deserialize, Serialize};

use super::decide::NewCommit;
use super::delivery::Delivery;

/// A branch of a component's repository.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Branch {
    /// The repository, as the forge names it.
    pub repo: String,
    /// The branch.
    pub branch: String,
}

/// A component as it is at one commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Of which branch.
    #[serde(flatten)]
    pub of: Branch,
    /// The commit.
    pub commit: CommitId,
}

/// What a tree is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts {
    /// The commit of the fleet repo.
    pub fleet: CommitId,
    /// Components, by branch; one for each.
    pub components: Vec<Part>,
}

/// Commits that waited, and that their branch does not have any more: it was set back, or rewritten (DL-2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// The component's branch; none: the fleet's.
    pub of: Option<Branch>,
    /// Where the branch is now.
    pub head: CommitId,
    /// The commits.
    pub commits: BTreeSet<CommitId>,
}

/// The trailer of an announcement that names the fleet repo's commit in the tree.
pub const FLEET: &str = "Fleet-Commit";
/// The trailer of an announcement that names a component in the tree: repository, branch, commit.
pub const COMPONENT: &str = "Component";

impl Parts {
    /// A commit of the fleet repo, with no component.
    #[must_use]
    pub fn alone(fleet: CommitId) -> Self {
        Self {
            fleet,
            components: Vec::new(),
        }
    }

    /// What the tree of a commit is made of that comes after this.
    #[must_use]
    pub fn then(&self, new: &NewCommit) -> Self {
        let mut parts = self.clone();
        let Some(of) = &new.component else {
            parts.fleet = new.commit.clone();
            return parts;
        };
        parts.components.retain(|part| part.of != *of);
        parts.components.push(Part {
            of: of.clone(),
            commit: new.commit.clone(),
        });
        parts.components.sort_by(|a, b| a.of.cmp(&b.of));
        parts
    }

    /// The commit of a component, where one is known.
    #[must_use]
    pub fn of(&self, branch: &Branch) -> Option<&CommitId> {
        let part = self.components.iter().find(|part| part.of == *branch);
        part.map(|part| &part.commit)
    }

    /// Its commits, each with the component's branch that it is of; none: the fleet's.
    pub fn each(&self) -> impl Iterator<Item = (Option<&Branch>, &CommitId)> {
        let components = self.components.iter().map(|part| (Some(&part.of), &part.commit));
        std::iter::once((None, &self.fleet)).chain(components)
    }

    /// What it has of each repository that `base` has another commit of, or none: that commit, and this one.
    pub fn changed<'p>(
        &'p self,
        base: &'p Self,
    ) -> impl Iterator<Item = (Option<&'p CommitId>, &'p CommitId)> {
        let fleet = (base.fleet != self.fleet).then_some((Some(&base.fleet), &self.fleet));
        let components = self
            .components
            .iter()
            .map(|part| (base.of(&part.of), &part.commit));
        fleet
            .into_iter()
            .chain(components.filter(|(before, commit)| *before != Some(*commit)))
    }

    /// The first commit of these that a tree is made of.
    #[must_use]
    pub fn first_of<'l>(&self, left: &'l Left) -> Option<&'l CommitId> {
        let part = match &left.of {
            None => Some(&self.fleet),
            Some(of) => self.of(of),
        };
        left.commits.get(part?)
    }

    /// The same, with the branch as it is now in the place of a commit that left it.
    #[must_use]
    pub fn without(&self, left: &[Left]) -> Self {
        let mut parts = self.clone();
        for left in left.iter().filter(|left| self.first_of(left).is_some()) {
            match &left.of {
                None => parts.fleet = left.head.clone(),
                Some(of) => {
                    let part = parts.components.iter_mut().find(|part| part.of == *of);
                    if let Some(part) = part {
                        part.commit = left.head.clone();
                    }
                }
            }
        }
        parts
    }

    /// As trailers of an announcement; none of a tree that is its own commit's alone.
    pub fn facts(&self) -> Vec<(String, String)> {
        if self.components.is_empty() {
            return Vec::new();
        }
        self.all_facts()
    }

    /// As trailers, of any tree.
    pub fn all_facts(&self) -> Vec<(String, String)> {
        let parts = self.components.iter().map(|part| {
            let Branch { repo, branch } = &part.of;
            (COMPONENT.to_owned(), format!("{repo} {branch} {}", part.commit))
        });
        std::iter::once((FLEET.to_owned(), self.fleet.to_string()))
            .chain(parts)
            .collect()
    }

    /// Reads [`Parts::facts`]; none where there are no such trailers.
    #[must_use]
    pub fn read(trailers: &[(String, String)]) -> Option<Self> {
        let said = |key: &'static str| {
            trailers
                .iter()
                .filter(move |(k, _)| k == key)
                .map(|(_, value)| value)
        };
        let fleet = said(FLEET).next()?.parse().ok()?;
        let part = |text: &String| {
            let mut words = text.split(' ');
            let of = Branch {
                repo: words.next()?.to_owned(),
                branch: words.next()?.to_owned(),
            };
            let commit = words.next()?.parse().ok()?;
            Some(Part { of, commit })
        };
        let components = said(COMPONENT).map(part).collect::<Option<_>>()?;
        Some(Self { fleet, components })
    }
}

/// Whether what a delivery has may still leave its branch with nothing to be taken back: it waits, or was dropped before any
/// order of it was out.
#[must_use]
pub fn may_leave(delivery: &Delivery) -> bool {
    let is_dropped = matches!(delivery.state, State::Withdrawn | State::Failed);
    delivery.waits() || (is_dropped && !delivery.has_begun())
}

/// What the trees of new commits are made of, in their order, after the newest delivery; of what waited and left its branch none
/// is made. A component's commit before there is any of the fleet is none of them.
#[must_use]
pub fn of_news(newest: Option<&Delivery>, left: &[Left], news: &[NewCommit]) -> BTreeMap<CommitId, Parts> {
    let after = |newest: &Delivery| match may_leave(newest) {
        true => newest.parts_after().without(left),
        false => newest.parts_after(),
    };
    let mut before = newest.map(after);
    let mut all = BTreeMap::new();
    for new in news {
        let parts = match (&before, &new.component) {
            (Some(before), _) => before.then(new),
            (None, None) => Parts::alone(new.commit.clone()),
            (None, Some(_)) => continue,
        };
        all.insert(new.commit.clone(), parts.clone());
        before = Some(parts);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> CommitId {
        format!("{n:040x}").parse().unwrap()
    }

    fn new(n: u8, component: Option<&str>) -> NewCommit {
        NewCommit {
            heard: Some(false),
            commit: id(n),
            component: component.map(|repo| Branch {
                repo: repo.to_owned(),
                branch: "main".to_owned(),
            }),
            subject: String::new(),
            author: String::new(),
            rewritten: false,
            allows_removals: None,
        }
    }

    // holds: DL-1
    #[test]
    fn each_tree_has_the_newest_of_all_that_was_known_before_it() {
        let news = [
            new(1, Some("a/web")),
            new(2, None),
            new(3, Some("a/web")),
            new(4, Some("a/db")),
            new(5, Some("a/web")),
            new(6, None),
        ];
        let all = of_news(None, &[], &news);
        let shown = |n| {
            all.get(&id(n)).map(|parts| {
                let components = parts.components.iter();
                let components = components.map(|part| format!("{} {}", part.of.repo, part.commit.short()));
                (parts.fleet == id(2) || parts.fleet == id(6), components.count())
            })
        };
        assert_eq!(shown(1), None, "there is no fleet yet");
        assert_eq!(all[&id(2)], Parts::alone(id(2)));
        let branch = |repo: &str| Branch {
            repo: repo.to_owned(),
            branch: "main".to_owned(),
        };
        let last = &all[&id(6)];
        assert_eq!(last.fleet, id(6));
        assert_eq!(last.of(&branch("a/web")), Some(&id(5)));
        assert_eq!(last.of(&branch("a/db")), Some(&id(4)));
        assert_eq!(all[&id(4)].of(&branch("a/web")), Some(&id(3)));
        assert_eq!(all[&id(3)].fleet, id(2));
    }

    // holds: DL-2
    #[test]
    fn what_was_dropped_before_it_walked_and_left_its_branch_is_in_no_tree_after_it() {
        let mut newest = Delivery::announced("a/web", id(2), 2, jiff::Timestamp::UNIX_EPOCH);
        newest.made_of = Some(Parts::alone(id(1)).then(&new(2, Some("a/web"))));
        let left = [Left {
            of: Some(Branch {
                repo: "a/web".to_owned(),
                branch: "main".to_owned(),
            }),
            head: id(9),
            commits: BTreeSet::from([id(2)]),
        }];
        let web = |newest: &Delivery| {
            let all = of_news(Some(newest), &left, &[new(3, None)]);
            all[&id(3)].of(left[0].of.as_ref().unwrap()).cloned()
        };
        for state in [State::Proposed, State::Withdrawn, State::Failed] {
            newest.state = state;
            assert_eq!(web(&newest), Some(id(9)), "{state}");
        }
        newest.state = State::Delivered;
        assert_eq!(web(&newest), Some(id(2)));
    }

    // holds: DL-12
    #[test]
    fn the_record_says_it_and_gives_it_back() {
        let parts = Parts::alone(id(1))
            .then(&new(2, Some("a/web")))
            .then(&new(3, Some("b/x")));
        assert_eq!(Parts::read(&parts.facts()), Some(parts));
        assert_eq!(Parts::alone(id(1)).facts(), Vec::new());
        assert_eq!(Parts::read(&[(FLEET.to_owned(), "x".to_owned())]), None);
    }
}
