//! The rules that the invariants of RO-9 rest on, each named, so that a model can show that it notices their absence.
//!
//! In a program they all stand, and [`stands`] is the word `true`. In tests a model takes one away, and must find the
//! invariant that it guards broken: an invariant that holds without its guard was never checked.

/// A rule that can be taken away in a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::pure) enum Guard {
    /// Every order draws a number that none had before (SG-8).
    NewNumbers,
    /// A machine passes only with the order that it was sent (DL-5).
    OwnOrder,
    /// A stage is over only when each awaited machine has a verdict (RO-1).
    Verdicts,
    /// Content that failed is remembered (DL-14).
    Remembered,
    /// A machine carries at most one unproven delivery (DL-3).
    OneAtATime,
    /// A roll-back goes to every machine that was addressed, heard from or not (DL-7).
    Addressed,
    /// Time decides about a machine that does not pass (RO-4).
    Deadline,
    /// Machines that are left behind are in no stage (UC-1).
    LeftBehind,
    /// A host takes no number that is not above those that it has (EP-3): the hosts' rule, and those of a model are made up.
    #[cfg(test)]
    HigherNumbers,
    /// What went back without blame is ordered once more where no walk waits for the machine (DL-13).
    OnceMore,
}

/// Whether the rule stands.
#[cfg(not(test))]
pub(in crate::pure) const fn stands(_: Guard) -> bool {
    true
}

/// Whether the rule stands in the model that this thread runs.
#[cfg(test)]
pub(in crate::pure) fn stands(guard: Guard) -> bool {
    removed::REMOVED.get() != Some(guard)
}

#[cfg(test)]
pub(in crate::pure) mod removed {
    use std::cell::Cell;

    use super::Guard;

    thread_local! {
        pub(super) static REMOVED: Cell<Option<Guard>> = const { Cell::new(None) };
    }

    /// Runs `act` without the rule.
    pub(in crate::pure) fn without<T>(guard: Option<Guard>, act: impl FnOnce() -> T) -> T {
        let before = REMOVED.replace(guard);
        let done = act();
        REMOVED.set(before);
        done
    }
}
