//! Commit-confirm: from the end of an apply to "stays" or "goes back" (EP-2, HR-5, HR-13).
//!
//! It stands alone because it is the safety catch: one value, events with `now` in, effects out, nothing else. Its
//! invariant: a window is closed exactly once, by the confirm only while a session stands that came up after the
//! apply and proves the way, and the probes have answered after it, by the revert only at the deadline.

use std::fmt;

use meshplan_schemas::digest::Digest;
use serde::{Deserialize, Serialize};

/// How often probes are asked while a window is open, in seconds.
pub const PROBE_EVERY_SECS: i64 = 2;
/// How old an answer of the probes may be when it is counted, in seconds.
pub const PROBE_FRESH_SECS: i64 = 10;
/// How long the probes may take to answer once before a window that was taken up again is judged, in seconds.
pub const RESUME_GRACE_SECS: i64 = 10;
/// So long after its deadline it is judged whatever is not known, in seconds.
const RESUME_LATE_SECS: i64 = 60;
/// The longest that an announced restart of the reconciler stops the clock, in seconds (EP-2).
pub const RESTART_SECS: u32 = 120;

/// What was changed and waits for its confirm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A declaration.
    Declaration {
        /// Its sequence.
        sequence: u64,
        /// The digest of its payload.
        digest: Digest,
    },
    /// The effective policy of an epoch.
    Policy {
        /// The epoch's number.
        epoch: u64,
        /// The digest of its payload.
        digest: Digest,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Declaration { sequence, .. } => write!(f, "declaration {sequence}"),
            Self::Policy { epoch, .. } => write!(f, "epoch {epoch}"),
        }
    }
}

/// The window between "done" and "stays". It is made by [`Window::open`] when the last resource is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// What is judged.
    pub change: Change,
    /// When the apply was done, unix seconds.
    pub done_at: i64,
    /// When it is judged at the latest, unix seconds.
    pub deadline: i64,
    /// Whether an announced restart has stopped the clock already: it does so once.
    pub stopped_once: bool,
    /// Why it is being taken back: decided, and kept before the machine is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverting: Option<Reason>,
    /// The order names a probe that this machine has, which proves the way where a near session does not.
    #[serde(default)]
    pub by_probe: bool,
    /// How the session goes that came up after the apply; none where none stands.
    #[serde(skip)]
    link: Option<Way>,
    /// What the probes said last, and when.
    #[serde(skip)]
    probes: Option<(Probed, i64)>,
    /// Until when a window that was taken up again is not judged without an answer of the probes.
    #[serde(skip)]
    grace_until: Option<i64>,
    /// When the probes were last asked.
    #[serde(skip)]
    asked_at: Option<i64>,
}

/// How a session with the reconciler goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From one machine to another.
    Far,
    /// To this very machine: it stands whatever is done to the machine's links, and proves nothing (EP-2).
    Near,
}

/// Why a near session did not do.
const NEAR: &str = "the reconciler runs on this machine, and a session with itself proves nothing; let the plan name a \
                    probe: `confirm = \"probe\"` and `confirm_probe`";

/// What the probes of a declaration said together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Probed {
    /// All are healthy, or there is none.
    Passed,
    /// At least one could not be asked; none said no. In its words.
    CannotTell(String),
    /// At least one said no. In its words.
    Failed(String),
}

/// What happens to an open window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A session came up.
    LinkUp(Way),
    /// It is gone.
    LinkDown,
    /// The reconciler restarts by plan, for so many seconds.
    Restarting {
        /// As announced.
        secs: u32,
    },
    /// The probes answered; they were asked after the apply.
    Probes(Probed),
    /// Time went by.
    Tick,
}

/// What follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Have a fresh session made.
    Renew,
    /// Ask the probes.
    AskProbes,
    /// Write the new deadline.
    Deadline(i64),
    /// The change stays. The window is closed.
    Confirm,
    /// The change goes back. The window is closed.
    Revert(Reason),
}

/// Why a change went back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// No session with the reconciler at the deadline.
    NoLink,
    /// A probe said no.
    Probe(String),
    /// A probe could not be asked.
    CannotTell(String),
    /// A resource failed (and `on_failure` is `revert`).
    Resource(String),
    /// The machine or the host stopped inside the window.
    Interrupted(String),
    /// Refused before anything was touched.
    NotBegun(String),
}

