//! Which epoch a host runs (EP-3), and whether its policy has to be staged for it.
//!
//! It stands alone because "never another, whatever its number" is a promise by itself: replay and sleep change
//! nothing about it. It decides on what is held; the newest seen epoch alone names what may run.

use std::collections::BTreeMap;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::epoch::{Epoch, epoch_to_run};
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::{NodeId, RoleName};
use meshplan_schemas::policy;

use super::duties::Duties;
use super::known_bad::KnownBad;
use super::orders::Kept;
use super::standing::Waited;

/// What the choice is made on.
#[derive(Debug)]
pub struct Given<'a> {
    /// Every verified epoch that is held, by the digest of its payload.
    pub epochs: &'a BTreeMap<Digest, Kept<Epoch>>,
    /// The newest seen; none before the first.
    pub newest: Option<Digest>,
    /// The one that runs.
    pub running: Option<Digest>,
    /// The digest of the effective policy as it stands on the machine; none when none was written.
    pub effective: Option<Digest>,
    /// This node.
    pub node: NodeId,
    /// The roles of the last confirmed declaration (SG-2).
    pub roles: &'a [RoleName],
    /// The class in the node's own record.
    pub class: UpdateClass,
    /// It never follows where it is left behind (UC-1).
    pub pinned: bool,
    /// How long one that is left behind waits at least, in seconds; none while no list says so.
    pub grace_secs: Option<u32>,
    /// How long it has waited, and for which epoch.
    pub waited: Option<Waited>,
    /// The epoch that was tried last and did not stay, which is not tried again by itself.
    pub settled: Option<Digest>,
    /// Content that failed here.
    pub known_bad: &'a KnownBad,
}

/// What follows for the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// Nothing: no epoch, or none that addresses this node, or the chosen one runs or was settled.
    Nothing,
    /// The chosen epoch's bytes are not held: ask for them, run what runs meanwhile.
    Want(Digest),
    /// The class keeps this node behind the chosen epoch (UC-1).
    LeftBehind {
        /// The epoch.
        epoch: Digest,
        /// Until when.
        wait: Wait,
    },
    /// Nothing changes on this node by it: its number is noted.
    Note(Digest),
    /// Its policy failed here before.
    KnownBad {
        /// The epoch.
        epoch: Digest,
        /// Why, in words.
        why: String,
    },
    /// Its policy cannot be read by this build.
    Unreadable {
        /// The epoch.
        epoch: Digest,
        /// Why, in words.
        why: String,
    },
    /// Stage and apply this.
    Stage {
        /// The epoch.
        epoch: Digest,
        /// The effective policy.
        text: String,
    },
}

/// Until when a node stays behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Until its record says otherwise.
    Pinned,
    /// Until a list is held that says how long.
    Unknown,
    /// So many seconds more.
    Secs {
        /// From now.
        left: i64,
        /// In all.
        of: i64,
    },
}

impl std::fmt::Display for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pinned => f.write_str("pinned: it does not follow"),
            Self::Unknown => f.write_str("no fleet list is held that says when it follows"),
            Self::Secs { of, .. } => write!(
                f,
                "follows {of} s after its first sight, where it still stands then"
            ),
        }
    }
}

/// How long the class keeps the node behind an epoch; none where it does not, or not any more.
fn wait(given: &Given<'_>, digest: Digest, epoch: &Epoch) -> Option<Wait> {
    if given.class != UpdateClass::LeftBehind {
        return None;
    }
    if given.pinned {
        return Some(Wait::Pinned);
    }
    let Some(grace_secs) = given.grace_secs else {
        return Some(Wait::Unknown);
    };
    let of = epoch.follow_secs(grace_secs);
    let waited = given.waited.filter(|waited| waited.epoch == digest);
    let left = of.saturating_sub(waited.map_or(0, |waited| waited.secs));
    // Who has not begun to wait has not seen it before, however short the grace is.
    (left > 0 || waited.is_none()).then_some(Wait::Secs { left, of })
}

/// The digest of the epoch that is run, with its number (EP-3).
#[must_use]
pub fn chosen(given: &Given<'_>) -> Option<(u64, Digest)> {
    let newest = given.epochs.get(given.newest.as_ref()?)?;
    epoch_to_run(&newest.payload, newest.digest, given.node, given.roles)
}

