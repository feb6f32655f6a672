//! Which report is said next (B49): in order, one at a time, again and again until it is acknowledged or rejected.
//!
//! It stands alone because reporting must never be tied to applying: whatever happens to a report, nothing is
//! applied again for it. The bytes lie in the spool ([`crate::edge::reporter`]); here are only their counters. A
//! report that was said and got no answer is said again with the same counter, which the reconciler knows.

use std::collections::BTreeMap;

/// The longest that a reconciler that is busy may have a host wait, in milliseconds.
const BUSY_MOST_MS: u64 = 600_000;

/// How long no answer is an answer that was lost, in seconds.
pub const ANSWER_SECS: i64 = 30;

/// How much may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// Reports.
    pub reports: usize,
    /// Their bytes together.
    pub bytes: u64,
}

/// The reports that wait, by counter, with their bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outbound {
    waiting: BTreeMap<u64, u64>,
    bytes: u64,
    in_flight: Option<(u64, i64)>,
    not_before: i64,
    up: bool,
}

/// What happens to the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A report was spooled.
    Queued {
        /// Its counter.
        counter: u64,
        /// What it takes on the disk.
        bytes: u64,
    },
    /// A session stands.
    Up,
    /// It is gone.
    Down,
    /// Stored.
    Ack(u64),
    /// Will never be taken.
    Reject(u64),
    /// Again after so many milliseconds.
    Busy {
        /// As said.
        retry_after_ms: u64,
    },
    /// Time went by.
    Tick,
}

/// What follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Say the report with this counter.
    Say(u64),
    /// Delete it: it is stored at the reconciler.
    Delete(u64),
    /// Set it aside, where a person sees it.
    SetAside(u64),
}

impl Outbound {
    /// The queue over what the spool holds: counters, each with its bytes.
    #[must_use]
    pub fn new(waiting: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let waiting: BTreeMap<u64, u64> = waiting.into_iter().collect();
        Self {
            bytes: waiting.values().sum(),
            waiting,
            ..Self::default()
        }
    }

