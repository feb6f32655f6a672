//! Fetching what an order's archives and bundles are made of, before the order is begun (HK-15, HR-14).
//!
//! Stands alone so that every way in which a fetch can go on after a cut, or go wrong, is told in a test without a socket
//! or a disk. Invariant: a piece is taken only when it is the one that was asked for last, from where the file on the disk
//! ends; nothing is asked faster than the policy lets.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use meshplan_schemas::artifact::{Artifact, FileList};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::limits::{ARTIFACT_BYTES, LIST_BYTES, PIECE_BYTES};

/// How long an answer is waited for before the piece is asked for again.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often an artifact is fetched anew whose bytes are not those of its digest.
const ATTEMPTS: u32 = 3;

/// What an order needs and is not on this machine yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetch {
    /// The digest of the order.
    order: Digest,
    /// What is to be looked at and fetched, the first first.
    ahead: VecDeque<Need>,
    /// Digests that were ahead once: each is fetched once.
    known: BTreeSet<Digest>,
    asked: Option<Asked>,
    /// Not before: the policy's pace.
    not_before: Duration,
    spoiled: u32,
}

/// One artifact that is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// For which resource, as words.
    pub name: String,
    /// Its digest.
    pub sha256: Digest,
    /// Its length.
    pub size_bytes: u64,
    /// Whether it is the list of a bundle's files, which are needed too.
    pub is_list: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asked {
    sha256: Digest,
    offset: u64,
    length: u32,
    at: Duration,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// See how much of this is on the disk, and say so ([`Fetch::begun`]).
    Look(Need),
    /// Ask for a piece.
    Ask {
        /// Of which.
        artifact: Digest,
        /// From where on.
        offset: u64,
        /// At most so long.
        length: u32,
    },
    /// Nothing before this much time has gone by; none: before something is heard.
    Wait(Option<Duration>),
    /// All of this was fetched: check it, and say so ([`Fetch::finished`]).
    Finish(Need),
    /// All is there.
    Done,
    /// It cannot be had; why, in a sentence.
    Failed(String),
}

impl Fetch {
    /// What this order needs. `lists` are the digests of the lists of files among its artifacts.
    #[must_use]
    pub fn new(order: Digest, artifacts: &[Artifact], lists: &BTreeSet<Digest>) -> Self {
        let mut fetch = Self {
            order,
            ahead: VecDeque::new(),
            known: BTreeSet::new(),
            asked: None,
            not_before: Duration::ZERO,
            spoiled: 0,
        };
        for artifact in artifacts {
            fetch.need(Need {
                name: artifact.name.to_string(),
                sha256: artifact.sha256,
                size_bytes: artifact.size_bytes,
                is_list: lists.contains(&artifact.sha256),
            });
        }
        fetch
    }

    /// The order that it is for.
    #[must_use]
    pub fn order(&self) -> Digest {
        self.order
    }

    fn need(&mut self, need: Need) {
        if self.known.insert(need.sha256) {
            self.ahead.push_back(need);
        }
    }

    /// Whether something of the first artifact ahead is still to be asked for, where so many bytes of it are here.
    #[must_use]
    pub fn lacks(&self, begun: u64) -> bool {
        self.ahead.front().is_some_and(|need| begun < need.size_bytes)
    }

    /// The next thing to do. `begun` is how many bytes of the first artifact ahead are on the disk, none when nobody has
    /// looked yet; `now` counts from any instant; `kib_per_sec` is the policy's pace.
    #[must_use]
    pub fn step(&mut self, begun: Option<u64>, now: Duration, kib_per_sec: Option<u32>) -> Step {
        let Some(need) = self.ahead.front().cloned() else {
            return Step::Done;
        };
        let most = if need.is_list { LIST_BYTES } else { ARTIFACT_BYTES };
        if need.size_bytes > most {
            return Step::Failed(format!(
                "{}: an artifact of {} bytes is more than the {most} that are fetched",
                need.name, need.size_bytes
            ));
        }
        let Some(offset) = begun else {
            return Step::Look(need);
        };
        if offset >= need.size_bytes {
            return Step::Finish(need);
        }
        if let Some(asked) = self.asked {
            let over = now.saturating_sub(asked.at);
            if over < PATIENCE {
                return Step::Wait(Some(PATIENCE.saturating_sub(over)));
            }
        }
        if now < self.not_before {
            return Step::Wait(Some(self.not_before.saturating_sub(now)));
        }
        let rest = u32::try_from(need.size_bytes - offset).unwrap_or(u32::MAX);
        // At a slow pace by smaller pieces, so that the line is never taken for more than a second.
        let most = kib_per_sec.map_or(PIECE_BYTES, |kib| {
            kib.saturating_mul(1024).clamp(1024, PIECE_BYTES)
        });
        let length = rest.min(most);
        if let Some(kib) = kib_per_sec {
            let secs = f64::from(length) / (f64::from(kib.max(1)) * 1024.0);
            self.not_before = now.saturating_add(Duration::from_secs_f64(secs));
        }
        let sha256 = need.sha256;
        self.asked = Some(Asked {
            sha256,
            offset,
            length,
            at: now,
        });
        Step::Ask {
            artifact: sha256,
            offset,
            length,
        }
    }

