//! A unit as the service manager tells of it, and whether it runs (HK-5).
//!
//! Stands alone because starting, looking twice and taking back judge by the same words.

/// A unit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unit {
    /// `active`, `reloading`, `inactive`, `failed`, `activating`, `deactivating`, `maintenance`.
    pub active: String,
    /// Finer, as `running`, `exited`, `dead`, `auto-restart`.
    pub sub: String,
    /// Whether it starts at boot: `enabled`, `disabled`, `static`, `masked`, `generated`; empty where there is no file.
    pub boot: String,
    /// Why a service ended last, as `success`, `exit-code`; empty for other units.
    pub result: String,
    /// The main process of a service; 0 where there is none.
    pub main_pid: u32,
    /// How often the manager started a service again by itself.
    pub restarts: u32,
    /// Its file is newer than what the manager has read.
    pub is_stale: bool,
}

impl Unit {
    /// Whether it is up or on its way up: a unit that is still starting is accepted.
    #[must_use]
    pub fn is_up(&self) -> bool {
        // `auto-restart` is `activating` to the manager, and means that it has just died.
        matches!(
            self.active.as_str(),
            "active" | "activating" | "reloading" | "refreshing"
        ) && self.sub != "auto-restart"
    }

    /// Whether it is at rest: nothing of it runs, and nothing is about to. One that waits for its own restart is neither
    /// up nor at rest.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        matches!(self.active.as_str(), "inactive" | "failed")
    }

    /// Its state in a word, as it is kept: `auto-restart` is one of its own.
    #[must_use]
    pub fn state(&self) -> &str {
        match self.sub.as_str() {
            "auto-restart" => "auto-restart",
            _ if self.is_up() => "active",
            _ => &self.active,
        }
    }

    /// Whether it starts at boot; none for a unit that has no say in it, as a static one.
    #[must_use]
    pub fn is_enabled(&self) -> Option<bool> {
        match self.boot.as_str() {
            "enabled" | "enabled-runtime" => Some(true),
            // Its file is linked in, and nothing starts it for that.
            "disabled" | "linked" | "linked-runtime" => Some(false),
            _ => None,
        }
    }

    /// Whether nothing can start it.
    #[must_use]
    pub fn is_masked(&self) -> bool {
        matches!(self.boot.as_str(), "masked" | "masked-runtime")
    }

    /// How it stands, in words.
    #[must_use]
    pub fn words(&self) -> String {
        let why = match self.result.as_str() {
            "" | "success" => String::new(),
            why => format!(", result {why}"),
        };
        format!("{} ({}{why})", self.active, self.sub)
    }
}

/// What is wrong with a unit at the second look, a moment after it was started; none when it is up and nothing
/// happened to it in between.
#[must_use]
pub fn died_between(first: &Unit, second: Option<&Unit>) -> Option<String> {
    let Some(second) = second else {
        return Some("it was started, and a moment later there is no such unit".to_owned());
    };
    if !second.is_up() {
        return Some(format!(
            "it was started and died a moment later: {}",
            second.words()
        ));
    }
    if second.restarts > first.restarts {
        return Some(format!(
            "it was started, died and was started again by the manager: {}",
            second.words()
        ));
    }
    None
}

/// Why a unit was not up all the while between two looks: active and running at both, the same main process, never
/// started again in between (HK-7). None where it was. One that still starts is not up by this.
#[must_use]
pub fn not_up_throughout(first: Option<&Unit>, second: Option<&Unit>) -> Option<String> {
    let (Some(first), Some(second)) = (first, second) else {
        return Some("there is no such unit".to_owned());
    };
    let down = |unit: &Unit| (unit.active != "active" || unit.sub != "running").then(|| unit.words());
    if let Some(words) = down(first).or_else(|| down(second)) {
        return Some(format!("it is {words}"));
    }
    let is_same = first.main_pid == second.main_pid && first.main_pid != 0;
    (!is_same || first.restarts != second.restarts)
        .then(|| "it died and was started again between two looks at it".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(active: &str, sub: &str) -> Unit {
        Unit {
            active: active.to_owned(),
            sub: sub.to_owned(),
            boot: "enabled".to_owned(),
            result: "success".to_owned(),
            main_pid: 7,
            ..Unit::default()
        }
    }

    // holds: HK-5
    #[test]
    fn a_unit_that_still_starts_is_up_and_one_that_waits_for_its_restart_is_not() {
        for (active, sub, up) in [
            ("active", "running", true),
            ("active", "exited", true),
            ("activating", "start-pre", true),
            ("reloading", "reload", true),
            ("activating", "auto-restart", false),
            ("inactive", "dead", false),
            ("failed", "failed", false),
            ("deactivating", "stop-sigterm", false),
        ] {
            assert_eq!(unit(active, sub).is_up(), up, "{active} {sub}");
        }
        let looping = unit("activating", "auto-restart");
        assert!(!looping.is_at_rest() && looping.state() == "auto-restart");
        assert!(unit("failed", "failed").is_at_rest());
    }

    // holds: HK-7
    #[test]
    fn up_throughout_is_running_at_both_looks_in_one_process_and_never_started_again() {
        let up = unit("active", "running");
        assert_eq!(not_up_throughout(Some(&up), Some(&up)), None);
        for other in [
            unit("activating", "start"),
            unit("activating", "auto-restart"),
            unit("active", "exited"),
            unit("reloading", "reload"),
            unit("failed", "failed"),
            Unit {
                main_pid: 8,
                ..up.clone()
            },
            Unit {
                restarts: 1,
                ..up.clone()
            },
        ] {
            assert!(not_up_throughout(Some(&up), Some(&other)).is_some(), "{other:?}");
            assert!(not_up_throughout(Some(&other), Some(&up)).is_some(), "{other:?}");
        }
        let without = Unit {
            main_pid: 0,
            ..up.clone()
        };
        assert!(not_up_throughout(Some(&without), Some(&without)).is_some());
        assert!(not_up_throughout(Some(&up), None).is_some());
        assert!(not_up_throughout(None, Some(&up)).is_some());
    }

    // holds: HK-5
    #[test]
    fn the_second_look_tells_a_death_in_between() {
        let first = unit("active", "running");
        assert_eq!(died_between(&first, Some(&first)), None);
        let starting = unit("activating", "start");
        assert_eq!(died_between(&starting, Some(&starting)), None);
        let mut again = first.clone();
        again.restarts = 1;
        assert!(died_between(&first, Some(&again)).is_some());
        let mut dead = unit("failed", "failed");
        dead.result = "exit-code".to_owned();
        assert!(died_between(&first, Some(&dead)).unwrap().contains("exit-code"));
        assert!(died_between(&first, None).is_some());
    }
}
