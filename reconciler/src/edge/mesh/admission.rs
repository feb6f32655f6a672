//! Counts of what strangers do: attempts to enrol by address, and lines in the log by key.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use meshplan_schemas::key::TransportKey;
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);
/// Entries kept at most; beyond them the table starts anew, as memory is not the stranger's to use.
const ENTRIES: usize = 4096;

/// Attempts to enrol, by address and minute (LK-1).
pub(super) struct Attempts {
    a_minute: u32,
    by_address: HashMap<IpAddr, (Instant, u32)>,
}

impl Attempts {
    pub(super) fn new(a_minute: u32) -> Self {
        Self {
            a_minute,
            by_address: HashMap::new(),
        }
    }

    /// Counts one; when there were too many, how long until the next one counts.
    pub(super) fn count(&mut self, address: IpAddr, now: Instant) -> Option<Duration> {
        if self.by_address.len() >= ENTRIES {
            self.by_address
                .retain(|_, (since, _)| now.duration_since(*since) < MINUTE);
            if self.by_address.len() >= ENTRIES {
                self.by_address.clear();
            }
        }
        let (since, count) = self.by_address.entry(subnet(address)).or_insert((now, 0));
        if now.duration_since(*since) >= MINUTE {
            (*since, *count) = (now, 0);
        }
        if *count >= self.a_minute {
            return Some(MINUTE.saturating_sub(now.duration_since(*since)));
        }
        *count += 1;
        None
    }
}

/// One machine can have every address of an IPv6 /64, so that is one address here.
fn subnet(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & !u128::from(u64::MAX)).into()),
    }
}

/// Says the same of one key once a minute.
#[derive(Default)]
pub(super) struct Seldom(HashMap<TransportKey, Instant>);

impl Seldom {
    pub(super) fn due(&mut self, key: TransportKey, now: Instant) -> bool {
        self.0.retain(|_, at| now.duration_since(*at) < MINUTE);
        if self.0.contains_key(&key) || self.0.len() >= ENTRIES {
            return false;
        }
        self.0.insert(key, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: LK-1
    #[test]
    fn attempts_from_one_address_are_counted_by_the_minute() {
        let (mut attempts, start) = (Attempts::new(2), Instant::now());
        let one: IpAddr = "192.0.2.1".parse().unwrap();
        let mut at = |address: IpAddr, secs| attempts.count(address, start + Duration::from_secs(secs));
        assert_eq!(at(one, 0), None);
        assert_eq!(at(one, 1), None);
        assert_eq!(at(one, 20), Some(Duration::from_secs(40)));
        assert_eq!(at("192.0.2.2".parse().unwrap(), 20), None);
        assert_eq!(
            at("::ffff:192.0.2.1".parse().unwrap(), 20),
            Some(Duration::from_secs(40))
        );
        assert_eq!(at(one, 60), None);
        assert_eq!(at("2001:db8::1".parse().unwrap(), 60), None);
        assert_eq!(at("2001:db8::2".parse().unwrap(), 60), None);
        assert!(
            at("2001:db8::3".parse().unwrap(), 60).is_some(),
            "a /64 is one machine"
        );
    }

    // holds: LK-1
    #[test]
    fn one_key_is_logged_once_a_minute() {
        let (mut seldom, start) = (Seldom::default(), Instant::now());
        let key = meshplan_schemas::session::LinkSecret::from_bytes(&[1; 32])
            .unwrap()
            .public();
        assert!(seldom.due(key, start));
        assert!(!seldom.due(key, start + Duration::from_secs(59)));
        assert!(seldom.due(key, start + Duration::from_secs(61)));
    }
}