    /// The session ended: what was asked in it is not answered any more.
    pub fn line_lost(&mut self) {
        self.asked = None;
    }

    /// A piece came. Whether its bytes are to be added to what is on the disk, or why it cannot be had; a piece that was
    /// not asked for is passed over.
    ///
    /// # Errors
    /// In a sentence: what the reconciler has is not what the order names.
    pub fn piece(
        &mut self,
        artifact: Digest,
        offset: u64,
        size_bytes: u64,
        length: usize,
    ) -> Result<bool, String> {
        let asked = self.asked.filter(|a| a.sha256 == artifact && a.offset == offset);
        let (Some(asked), Some(need)) = (asked, self.ahead.front()) else {
            return Ok(false);
        };
        self.asked = None;
        if size_bytes != need.size_bytes {
            return Err(format!(
                "{}: the reconciler's artifact {artifact} has {size_bytes} bytes, the order says {}",
                need.name, need.size_bytes
            ));
        }
        let fits = u32::try_from(length).is_ok_and(|length| (1..=asked.length).contains(&length));
        if !fits {
            return Err(format!(
                "{}: the reconciler's answer is not the piece that was asked for",
                need.name
            ));
        }
        Ok(true)
    }

    /// The reconciler does not have it; why the order cannot be begun, in a sentence, where it was asked for.
    pub fn absent(&mut self, artifact: Digest) -> Option<String> {
        let need = self.ahead.front().filter(|need| need.sha256 == artifact)?;
        let why = format!(
            "{}: the reconciler does not have its artifact {artifact} any more",
            need.name
        );
        self.asked.take().map(|_| why)
    }

    /// The first artifact ahead is on the disk whole; the files of a list are ahead from now on.
    pub fn here(&mut self, list: Option<&FileList>) {
        let Some(done) = self.ahead.pop_front() else {
            return;
        };
        self.asked = None;
        self.spoiled = 0;
        for (path, listed) in list.into_iter().flat_map(|list| &list.files) {
            self.need(Need {
                name: format!("{}: {path}", done.name),
                sha256: listed.sha256,
                size_bytes: listed.size_bytes,
                is_list: false,
            });
        }
    }