/// Decides.
#[must_use]
pub fn choose(given: &Given<'_>) -> Choice {
    let Some((_, digest)) = chosen(given) else {
        return Choice::Nothing;
    };
    if given.settled == Some(digest) {
        return Choice::Nothing;
    }
    let Some(kept) = given.epochs.get(&digest) else {
        return Choice::Want(digest);
    };
    let read = policy::parse(&kept.payload.policy).map_err(|e| e.to_string());
    let read = read.map(|policy| policy.effective_text(given.roles));
    // What the host is to obey it must understand (FR-7).
    let read = read.and_then(|text| Duties::of(&text).map(|_| text));
    let same = |text: &String| given.effective == Some(Digest::of(text.as_bytes()));
    // Whom an epoch changes nothing for is not behind it.
    if !read.as_ref().is_ok_and(same)
        && let Some(wait) = wait(given, digest, &kept.payload)
    {
        return Choice::LeftBehind { epoch: digest, wait };
    }
    let text = match read {
        Ok(text) => text,
        Err(why) => return Choice::Unreadable { epoch: digest, why },
    };
    if same(&text) {
        return if given.running == Some(digest) {
            Choice::Nothing
        } else {
            Choice::Note(digest)
        };
    }
    let content = Digest::of(kept.payload.policy.as_bytes());
    if let Some(entry) = given
        .known_bad
        .get(&content)
        .filter(|_| !kept.payload.again.contains(&content))
    {
        return Choice::KnownBad {
            epoch: digest,
            why: format!(
                "known-bad: this policy was taken back here before ({}); a go with `--again` tries it once more",
                entry.why
            ),
        };
    }
    Choice::Stage { epoch: digest, text }
}

