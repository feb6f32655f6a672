//! The memory of content that failed here (B28, DL-14): the same content is not tried again by itself.
//!
//! It stands alone because it must outlive everything else: the order that brought the content, the host's restart,
//! the reconciler's memory. Content goes in when it was taken back for a resource or a probe, and comes out when an
//! order names it in `again`.

use std::collections::BTreeMap;

use meshplan_schemas::declaration::{Declaration, Mode};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::ModuleName;
use serde::{Deserialize, Serialize};

/// The most entries that are kept; the oldest go first.
const ENTRIES: usize = 1000;

/// What failed here, by the digest of its content.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KnownBad {
    entries: BTreeMap<Digest, Entry>,
}

/// One content that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// A module's name, or `policy`.
    pub component: String,
    /// Why it was taken back, in words.
    pub why: String,
    /// When, unix seconds.
    pub at: i64,
}

impl KnownBad {
    /// Remembers a content.
    pub fn remember(&mut self, content: Digest, entry: Entry) {
        self.entries.insert(content, entry);
        while self.entries.len() > ENTRIES {
            let oldest = self.entries.iter().min_by_key(|(_, e)| e.at).map(|(d, _)| *d);
            if let Some(digest) = oldest {
                self.entries.remove(&digest);
            }
        }
    }

    /// The entry of a content that is not tried.
    #[must_use]
    pub fn get(&self, content: &Digest) -> Option<&Entry> {
        self.entries.get(content)
    }

    /// Lifts the memory of what an order tries again; whether anything was lifted.
    pub fn lift(&mut self, again: &[Digest]) -> bool {
        let before = self.entries.len();
        self.entries.retain(|digest, _| !again.contains(digest));
        before != self.entries.len()
    }

    /// How many are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The first module of a declaration that holds content which failed here, in words.
    #[must_use]
    pub fn refuses(&self, declaration: &Declaration) -> Option<String> {
        declaration
            .modules
            .iter()
            .filter(|m| !declaration.again.contains(&m.digest))
            .find_map(|m| {
                let entry = self.get(&m.digest)?;
                Some(format!(
                    "{} is known bad: this content was taken back here before ({}); a go with `--again` tries it once more",
                    m.module, entry.why
                ))
            })
    }
}

/// Which modules a failed declaration blames: the module at fault when it changed, else every module that changed
/// against the confirmed declaration. What stood before is never blamed: the way back leads over it.
#[must_use]
pub fn blamed(
    failed: &Declaration,
    confirmed: Option<&Declaration>,
    at_fault: Option<&ModuleName>,
) -> Vec<(ModuleName, Digest)> {
    let stood = |digest: &Digest| confirmed.is_some_and(|c| c.modules.iter().any(|m| m.digest == *digest));
    let changed: Vec<_> = failed
        .modules
        .iter()
        // What is only looked at changed nothing.
        .filter(|m| m.mode != Mode::Observe && !stood(&m.digest))
        .map(|m| (m.module.clone(), m.digest))
        .collect();
    match at_fault.and_then(|name| changed.iter().find(|(module, _)| module == name)) {
        Some(one) => vec![one.clone()],
        None => changed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::sample;

    fn entry(at: i64) -> Entry {
        Entry {
            component: "web".into(),
            why: "web said 500".into(),
            at,
        }
    }

    // holds: DL-14
    #[test]
    fn the_same_content_in_a_later_order_is_refused_until_the_order_tries_it_again() {
        let mut memory = KnownBad::default();
        memory.remember(sample::digest("web-2"), entry(1));
        let mut order = sample::declaration(9, &[("base", "base-1"), ("web", "web-2")]);
        let why = memory.refuses(&order).unwrap();
        assert!(
            why.starts_with("web is known bad") && why.contains("web said 500"),
            "{why}"
        );
        order.again = vec![sample::digest("web-2")];
        assert_eq!(memory.refuses(&order), None);
        assert!(memory.lift(&order.again));
        assert!(memory.is_empty());
        assert!(!memory.lift(&order.again), "it is lifted once");
    }

    // holds: DL-14
    #[test]
    fn what_stood_before_is_never_blamed() {
        let stood = sample::declaration(1, &[("base", "base-1"), ("web", "web-1")]);
        let failed = sample::declaration(2, &[("base", "base-1"), ("db", "db-2"), ("web", "web-2")]);
        let names = |at_fault: Option<&str>| {
            let at_fault = at_fault.map(|n| n.parse().unwrap());
            blamed(&failed, Some(&stood), at_fault.as_ref())
                .into_iter()
                .map(|(m, _)| m.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(Some("web")), ["web"]);
        assert_eq!(
            names(Some("base")),
            ["db", "web"],
            "an unchanged module's probe blames the changes"
        );
        assert_eq!(names(None), ["db", "web"]);
    }

    #[test]
    fn the_memory_is_bounded_and_forgets_the_oldest() {
        let mut memory = KnownBad::default();
        for n in 0..=i64::try_from(ENTRIES).unwrap() {
            memory.remember(sample::digest(&n.to_string()), entry(n));
        }
        assert_eq!(memory.len(), ENTRIES);
        assert_eq!(memory.get(&sample::digest("0")), None);
    }
}
