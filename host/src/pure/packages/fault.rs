//! What can be wrong with a package manager, and how it is said.

use meshplan_schemas::resource::accounts::Manager;

/// How long a lock that another program holds is waited for.
pub const LOCK_SECS: u64 = 300;
/// An index older than this is not fresh.
const FRESH_SECS: i64 = 86_400;
/// Lines of what a manager said that are passed on.
const LINES: usize = 8;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Another program holds its lock.
    Locked,
    /// It was ended in its midst, and is to be brought to rest first.
    Interrupted,
    /// The index names what its mirrors do not have.
    Stale,
    /// A signature could not be checked, or is wrong.
    Unsigned,
    /// No mirror answers.
    Outage,
    /// Its repositories have no such package, or not in that version.
    NoSuch,
    /// The disk is full.
    NoRoom,
    /// Other packages stand against it.
    Conflict,
    /// Something else.
    Other,
}

impl Fault {
    /// Whether it may be gone once the index is renewed.
    #[must_use]
    pub fn may_be_the_index(self) -> bool {
        matches!(self, Self::Stale | Self::Unsigned | Self::NoSuch)
    }
}

/// The index of a manager, for words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Index {
    /// Whose.
    pub manager: Manager,
    /// When it changed last, unix seconds; none where there is none.
    pub changed_at: Option<i64>,
    /// Unix seconds; none where nobody could say.
    pub now: Option<i64>,
    /// What a person does about one that is out of step.
    pub remedy: &'static str,
}

impl Index {
    fn age_secs(self) -> Option<i64> {
        Some(self.now?.saturating_sub(self.changed_at?).max(0))
    }

    /// Whether it changed within a day.
    fn is_fresh(self) -> bool {
        self.age_secs().is_some_and(|age| age <= FRESH_SECS)
    }

    /// `the package database is of 2026-11-02 (29 days old)`.
    fn words(self) -> String {
        let date = self
            .changed_at
            .and_then(|at| jiff::Timestamp::from_second(at).ok())
            .map(|at| at.strftime("%Y-%m-%d").to_string());
        let Some(date) = date else {
            return "this machine has no package database yet".to_owned();
        };
        let age = match self.age_secs() {
            None => return format!("the package database is of {date}"),
            Some(age @ 0..=7199) => format!("{} minutes", age / 60),
            Some(age @ 7200..=172_799) => format!("{} hours", age / 3600),
            Some(age) => format!("{} days", age / 86_400),
        };
        format!("the package database is of {date} ({age} old)")
    }

    /// What is wrong in words, with what to do; `what` was to be done, and the manager `said` this.
    #[must_use]
    pub fn explain(self, fault: Fault, what: &str, said: &str) -> String {
        let (words, remedy, manager) = (self.words(), self.remedy, self.manager.word());
        let why = match fault {
            Fault::Locked => format!(
                "another program holds the lock of {manager}, also after {LOCK_SECS} s; it is tried again with the next \
                 order"
            ),
            Fault::Interrupted => format!(
                "{manager} was ended in its midst and could not be brought to rest: a person has to look at it"
            ),
            Fault::Stale if self.is_fresh() => format!(
                "the mirror lacks what its own index names, and {words}: it is in the midst of a change; try again in an \
                 hour, or {remedy}"
            ),
            Fault::Stale => format!("the package database is stale: {words}; {remedy}"),
            Fault::Unsigned => format!(
                "a signature could not be checked, and {words}: the keys of the repository, or the database, are out of \
                 date; {remedy}"
            ),
            Fault::Outage if self.is_fresh() => {
                format!("no mirror answers; {words}, which is fresh: try again when one does")
            }
            Fault::Outage => format!("no mirror answers, and {words}: once one does, {remedy}"),
            Fault::NoSuch => format!(
                "the repositories of this machine do not have it, and {words}: correct the name or the version, or \
                 declare the repository first"
            ),
            Fault::NoRoom => "the disk is full: make room and try again".to_owned(),
            Fault::Conflict => {
                "other packages stand against it, and none is removed or changed for it".to_owned()
            }
            Fault::Other => format!("{manager} failed"),
        };
        match tail(said).as_str() {
            "" => format!("{what}: {why}"),
            said => format!("{what}: {why}; it said: {said}"),
        }
    }
}

/// The last lines of what was said, in one.
fn tail(said: &str) -> String {
    let lines: Vec<&str> = (said.lines().map(str::trim))
        .filter(|line| !line.is_empty())
        .collect();
    let from = lines.len().saturating_sub(LINES);
    lines.get(from..).unwrap_or_default().join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn index(age: i64) -> Index {
        Index {
            manager: Manager::Apt,
            changed_at: Some(NOW - age),
            now: Some(NOW),
            remedy: "run `apt-get update`",
        }
    }

    // holds: HK-3
    #[test]
    fn a_stale_database_is_said_with_its_date_its_age_and_the_remedy() {
        let why = index(29 * 86_400).explain(Fault::Stale, "install web", "a\n\nE: 404\n");
        assert_eq!(
            why,
            "install web: the package database is stale: the package database is of 2026-12-17 (29 days old); run \
             `apt-get update`; it said: a | E: 404"
        );
        let why = index(29 * 86_400).explain(Fault::Unsigned, "install web", "");
        assert!(why.contains("29 days old") && why.contains("keys"), "{why}");
    }

    // holds: HK-3
    #[test]
    fn an_outage_with_a_fresh_database_is_not_called_stale() {
        let why = index(3 * 3600).explain(Fault::Outage, "install web", "");
        assert!(why.contains("no mirror answers"), "{why}");
        assert!(why.contains("(3 hours old), which is fresh"), "{why}");
        assert!(!why.contains("stale"), "{why}");
        let old = index(30 * 86_400).explain(Fault::Outage, "install web", "");
        assert!(old.contains("apt-get update"), "{old}");
        let none = Index {
            changed_at: None,
            ..index(0)
        };
        let why = none.explain(Fault::Outage, "install web", "");
        assert!(why.contains("no package database yet"), "{why}");
    }
}