    /// Nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a heartbeat may be said now: it may not overtake a report that waits, for older never replaces newer.
    #[must_use]
    pub fn lets_heartbeat_pass(&self) -> bool {
        self.up && self.waiting.is_empty()
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes the oldest report out when more wait than may: what is said of it is said by a later one. The newest
    /// stays, however large it is.
    pub fn overflow(&mut self, bound: Bound) -> Option<u64> {
        if self.waiting.len() <= bound.reports && self.bytes <= bound.bytes {
            return None;
        }
        let newest = self.waiting.last_key_value().map(|(counter, _)| *counter);
        let mut older = self.waiting.keys().copied().filter(|c| Some(*c) != newest);
        let oldest = older.find(|c| self.in_flight.is_none_or(|(f, _)| f != *c))?;
        self.take(oldest);
        Some(oldest)
    }

    /// Takes an event.
    pub fn on(&mut self, event: Event, now: i64) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Queued { counter, bytes } => {
                let former = self.waiting.insert(counter, bytes);
                self.bytes = (self.bytes + bytes).saturating_sub(former.unwrap_or(0));
            }
            Event::Up => {
                self.up = true;
                self.in_flight = None;
                self.not_before = 0;
            }
            Event::Down => {
                self.up = false;
                self.in_flight = None;
            }
            Event::Ack(counter) => {
                if self.take(counter) {
                    effects.push(Effect::Delete(counter));
                }
            }
            Event::Reject(counter) => {
                if self.take(counter) {
                    effects.push(Effect::SetAside(counter));
                }
            }
            Event::Busy { retry_after_ms } => {
                let millis = retry_after_ms.min(BUSY_MOST_MS);
                let secs = i64::try_from(millis.div_ceil(1000)).unwrap_or(i64::MAX);
                self.not_before = now.saturating_add(secs);
                self.in_flight = None;
            }
            Event::Tick => {}
        }
        let lost = |since: i64| now.saturating_sub(since) >= ANSWER_SECS;
        if self.in_flight.is_some_and(|(_, since)| lost(since)) {
            self.in_flight = None;
        }
        if self.up
            && self.in_flight.is_none()
            && now >= self.not_before
            && let Some((first, _)) = self.waiting.first_key_value()
        {
            self.in_flight = Some((*first, now));
            effects.push(Effect::Say(*first));
        }
        effects
    }

    fn take(&mut self, counter: u64) -> bool {
        if self.in_flight.is_some_and(|(c, _)| c == counter) {
            self.in_flight = None;
        }
        let taken = self.waiting.remove(&counter);
        self.bytes = self.bytes.saturating_sub(taken.unwrap_or(0));
        taken.is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Each of ten bytes.
    fn queue(counters: impl IntoIterator<Item = u64>) -> Outbound {
        Outbound::new(counters.into_iter().map(|counter| (counter, 10)))
    }
    fn queued(counter: u64) -> Event {
        Event::Queued { counter, bytes: 10 }
    }

    // holds: HR-11
    #[test]
    fn reports_go_one_after_the_other_in_the_order_of_their_counters() {
        let mut q = queue([5, 3]);
        assert_eq!(q.on(Event::Tick, 0), []);
        assert_eq!(q.on(Event::Up, 0), [Effect::Say(3)]);
        assert_eq!(q.on(queued(6), 1), []);
        assert_eq!(q.on(Event::Ack(3), 1), [Effect::Delete(3), Effect::Say(5)]);
        assert_eq!(q.on(Event::Ack(5), 1), [Effect::Delete(5), Effect::Say(6)]);
    }

    // holds: HR-11
    #[test]
    fn a_lost_acknowledgement_is_said_again_with_the_same_counter() {
        let mut q = queue([3]);
        assert_eq!(q.on(Event::Up, 0), [Effect::Say(3)]);
        assert_eq!(q.on(Event::Down, 1), []);
        assert_eq!(q.on(Event::Up, 2), [Effect::Say(3)]);
        assert_eq!(q.on(Event::Tick, 2 + ANSWER_SECS), [Effect::Say(3)]);
        assert_eq!(q.on(Event::Ack(3), 40), [Effect::Delete(3)]);
        assert_eq!(
            q.on(Event::Ack(3), 41),
            [],
            "the second acknowledgement says nothing new"
        );
    }

    // holds: HR-11
    #[test]
    fn a_rejected_report_is_set_aside_and_blocks_nobody() {
        let mut q = queue([3, 4]);
        q.on(Event::Up, 0);
        assert_eq!(q.on(Event::Reject(3), 1), [Effect::SetAside(3), Effect::Say(4)]);
    }

    // holds: LK-7
    #[test]
    fn busy_never_silences_a_host_for_longer_than_ten_minutes() {
        let mut q = queue([3]);
        q.on(Event::Up, 0);
        q.on(
            Event::Busy {
                retry_after_ms: BUSY_MOST_MS * 1000,
            },
            0,
        );
        assert_eq!(q.on(Event::Tick, 599), []);
        assert_eq!(q.on(Event::Tick, 600), [Effect::Say(3)]);
    }

    // holds: LK-7
    #[test]
    fn busy_waits_as_long_as_it_was_told() {
        let mut q = queue([3]);
        q.on(Event::Up, 0);
        assert_eq!(q.on(Event::Busy { retry_after_ms: 1500 }, 10), []);
        assert_eq!(q.on(Event::Tick, 11), []);
        assert_eq!(q.on(Event::Tick, 12), [Effect::Say(3)]);
    }

    #[test]
    fn a_heartbeat_never_overtakes_a_report_that_waits() {
        let mut q = queue([3]);
        assert!(!q.lets_heartbeat_pass());
        q.on(Event::Up, 0);
        assert!(!q.lets_heartbeat_pass());
        q.on(Event::Ack(3), 0);
        assert!(q.lets_heartbeat_pass());
        q.on(Event::Down, 0);
        assert!(!q.lets_heartbeat_pass());
    }

    #[test]
    fn a_queue_without_end_loses_its_oldest_and_never_the_one_under_way() {
        let mut q = queue([1, 2, 3]);
        q.on(Event::Up, 0);
        let of = |reports| Bound {
            reports,
            bytes: u64::MAX,
        };
        assert_eq!(q.overflow(of(3)), None);
        assert_eq!(q.overflow(of(2)), Some(2));
        assert_eq!(q.len(), 2);
    }

    #[test]
    fn a_queue_is_bounded_in_bytes_too_and_keeps_its_newest() {
        let of = |bytes| Bound { reports: 100, bytes };
        let mut q = queue([1, 2, 3]);
        assert_eq!(q.overflow(of(30)), None);
        q.on(
            Event::Queued {
                counter: 4,
                bytes: 25,
            },
            0,
        );
        assert_eq!(q.overflow(of(40)), Some(1));
        assert_eq!(q.overflow(of(40)), Some(2));
        assert_eq!(q.overflow(of(40)), None);
        // Nothing but the newest is left, and it is too large: it is said all the same.
        assert_eq!(q.overflow(of(20)), Some(3));
        assert_eq!(q.overflow(of(20)), None);
        q.on(Event::Up, 0);
        assert_eq!(q.on(Event::Ack(4), 0), [Effect::Delete(4)]);
        q.on(queued(5), 0);
        assert_eq!(q.overflow(of(10)), None, "what was acknowledged counts no more");
    }

    proptest! {
        // holds: HR-11
        #[test]
        fn whatever_is_lost_every_report_arrives_and_first_arrivals_are_in_order(
            losses in proptest::collection::vec(0u8..4, 0..40), count in 1u64..8
        ) {
            let mut q = queue(1..=count);
            let (mut now, mut stored, mut losses) = (0, Vec::new(), losses.into_iter());
            let mut effects = q.on(Event::Up, now);
            for _ in 0..200 {
                now += 1;
                let said = effects.iter().find_map(|e| match e { Effect::Say(c) => Some(*c), _ => None });
                effects = match said {
                    None => q.on(Event::Tick, now),
                    Some(counter) => match losses.next() {
                        // The report is lost with the session; the acknowledgement is; the reconciler is busy.
                        Some(0) => { q.on(Event::Down, now); q.on(Event::Up, now) }
                        Some(1) => {
                            if !stored.contains(&counter) { stored.push(counter); }
                            q.on(Event::Down, now);
                            q.on(Event::Up, now)
                        }
                        Some(2) => q.on(Event::Busy { retry_after_ms: 1 }, now),
                        _ => {
                            if !stored.contains(&counter) { stored.push(counter); }
                            q.on(Event::Ack(counter), now)
                        }
                    },
                };
            }
            prop_assert!(q.is_empty());
            prop_assert_eq!(stored, (1..=count).collect::<Vec<_>>());
        }
    }
}