impl Reason {
    /// Whether the content is to blame, so that the same content is not tried again by itself (B28, DL-13): a lost
    /// link, a probe that could not be asked and a power cut blame nothing.
    #[must_use]
    pub fn blames_content(&self) -> bool {
        matches!(self, Self::Probe(_) | Self::Resource(_))
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            // The word that the reconciler knows (DL-13).
            Self::NoLink => f.write_str("no-link"),
            Self::Probe(words) | Self::Resource(words) => f.write_str(words),
            Self::CannotTell(words) => write!(f, "cannot tell: {words}"),
            Self::Interrupted(words) => write!(f, "interrupted: {words}"),
            Self::NotBegun(words) => write!(f, "not begun: {words}"),
        }
    }
}

impl Window {
    /// Opens the window of a change that is done: the deadline is `confirm_secs` from now, sessions and answers from
    /// before do not count.
    #[must_use]
    pub fn open(change: Change, confirm_secs: u32, now: i64) -> (Self, Vec<Effect>) {
        let deadline = now.saturating_add(i64::from(confirm_secs));
        let (mut window, effects) = Self::resume(change, now, deadline, false, now);
        window.grace_until = None;
        (window, effects)
    }

    /// Takes a window up again that the former run of this host left open, under the same boot.
    #[must_use]
    pub fn resume(
        change: Change,
        done_at: i64,
        deadline: i64,
        stopped_once: bool,
        now: i64,
    ) -> (Self, Vec<Effect>) {
        let window = Self {
            change,
            done_at,
            deadline,
            stopped_once,
            reverting: None,
            by_probe: false,
            link: None,
            probes: None,
            // A host that is started again and again is judged all the same.
            grace_until: Some(
                now.saturating_add(RESUME_GRACE_SECS)
                    .min(deadline.saturating_add(RESUME_LATE_SECS)),
            ),
            asked_at: Some(now),
        };
        (
            window,
            vec![Effect::Deadline(deadline), Effect::Renew, Effect::AskProbes],
        )
    }

    /// Takes an event. After [`Effect::Confirm`] or [`Effect::Revert`] the window is closed and is dropped.
    pub fn on(&mut self, event: Event, now: i64) -> Vec<Effect> {
        if let Some(reason) = &self.reverting {
            return vec![Effect::Revert(reason.clone())];
        }
        let mut effects = Vec::new();
        match event {
            Event::LinkUp(way) => self.link = Some(way),
            Event::LinkDown => self.link = None,
            Event::Restarting { secs } => {
                if !self.stopped_once && now < self.deadline {
                    self.stopped_once = true;
                    self.deadline = self.deadline.saturating_add(i64::from(secs.min(RESTART_SECS)));
                    effects.push(Effect::Deadline(self.deadline));
                }
            }
            Event::Probes(probed) => self.probes = Some((probed, now)),
            Event::Tick => {}
        }
        let fresh = |at: &i64| (0..=PROBE_FRESH_SECS).contains(&now.saturating_sub(*at));
        let passed = self
            .probes
            .as_ref()
            .is_some_and(|(probed, at)| *probed == Probed::Passed && fresh(at));
        // The deadline first: a confirm that comes late is none.
        if now >= self.deadline && self.judged_now(now) {
            return vec![Effect::Revert(self.verdict(passed))];
        }
        if now < self.deadline && self.proves_the_way() && passed {
            return vec![Effect::Confirm];
        }
        let due = self
            .asked_at
            .is_none_or(|at| now.saturating_sub(at) >= PROBE_EVERY_SECS);
        if due {
            self.asked_at = Some(now);
            effects.push(Effect::AskProbes);
        }
        effects
    }

    fn proves_the_way(&self) -> bool {
        match self.link {
            Some(Way::Far) => true,
            Some(Way::Near) => self.by_probe,
            None => false,
        }
    }

    /// After a restart the probes are asked once before it is judged: their no is another word than a lost link.
    fn judged_now(&self, now: i64) -> bool {
        self.probes.is_some() || self.grace_until.is_none_or(|until| now >= until)
    }

