//! What the policy that runs asks of the host itself (FR-7).
//!
//! It stands alone because policy is data for other programs and law for this one: here is what of it the host obeys,
//! with the defaults of what is not said. Weights of applying, and ways over other nodes, are handed on in the
//! policy file and obeyed by what does such things.

use std::time::Duration;

use jiff::Timestamp;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::NodeId;
use meshplan_schemas::maintenance::{Openness, Window, windows_of};
use meshplan_schemas::policy;

use super::link_monitor::Tolerance;

/// How often drift is looked for when neither policy nor command line says, in seconds.
pub const RECONCILE_SECS: u32 = 300;

/// What a policy asks of the host.
#[derive(Debug, Clone, PartialEq)]
pub struct Duties {
    /// `scheduler.reconcile_secs`: between looks for drift.
    pub reconcile_secs: u32,
    /// `scheduler.splay_secs`: at most so much is added to that, anew each time.
    pub splay_secs: u32,
    /// `scheduler.windows`: outside them only urgent orders are begun.
    pub windows: Vec<Window>,
    /// `scheduler.retry_min_secs` and `retry_max_secs`: between attempts at what failed, doubled each time.
    pub retry_secs: (Option<u32>, Option<u32>),
    /// `qos.artifact_kib_per_sec`: how fast artifacts are fetched; none says nothing.
    pub artifact_kib_per_sec: Option<u32>,
    /// `link_monitor`, and `traversal.keepalive_secs`.
    pub link: Tolerance,
}

impl Default for Duties {
    fn default() -> Self {
        Self {
            reconcile_secs: RECONCILE_SECS,
            splay_secs: 0,
            windows: Vec::new(),
            retry_secs: (None, None),
            artifact_kib_per_sec: None,
            link: Tolerance::default(),
        }
    }
}

impl Duties {
    /// Those of the text of an effective policy.
    ///
    /// # Errors
    /// What this build cannot read in it, in a sentence.
    pub fn of(effective: &str) -> Result<Self, String> {
        let file = policy::sections("policy", effective)
            .map_err(|findings| findings.first().map_or_else(String::new, ToString::to_string))?;
        let scheduler = file.scheduler.as_ref();
        let default = Self::default();
        let link = file.link_monitor.as_ref();
        let probe = link.and_then(|l| l.probe_secs.as_ref()).map(|s| s.0);
        let keepalive = (file.traversal.as_ref()).and_then(|t| t.keepalive_secs.as_ref().map(|s| s.0));
        let secs = |secs: u32| Duration::from_secs(u64::from(secs));
        Ok(Self {
            reconcile_secs: (scheduler.and_then(|s| s.reconcile_secs.as_ref()))
                .map_or(default.reconcile_secs, |s| s.0),
            splay_secs: (scheduler.and_then(|s| s.splay_secs.as_ref())).map_or(default.splay_secs, |s| s.0),
            windows: windows_of(&file),
            retry_secs: (
                scheduler.and_then(|s| s.retry_min_secs.as_ref()).map(|s| s.0),
                scheduler.and_then(|s| s.retry_max_secs.as_ref()).map(|s| s.0),
            ),
            artifact_kib_per_sec: (file.qos.as_ref())
                .and_then(|qos| qos.artifact_kib_per_sec.as_ref())
                .map(|n| n.0),
            link: Tolerance {
                // A probe keeps the way alive as well, so the shorter of the two is the pace of both.
                every: probe
                    .into_iter()
                    .chain(keepalive)
                    .min()
                    .map_or(default.link.every, secs),
                timeout: link
                    .and_then(|l| l.timeout_ms.as_ref())
                    .map_or(default.link.timeout, |ms| Duration::from_millis(u64::from(ms.0))),
                lost_percent: link
                    .and_then(|l| l.loss_threshold.as_ref())
                    .map_or(default.link.lost_percent, |n| n.0),
                window: link
                    .and_then(|l| l.window.as_ref())
                    .map_or(default.link.window, |n| n.0),
            },
        })
    }

