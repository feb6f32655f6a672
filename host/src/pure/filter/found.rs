//! The firewalls that a machine may have had before the host's filter: how each stands, in a word that the ledger keeps
//! and the report says.
//!
//! It stands alone because "off as it was found", "retired by the host" and "gone" are three answers that lead to three
//! different ways back.

use std::collections::BTreeMap;

use meshplan_schemas::report::{FirewallLine, FirewallState};
use serde::{Deserialize, Serialize};

/// How a found firewall stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stand {
    /// It refuses traffic, and will after the next start of the machine; also one whose retirement was begun.
    Active,
    /// It refuses traffic, and will not after the next start of the machine.
    Running,
    /// It will refuse traffic after the next start of the machine, and does not yet.
    Enabled,
    /// It was off when it was found, or somebody turned it off.
    Inactive,
    /// The host turned it off.
    Retired,
    /// Its command is gone: it cannot be asked for anything.
    Gone,
    /// The same, and it was said.
    Removed,
}

impl Stand {
    /// Whether it refuses traffic, now or after the next start of the machine.
    #[must_use]
    pub fn is_active(self) -> bool {
        matches!(self, Self::Active | Self::Running | Self::Enabled)
    }
}

/// What the settings of one say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct On {
    /// It is on.
    pub now: bool,
    /// It is on after the next start of the machine.
    pub later: bool,
}

impl On {
    /// Of one that has a single word for both.
    #[must_use]
    pub fn both(is_on: bool) -> Self {
        Self {
            now: is_on,
            later: is_on,
        }
    }
}

/// What the host has done about one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// It has begun to retire it.
    Retiring,
    /// It has retired it.
    Retired,
    /// It has said that it is gone.
    Removed,
}

impl Mark {
    /// As it is kept.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Retiring => "retiring\n",
            Self::Retired => "retired\n",
            Self::Removed => "removed\n",
        }
    }

    /// Read back; none for what no host has written.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let all = [Self::Retiring, Self::Retired, Self::Removed];
        all.into_iter().find(|mark| mark.word().as_bytes() == bytes)
    }
}

/// How one stands. `on`: what its own settings say, none where the machine has none. `has_command`: asked only where it
/// matters.
#[must_use]
pub fn stand(on: Option<On>, mark: Option<Mark>, has_command: impl FnOnce() -> bool) -> Option<Stand> {
    let gone = match mark {
        Some(Mark::Removed) => Stand::Removed,
        _ => Stand::Gone,
    };
    let Some(on) = on else {
        // What the host turned off, or was about to.
        return mark.map(|_| gone);
    };
    let active = match (on.now, on.later, mark) {
        (true, false, _) => Stand::Running,
        (false, true, _) => Stand::Enabled,
        (true, true, _) | (false, false, Some(Mark::Retiring)) => Stand::Active,
        (false, false, Some(Mark::Retired)) => return Some(Stand::Retired),
        (false, false, _) => return Some(Stand::Inactive),
    };
    Some(if has_command() { active } else { gone })
}

/// Whether ufw's file says that it is on: `ENABLED=yes`; the last word counts.
#[must_use]
pub fn is_enabled(conf: &str) -> bool {
    let mut values = conf
        .lines()
        .filter_map(|line| line.trim().strip_prefix("ENABLED="));
    (values.next_back()).is_some_and(|value| value.trim().trim_matches('"').eq_ignore_ascii_case("yes"))
}

/// What is to be done about them, in words.
#[must_use]
pub fn words(stands: &BTreeMap<String, Stand>) -> Vec<String> {
    let word = |(name, stand): (&String, &Stand)| match stand {
        Stand::Active | Stand::Running | Stand::Enabled => {
            Some(format!("{name}, which is active, is retired"))
        }
        Stand::Gone => Some(format!(
            "{name} is recorded as removed, as its command is gone; nothing is asked of it"
        )),
        Stand::Inactive | Stand::Retired | Stand::Removed => None,
    };
    stands.iter().filter_map(word).collect()
}

/// Their lines in a report.
#[must_use]
pub fn lines(stands: &BTreeMap<String, Stand>) -> Vec<FirewallLine> {
    let line = |(name, stand): (&String, &Stand)| FirewallLine {
        name: name.clone(),
        state: match stand {
            Stand::Active | Stand::Running | Stand::Enabled => FirewallState::Active,
            Stand::Inactive => FirewallState::Inactive,
            Stand::Retired => FirewallState::Retired,
            Stand::Gone | Stand::Removed => FirewallState::Removed,
        },
    };
    stands.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: HK-11
    #[test]
    fn how_a_found_firewall_stands_is_told_by_its_settings_its_command_and_what_was_done() {
        use Mark::{Removed, Retired, Retiring};
        let table = [
            (None, None, true, None),
            (Some(false), None, true, Some(Stand::Inactive)),
            (Some(true), None, true, Some(Stand::Active)),
            // Begun, and not finished: its settings say off, and its rules may stand.
            (Some(false), Some(Retiring), true, Some(Stand::Active)),
            (Some(false), Some(Retired), true, Some(Stand::Retired)),
            // Somebody turned it on again.
            (Some(true), Some(Retired), true, Some(Stand::Active)),
            // Its package is gone, its settings stay.
            (Some(true), None, false, Some(Stand::Gone)),
            (Some(true), Some(Removed), false, Some(Stand::Removed)),
            (Some(false), Some(Retiring), false, Some(Stand::Gone)),
            (None, Some(Retired), false, Some(Stand::Gone)),
            (None, Some(Removed), false, Some(Stand::Removed)),
            // It came back.
            (Some(true), Some(Removed), true, Some(Stand::Active)),
            (Some(false), Some(Removed), true, Some(Stand::Inactive)),
        ];
        for (is_on, mark, has_command, expected) in table {
            assert_eq!(
                stand(is_on.map(On::both), mark, || has_command),
                expected,
                "{is_on:?} {mark:?} {has_command}"
            );
        }
        // Its two words are kept apart, so that it does not come back as more than it was.
        let one = |now, later| stand(Some(On { now, later }), None, || true);
        assert_eq!(one(true, false), Some(Stand::Running));
        assert_eq!(one(false, true), Some(Stand::Enabled));
        let _not_asked = stand(Some(On::both(false)), Some(Retired), || {
            panic!("one that is off was asked for its command")
        });
    }

    // holds: HK-11
    #[test]
    fn ufw_is_on_when_its_file_says_so() {
        assert!(is_enabled("# /etc/ufw/ufw.conf\n\nENABLED=yes\nLOGLEVEL=low\n"));
        assert!(is_enabled("ENABLED=no\nENABLED=\"yes\"\n"));
        assert!(!is_enabled("# ENABLED=yes\nENABLED=no\n"));
        assert!(!is_enabled(""));
    }

    // holds: HK-11
    #[test]
    fn a_mark_is_read_back_as_it_was_written_and_nothing_else_is() {
        for mark in [Mark::Retiring, Mark::Retired, Mark::Removed] {
            assert_eq!(Mark::read(mark.word().as_bytes()), Some(mark));
        }
        assert_eq!(Mark::read(b"retired"), None);
    }
}