/// The epochs that are still needed: the newest seen, the one that is to run, the one that runs.
#[must_use]
pub fn needed(given: &Given<'_>) -> Vec<Digest> {
    [
        given.newest,
        chosen(given).map(|(_, digest)| digest),
        given.running,
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use meshplan_schemas::epoch::{InForce, Targeting};

    use super::super::known_bad::Entry;
    use super::*;
    use crate::pure::sample;

    struct World {
        epochs: BTreeMap<Digest, Kept<Epoch>>,
        newest: Option<Digest>,
        running: Option<Digest>,
        effective: Option<String>,
        settled: Option<Digest>,
        known_bad: KnownBad,
        pinned: bool,
        grace_secs: Option<u32>,
        waited: Option<Waited>,
    }

    impl World {
        fn new() -> Self {
            Self {
                epochs: BTreeMap::new(),
                newest: None,
                running: None,
                effective: None,
                settled: None,
                known_bad: KnownBad::default(),
                pinned: false,
                grace_secs: Some(600),
                waited: None,
            }
        }
        fn wait_secs(&self) -> Option<i64> {
            match self.choose_as(UpdateClass::LeftBehind) {
                Choice::LeftBehind {
                    wait: Wait::Secs { left, .. },
                    ..
                } => Some(left),
                _ => None,
            }
        }
        fn hold(&mut self, epoch: &Epoch) -> Digest {
            let kept = sample::kept(epoch);
            let digest = kept.digest;
            self.epochs.insert(digest, kept);
            digest
        }
        fn see(&mut self, epoch: &Epoch) -> Digest {
            let digest = self.hold(epoch);
            self.newest = Some(digest);
            digest
        }
        fn choose_as(&self, class: UpdateClass) -> Choice {
            choose(&Given {
                epochs: &self.epochs,
                newest: self.newest,
                running: self.running,
                effective: self.effective.as_deref().map(sample::digest),
                node: sample::NODE,
                roles: &[],
                class,
                pinned: self.pinned,
                grace_secs: self.grace_secs,
                waited: self.waited,
                settled: self.settled,
                known_bad: &self.known_bad,
            })
        }
        fn choose(&self) -> Choice {
            self.choose_as(UpdateClass::Required)
        }
        fn run(&mut self, digest: Digest) {
            let Choice::Stage { epoch, text } = self.choose() else {
                panic!("not staged: {:?}", self.choose())
            };
            assert_eq!(epoch, digest);
            self.running = Some(epoch);
            self.effective = Some(text);
        }
    }

    fn policy(n: u32) -> String {
        format!("[base.scheduler]\nreconcile_secs = {n}\n")
    }
    fn in_force(epoch: &Epoch) -> InForce {
        InForce {
            epoch: epoch.epoch,
            digest: sample::kept(epoch).digest,
            targeting: epoch.targeting.clone(),
        }
    }
    fn for_another() -> Targeting {
        Targeting::nodes(vec![sample::OTHER_NODE])
    }

    // holds: EP-3
    #[test]
    fn one_that_slept_through_a_release_and_hears_the_next_canary_runs_the_release() {
        let mut world = World::new();
        let baseline = sample::epoch(1, &policy(1), Targeting::everyone(), vec![]);
        let first = world.see(&baseline);
        world.run(first);
        // Epoch 2 was released while it slept; 3 is a canary for another.
        let release = sample::epoch(2, &policy(2), Targeting::everyone(), vec![in_force(&baseline)]);
        let canary = sample::epoch(
            3,
            &policy(3),
            for_another(),
            vec![in_force(&release), in_force(&baseline)],
        );
        world.see(&canary);
        let wanted = sample::kept(&release).digest;
        assert_eq!(world.choose(), Choice::Want(wanted));
        world.hold(&release);
        world.run(wanted);
        assert_eq!(world.choose(), Choice::Nothing);
    }

    // holds: EP-3
    #[test]
    fn one_that_slept_through_an_aborted_release_comes_back_to_the_baseline() {
        let mut world = World::new();
        let baseline = sample::epoch(1, &policy(1), Targeting::everyone(), vec![]);
        let release = sample::epoch(2, &policy(2), Targeting::everyone(), vec![in_force(&baseline)]);
        let released = world.see(&release);
        world.run(released);
        // The abort carries the former policy to those to whom the release went, as a newer epoch.
        let abort = sample::epoch(3, &policy(1), Targeting::everyone(), vec![in_force(&baseline)]);
        let aborted = world.see(&abort);
        world.run(aborted);
        assert_eq!(
            world.effective.as_deref(),
            Some("[scheduler]\nreconcile_secs = 1\n")
        );
    }

    // holds: EP-3
    #[test]
    fn what_was_aborted_is_never_run_again_though_it_is_held() {
        let mut world = World::new();
        let baseline = sample::epoch(1, &policy(1), Targeting::everyone(), vec![]);
        let release = sample::epoch(2, &policy(2), Targeting::everyone(), vec![in_force(&baseline)]);
        world.hold(&baseline);
        world.hold(&release);
        let abort = sample::epoch(3, &policy(1), for_another(), vec![in_force(&baseline)]);
        world.see(&abort);
        world.run(sample::kept(&baseline).digest);
        assert_eq!(world.choose(), Choice::Nothing);
    }

    // holds: EP-3
    #[test]
    fn an_epoch_for_others_changes_nothing_here() {
        let mut world = World::new();
        world.see(&sample::epoch(5, &policy(5), for_another(), vec![]));
        assert_eq!(world.choose(), Choice::Nothing);
    }

    // holds: EP-3
    #[test]
    fn a_newer_number_over_the_same_effective_bytes_is_noted_and_not_staged() {
        let mut world = World::new();
        let canary = sample::epoch(1, &policy(1), Targeting::nodes(vec![sample::NODE]), vec![]);
        let first = world.see(&canary);
        world.run(first);
        // Another overlay differs; this node has no such role.
        let text = format!("{}[roles.edge.qos]\nx = 1\n", policy(1));
        let second = world.see(&sample::epoch(
            2,
            &text,
            Targeting::everyone(),
            vec![in_force(&canary)],
        ));
        assert_eq!(world.choose(), Choice::Note(second));
    }

    // holds: DL-14
    #[test]
    fn a_policy_that_failed_here_is_refused_by_content_until_it_is_tried_again_by_order() {
        let mut world = World::new();
        let content = Digest::of(policy(1).as_bytes());
        world.known_bad.remember(
            content,
            Entry {
                component: "policy".into(),
                why: "web said 500".into(),
                at: 1,
            },
        );
        let mut epoch = sample::epoch(4, &policy(1), Targeting::everyone(), vec![]);
        world.see(&epoch);
        assert!(matches!(world.choose(), Choice::KnownBad { why, .. } if why.contains("web said 500")));
        epoch.epoch = 5;
        epoch.again = vec![content];
        world.see(&epoch);
        assert!(matches!(world.choose(), Choice::Stage { .. }));
    }

    #[test]
    fn an_epoch_that_did_not_stay_is_not_tried_again_by_itself() {
        let mut world = World::new();
        let digest = world.see(&sample::epoch(4, &policy(1), Targeting::everyone(), vec![]));
        world.settled = Some(digest);
        assert_eq!(world.choose(), Choice::Nothing);
    }

    // holds: UC-1
    #[test]
    fn a_node_that_is_left_behind_follows_when_grace_and_watch_are_over_and_never_where_it_is_pinned() {
        let mut world = World::new();
        let mut release = sample::epoch(4, &policy(1), Targeting::everyone(), vec![]);
        let epoch = world.see(&release);
        assert_eq!(world.wait_secs(), Some(600), "it begins to wait");
        world.grace_secs = Some(0);
        assert_eq!(
            world.wait_secs(),
            Some(0),
            "a first sight is no wait that is over"
        );
        world.grace_secs = Some(600);
        world.waited = Some(Waited { epoch, secs: 599 });
        assert_eq!(world.wait_secs(), Some(1));
        world.waited = Some(Waited { epoch, secs: 600 });
        let staged = |choice| matches!(choice, Choice::Stage { .. });
        assert!(staged(world.choose_as(UpdateClass::LeftBehind)));
        world.grace_secs = None;
        let unknown = Choice::LeftBehind {
            epoch,
            wait: Wait::Unknown,
        };
        assert_eq!(world.choose_as(UpdateClass::LeftBehind), unknown);
        world.grace_secs = Some(600);
        world.pinned = true;
        let pinned = Choice::LeftBehind {
            epoch,
            wait: Wait::Pinned,
        };
        assert_eq!(world.choose_as(UpdateClass::LeftBehind), pinned);
        assert!(staged(world.choose()), "its own record alone says so");
        world.pinned = false;

        // A longer watch is waited for too, in its whole length.
        release.epoch = 5;
        release.watch_until = Some(release.issued_at + 900);
        let epoch = world.see(&release);
        assert_eq!(world.wait_secs(), Some(900), "it has waited for another one");
        world.waited = Some(Waited { epoch, secs: 600 });
        assert_eq!(world.wait_secs(), Some(300));
    }

    // holds: UC-1, EP-3
    #[test]
    fn what_was_aborted_in_its_grace_is_not_what_a_node_that_is_left_behind_follows_to() {
        let mut world = World::new();
        let baseline = sample::epoch(1, &policy(1), Targeting::everyone(), vec![]);
        let first = world.see(&baseline);
        world.run(first);
        let release = world.see(&sample::epoch(2, &policy(2), Targeting::everyone(), vec![]));
        assert_eq!(world.wait_secs(), Some(600));
        world.waited = Some(Waited {
            epoch: release,
            secs: 6000,
        });
        let aborted = world.see(&sample::epoch(3, &policy(1), Targeting::everyone(), vec![]));
        assert_eq!(world.choose_as(UpdateClass::LeftBehind), Choice::Note(aborted));
    }

    // holds: UC-1
    #[test]
    fn a_node_that_is_left_behind_asks_for_the_bytes_of_what_stands_for_its_neighbours() {
        let mut world = World::new();
        let release = sample::epoch(2, &policy(2), Targeting::everyone(), vec![]);
        world.see(&sample::epoch(
            3,
            &policy(3),
            for_another(),
            vec![in_force(&release)],
        ));
        let wanted = Choice::Want(sample::kept(&release).digest);
        assert_eq!(world.choose_as(UpdateClass::LeftBehind), wanted);
    }
}