    /// What was fetched of the first artifact ahead has another digest, and is thrown away.
    ///
    /// # Errors
    /// In a sentence: it was so time and again.
    pub fn spoiled(&mut self) -> Result<(), String> {
        self.asked = None;
        self.spoiled += 1;
        match self.ahead.front() {
            Some(need) if self.spoiled >= ATTEMPTS => Err(format!(
                "{}: what the reconciler gives for {} has another digest, {ATTEMPTS} times over",
                need.name, need.sha256
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(bytes: &[u8], size_bytes: u64) -> Artifact {
        Artifact {
            name: "web.site".parse().unwrap(),
            sha256: Digest::of(bytes),
            size_bytes,
        }
    }

    fn fetch(artifacts: &[Artifact]) -> Fetch {
        Fetch::new(
            Digest::of(b"order"),
            artifacts,
            &BTreeSet::from([Digest::of(b"list")]),
        )
    }

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn ask(artifact: &[u8], offset: u64, length: u32) -> Step {
        Step::Ask {
            artifact: Digest::of(artifact),
            offset,
            length,
        }
    }

    // holds: HK-15
    #[test]
    fn a_fetch_goes_on_where_the_file_on_the_disk_ends() {
        let size = u64::from(PIECE_BYTES) + 10;
        let mut fetch = fetch(&[artifact(b"a", size)]);
        assert!(matches!(fetch.step(None, secs(0), None), Step::Look(_)));
        assert_eq!(fetch.step(Some(7), secs(0), None), ask(b"a", 7, PIECE_BYTES));
        assert_eq!(fetch.step(Some(7), secs(1), None), Step::Wait(Some(secs(29))));
        assert_eq!(
            fetch.piece(Digest::of(b"a"), 7, size, PIECE_BYTES as usize),
            Ok(true)
        );
        let at = 7 + u64::from(PIECE_BYTES);
        assert_eq!(fetch.step(Some(at), secs(1), None), ask(b"a", at, 3));
        fetch.line_lost();
        assert_eq!(fetch.step(Some(at), secs(1), None), ask(b"a", at, 3));
        assert_eq!(fetch.piece(Digest::of(b"a"), at, size, 3), Ok(true));
        assert!(matches!(fetch.step(Some(size), secs(2), None), Step::Finish(_)));
        fetch.here(None);
        assert_eq!(fetch.step(None, secs(2), None), Step::Done);
    }

    // holds: HK-4, HK-15
    #[test]
    fn the_files_of_a_list_are_fetched_after_it_each_once() {
        let mut fetch = fetch(&[artifact(b"list", 5), artifact(b"x", 1)]);
        let listed = |bytes: &[u8]| meshplan_schemas::artifact::Listed {
            sha256: Digest::of(bytes),
            size_bytes: 1,
            executable: false,
        };
        let files =
            [("a", b"x"), ("b", b"y"), ("c", b"y")].map(|(path, bytes)| (path.to_owned(), listed(bytes)));
        let list = FileList { files: files.into() };
        fetch.here(Some(&list));
        let mut names = Vec::new();
        while let Step::Look(need) = fetch.step(None, secs(0), None) {
            names.push(need.name);
            fetch.here(None);
        }
        assert_eq!(names, ["web.site", "web.site: b"]);
    }

    // holds: HK-15
    #[test]
    fn an_answer_that_does_not_come_is_asked_for_again_and_one_that_was_not_asked_for_is_passed_over() {
        let mut fetch = fetch(&[artifact(b"a", 9)]);
        assert_eq!(fetch.step(Some(0), secs(0), None), ask(b"a", 0, 9));
        assert_eq!(fetch.step(Some(0), secs(30), None), ask(b"a", 0, 9));
        assert_eq!(fetch.piece(Digest::of(b"b"), 0, 9, 9), Ok(false));
        assert_eq!(fetch.piece(Digest::of(b"a"), 4, 9, 5), Ok(false));
        assert_eq!(fetch.piece(Digest::of(b"a"), 0, 9, 9), Ok(true));
        assert_eq!(
            fetch.piece(Digest::of(b"a"), 0, 9, 9),
            Ok(false),
            "the same again"
        );
        assert_eq!(fetch.absent(Digest::of(b"a")), None, "it is not asked for now");
    }

    // holds: HK-15
    #[test]
    fn what_the_reconciler_has_otherwise_or_not_at_all_is_said() {
        let mut fetch = fetch(&[artifact(b"a", 9)]);
        let _asked = fetch.step(Some(0), secs(0), None);
        assert!(
            fetch
                .clone()
                .piece(Digest::of(b"a"), 0, 8, 8)
                .unwrap_err()
                .contains("the order says 9")
        );
        assert!(fetch.clone().piece(Digest::of(b"a"), 0, 9, 0).is_err());
        assert!(fetch.clone().piece(Digest::of(b"a"), 0, 9, 10).is_err());
        assert!(fetch.absent(Digest::of(b"a")).unwrap().contains("does not have"));
        assert_eq!((fetch.spoiled(), fetch.spoiled()), (Ok(()), Ok(())));
        assert!(fetch.spoiled().unwrap_err().contains("another digest"));
        let mut huge = super::tests::fetch(&[artifact(b"list", LIST_BYTES + 1)]);
        assert!(matches!(huge.step(None, secs(0), None), Step::Failed(_)));
    }

    // holds: HK-15, FR-7
    #[test]
    fn nothing_is_asked_faster_than_the_policy_lets() {
        let size = 10 * 1024 * 1024;
        let mut fetch = fetch(&[artifact(b"a", size)]);
        let (mut now, mut held) = (Duration::ZERO, 0);
        loop {
            match fetch.step(Some(held), now, Some(100)) {
                Step::Ask { offset, length, .. } => {
                    let length = length as usize;
                    assert_eq!(fetch.piece(Digest::of(b"a"), offset, size, length), Ok(true));
                    held += length as u64;
                }
                Step::Wait(Some(wait)) => now += wait,
                Step::Finish(_) => break,
                other => panic!("{other:?}"),
            }
        }
        assert!(
            (secs(101)..secs(104)).contains(&now),
            "10 MiB at 100 KiB a second in {now:?}"
        );
    }
}