    /// Why it goes back at the deadline. A probe's no is the graver word: it blames the content.
    fn verdict(&self, passed: bool) -> Reason {
        match &self.probes {
            Some((Probed::Failed(words), _)) => Reason::Probe(words.clone()),
            _ if self.link.is_none() => Reason::NoLink,
            _ if !self.proves_the_way() => Reason::CannotTell(NEAR.to_owned()),
            Some((Probed::CannotTell(words), _)) => Reason::CannotTell(words.clone()),
            _ if !passed => Reason::CannotTell("the probes had not answered by the deadline".to_owned()),
            _ => Reason::NoLink,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHANGE: Change = Change::Declaration {
        sequence: 7,
        digest: Digest([7; 32]),
    };

    fn window() -> Window {
        Window::open(CHANGE, 60, 1000).0
    }
    fn closed(effects: &[Effect]) -> Option<&Effect> {
        effects
            .iter()
            .find(|e| matches!(e, Effect::Confirm | Effect::Revert(_)))
    }

    // holds: HR-13
    #[test]
    fn opening_writes_the_deadline_and_asks_for_a_fresh_session_and_the_probes() {
        let (window, effects) = Window::open(CHANGE, 60, 1000);
        assert_eq!(window.deadline, 1060);
        assert_eq!(
            effects,
            [Effect::Deadline(1060), Effect::Renew, Effect::AskProbes]
        );
    }

    // holds: EP-2
    #[test]
    fn it_stays_as_soon_as_a_fresh_session_and_the_probes_are_there_in_either_order() {
        let mut one = window();
        assert_eq!(closed(&one.on(Event::LinkUp(Way::Far), 1001)), None);
        assert_eq!(one.on(Event::Probes(Probed::Passed), 1002), [Effect::Confirm]);
        let mut other = window();
        assert_eq!(closed(&other.on(Event::Probes(Probed::Passed), 1001)), None);
        assert_eq!(other.on(Event::LinkUp(Way::Far), 1002), [Effect::Confirm]);
    }

    // holds: EP-2
    #[test]
    fn a_moments_loss_is_not_judged_and_the_deadline_is() {
        let mut w = window();
        w.on(Event::LinkUp(Way::Far), 1001);
        w.on(Event::Probes(Probed::Failed("web said 500".into())), 1002);
        assert_eq!(closed(&w.on(Event::LinkDown, 1003)), None);
        assert_eq!(closed(&w.on(Event::Probes(Probed::Passed), 1030)), None);
        assert_eq!(closed(&w.on(Event::Tick, 1059)), None);
        assert_eq!(w.on(Event::Tick, 1060), [Effect::Revert(Reason::NoLink)]);
    }

    // holds: EP-2
    #[test]
    fn a_probe_that_still_fails_at_the_deadline_takes_the_change_back_in_its_words() {
        let mut w = window();
        w.on(Event::LinkUp(Way::Far), 1001);
        for at in 1002..1060 {
            let effects = w.on(Event::Probes(Probed::Failed("web said 500".into())), at);
            assert_eq!(closed(&effects), None, "judged at {at}, before the deadline");
        }
        let effects = w.on(Event::Tick, 1060);
        assert_eq!(effects, [Effect::Revert(Reason::Probe("web said 500".into()))]);
    }

    // holds: EP-2, HR-13
    #[test]
    fn a_session_with_a_reconciler_on_this_machine_proves_nothing_without_a_probe_that_the_plan_names() {
        let mut w = window();
        w.on(Event::LinkUp(Way::Near), 1001);
        assert_eq!(closed(&w.on(Event::Probes(Probed::Passed), 1002)), None);
        w.on(Event::Probes(Probed::Passed), 1059);
        let [Effect::Revert(reason)] = &w.on(Event::Tick, 1060)[..] else {
            panic!("it stays")
        };
        assert!(
            reason
                .to_string()
                .starts_with("cannot tell: the reconciler runs on this machine")
        );
        assert!(!reason.blames_content());
        let mut w = window();
        w.by_probe = true;
        w.on(Event::LinkUp(Way::Near), 1001);
        assert_eq!(
            closed(&w.on(Event::Probes(Probed::CannotTell("?".into())), 1002)),
            None
        );
        assert_eq!(w.on(Event::Probes(Probed::Passed), 1003), [Effect::Confirm]);
        let mut w = window();
        w.by_probe = true;
        assert_eq!(
            closed(&w.on(Event::Probes(Probed::Passed), 1001)),
            None,
            "it takes a session all the same"
        );
    }

    // holds: EP-2
    #[test]
    fn an_announced_restart_stops_the_clock_once_and_for_two_minutes_at_most() {
        let mut w = window();
        let effects = w.on(Event::Restarting { secs: 600 }, 1010);
        assert_eq!(effects.first(), Some(&Effect::Deadline(1180)));
        assert!(
            !w.on(Event::Restarting { secs: 60 }, 1020)
                .contains(&Effect::Deadline(1240))
        );
        assert_eq!(closed(&w.on(Event::Tick, 1179)), None);
        assert_eq!(w.on(Event::Tick, 1180), [Effect::Revert(Reason::NoLink)]);
    }

    // holds: DL-13
    #[test]
    fn only_a_probes_no_and_a_failed_resource_blame_the_content() {
        assert!(Reason::Probe(String::new()).blames_content());
        assert!(Reason::Resource(String::new()).blames_content());
        assert!(!Reason::NoLink.blames_content());
        assert!(!Reason::CannotTell(String::new()).blames_content());
        assert!(!Reason::Interrupted(String::new()).blames_content());
    }

    #[test]
    fn an_old_answer_of_the_probes_does_not_count_when_the_link_comes_late() {
        let mut w = window();
        w.on(Event::Probes(Probed::Passed), 1001);
        assert_eq!(closed(&w.on(Event::LinkUp(Way::Far), 1050)), None);
        assert_eq!(w.on(Event::Probes(Probed::Passed), 1051), [Effect::Confirm]);
    }

    // holds: EP-2
    #[test]
    fn a_confirm_that_comes_at_the_deadline_or_with_an_answer_from_the_future_is_none() {
        let mut w = window();
        w.on(Event::Probes(Probed::Passed), 1059);
        assert_eq!(
            w.on(Event::LinkUp(Way::Far), 1060),
            [Effect::Revert(Reason::NoLink)]
        );
        let mut w = window();
        w.on(Event::Probes(Probed::Passed), 1050);
        assert_eq!(
            closed(&w.on(Event::LinkUp(Way::Far), 1030)),
            None,
            "the clock jumped back"
        );
    }

    // holds: HR-13
    #[test]
    fn after_a_restart_the_probes_are_heard_once_before_it_is_judged() {
        let resumed = |now| Window::resume(CHANGE, 1000, 1060, false, now).0;
        let mut w = resumed(1059);
        assert_eq!(closed(&w.on(Event::Tick, 1061)), None, "judged unheard");
        assert_eq!(
            w.on(Event::Probes(Probed::Failed("web said 500".into())), 1062),
            [Effect::Revert(Reason::Probe("web said 500".into()))]
        );
        assert_eq!(closed(&resumed(1061).on(Event::Tick, 1070)), None);
        assert_eq!(
            resumed(1061).on(Event::Tick, 1071),
            [Effect::Revert(Reason::NoLink)]
        );
        assert_eq!(
            resumed(1200).on(Event::Tick, 1200),
            [Effect::Revert(Reason::NoLink)]
        );
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            Just(Event::LinkUp(Way::Far)),
            Just(Event::LinkUp(Way::Near)),
            Just(Event::LinkDown),
            (0u32..400).prop_map(|secs| Event::Restarting { secs }),
            Just(Event::Probes(Probed::Passed)),
            Just(Event::Probes(Probed::CannotTell("?".into()))),
            Just(Event::Probes(Probed::Failed("no".into()))),
            Just(Event::Tick),
        ]
    }

    proptest! {
        // holds: EP-2, HR-13
        #[test]
        fn whatever_comes_it_is_closed_by_the_deadline_and_never_confirmed_without_link_and_probes(
            events in proptest::collection::vec((event(), 0i64..30), 0..60),
            by_probe: bool,
        ) {
            let mut w = window();
            w.by_probe = by_probe;
            let (mut now, mut link, mut passed_at) = (1000, false, None);
            for (event, later) in events {
                now += later;
                match &event {
                    Event::LinkUp(way) => link = *way == Way::Far || by_probe,
                    Event::LinkDown => link = false,
                    Event::Probes(p) => passed_at = (*p == Probed::Passed).then_some(now),
                    Event::Restarting { .. } | Event::Tick => {}
                }
                let effects = w.on(event, now);
                let fresh = passed_at.is_some_and(|at| now - at <= PROBE_FRESH_SECS);
                match closed(&effects) {
                    Some(Effect::Confirm) => {
                        prop_assert!(link && fresh && now < w.deadline);
                        return Ok(());
                    }
                    Some(_) => {
                        prop_assert!(now >= w.deadline);
                        return Ok(());
                    }
                    None => prop_assert!(now < w.deadline && !(link && fresh)),
                }
            }
            prop_assert!(w.deadline <= 1060 + i64::from(RESTART_SECS));
            let effects = w.on(Event::Tick, w.deadline);
            prop_assert!(closed(&effects).is_some());
        }
    }
}