    /// When the next maintenance window opens, unix seconds; none while one is open.
    #[must_use]
    pub fn opens(&self, now: i64) -> Option<i64> {
        let now = Timestamp::from_second(now).ok()?;
        Some(Openness::at(&self.windows, now).opens()?.as_second())
    }

    /// Seconds until drift is looked for again: what failed `failures` times in a row is tried again sooner or later
    /// than that. The splay is this node's own, and another one each time.
    #[must_use]
    pub fn pause_secs(&self, every_secs: u32, failures: u32, node: NodeId, now: i64) -> u32 {
        if failures > 0 && self.retry_secs != (None, None) {
            let (least, most) = self.retry_secs;
            let least = least.unwrap_or(every_secs.min(most.unwrap_or(every_secs)));
            let most = most.unwrap_or(every_secs).max(least);
            let doubled = least.saturating_mul(1_u32.checked_shl(failures - 1).unwrap_or(u32::MAX));
            return doubled.min(most).max(1);
        }
        let seed = Digest::of(format!("{node} {now}").as_bytes());
        let drawn = seed.0.iter().take(4).fold(0_u32, |n, b| n << 8 | u32::from(*b));
        let splay = match self.splay_secs.checked_add(1) {
            Some(bound) => drawn % bound,
            None => drawn,
        };
        every_secs.max(1).saturating_add(splay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::sample;

    // holds: FR-7
    #[test]
    fn what_a_policy_leaves_out_has_its_default_and_what_it_says_is_obeyed() {
        assert_eq!(Duties::of("").unwrap(), Duties::default());
        let text = "[scheduler]\nreconcile_secs = 40\nsplay_secs = 7\nretry_min_secs = 5\nretry_max_secs = 60\n\
                    [link_monitor]\nprobe_secs = 9\ntimeout_ms = 1500\nloss_threshold = 50\nwindow = 4\n\
                    [traversal]\nkeepalive_secs = 15\n[qos.extra]\nanything = 1\n";
        let duties = Duties::of(text).unwrap();
        assert_eq!((duties.reconcile_secs, duties.splay_secs), (40, 7));
        assert_eq!(duties.retry_secs, (Some(5), Some(60)));
        let tolerance = Tolerance {
            every: Duration::from_secs(9),
            timeout: Duration::from_millis(1500),
            lost_percent: 50,
            window: 4,
        };
        assert_eq!(duties.link, tolerance);
        let kept_alive =
            Duties::of("[traversal]\nkeepalive_secs = 3\n[link_monitor]\nprobe_secs = 9\n").unwrap();
        assert_eq!(kept_alive.link.every, Duration::from_secs(3));
        assert!(
            Duties::of("[scheduler]\nreconcile_sec = 40\n")
                .unwrap_err()
                .contains("reconcile_sec")
        );
    }

    // holds: FR-7
    #[test]
    fn what_failed_is_tried_again_after_pauses_that_double_up_to_the_longest() {
        let pauses = |text: &str| -> Vec<u32> {
            let duties = Duties::of(text).unwrap();
            (0..6)
                .map(|failures| duties.pause_secs(300, failures, sample::NODE, 1000))
                .collect()
        };
        assert_eq!(
            pauses("[scheduler]\nretry_min_secs = 10\nretry_max_secs = 60\n"),
            [300, 10, 20, 40, 60, 60]
        );
        assert_eq!(
            pauses("[scheduler]\nretry_min_secs = 200\n"),
            [300, 200, 300, 300, 300, 300]
        );
        assert_eq!(
            pauses("[scheduler]\nretry_max_secs = 900\n"),
            [300, 300, 600, 900, 900, 900]
        );
        assert_eq!(pauses(""), [300; 6]);
    }

    // holds: FR-7
    #[test]
    fn the_splay_spreads_looks_over_its_whole_width_and_never_past_it() {
        let duties = Duties::of("[scheduler]\nsplay_secs = 10\n").unwrap();
        let pauses: std::collections::BTreeSet<u32> = (0..1000)
            .map(|now| duties.pause_secs(300, 0, sample::NODE, now))
            .collect();
        assert_eq!(pauses, (300..=310).collect());
    }
}
