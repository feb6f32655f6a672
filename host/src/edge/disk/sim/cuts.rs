//! What a power cut may leave: each pending act kept, lost, or its bytes torn.

use std::sync::{Arc, Mutex};

use super::tree::Op;
use super::{Sim, SimDisk};

/// More pending acts than this are not tried in every combination.
const PENDING: usize = 5;

impl SimDisk {
    /// What a power cut after the first `acts` acts may leave: each answer is a disk of its own. At most a few dozen:
    /// every combination of the lost and the kept when few are pending, else all, none, and each alone.
    #[must_use]
    pub fn cuts_after(&self, acts: usize) -> Vec<Self> {
        let sim = self.lock();
        let log = sim.log.get(..acts).unwrap_or(&sim.log);
        let pending: Vec<usize> = (0..log.len()).filter(|at| is_pending(log, *at)).collect();
        let choices: Vec<Vec<Fate>> = fates(log, &pending);
        choices
            .into_iter()
            .map(|fate| self.cut(&sim, log, &pending, fate))
            .collect()
    }

    /// What a kill after the first `acts` acts leaves: all that was done.
    #[must_use]
    pub fn cut_keeping_all(&self, acts: usize) -> Self {
        self.cut_with(acts, Fate::Kept)
    }

    /// What the worst power cut after the first `acts` acts leaves: nothing that was not synced.
    #[must_use]
    pub fn cut_losing_all(&self, acts: usize) -> Self {
        self.cut_with(acts, Fate::Lost)
    }

    fn cut_with(&self, acts: usize, fate: Fate) -> Self {
        let sim = self.lock();
        let log = sim.log.get(..acts).unwrap_or(&sim.log);
        let pending: Vec<usize> = (0..log.len()).filter(|at| is_pending(log, *at)).collect();
        let fates = pending.iter().map(|_| fate).collect();
        self.cut(&sim, log, &pending, fates)
    }

    fn cut(&self, sim: &Sim, log: &[Op], pending: &[usize], fate: Vec<Fate>) -> Self {
        let mut tree = sim.before.clone();
        for (at, op) in log.iter().enumerate() {
            let fate = pending
                .iter()
                .position(|p| *p == at)
                .and_then(|i| fate.get(i).copied());
            match (fate, op) {
                (Some(Fate::Lost), _) => {}
                (Some(Fate::Torn), Op::Bytes { ino, bytes }) => {
                    let half = bytes.iter().take(bytes.len() / 2).copied().collect();
                    tree.apply(&Op::Bytes {
                        ino: *ino,
                        bytes: half,
                    });
                }
                _ => tree.apply(op),
            }
        }
        let forbidden = sim.forbidden.clone();
        let cut = Sim {
            before: tree.clone(),
            tree,
            log: Vec::new(),
            forbidden,
            space: sim.space,
            left: sim.left,
        };
        Self {
            sim: Arc::new(Mutex::new(cut)),
            base: self.base.clone(),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Fate {
    Kept,
    Lost,
    Torn,
}

fn is_pending(log: &[Op], at: usize) -> bool {
    let later = log.get(at + 1..).unwrap_or_default();
    match log.get(at) {
        Some(Op::Bytes { ino, .. } | Op::Meta { ino, .. }) => !later.iter().any(|op| match op {
            Op::Sync { ino: synced } | Op::SyncNames { folder: synced } => synced == ino,
            Op::SyncAll => true,
            _ => false,
        }),
        Some(Op::Names { folder, .. }) => !later.iter().any(|op| {
            matches!(op, Op::SyncNames { folder: synced } if synced == folder) || matches!(op, Op::SyncAll)
        }),
        _ => false,
    }
}

fn fates(log: &[Op], pending: &[usize]) -> Vec<Vec<Fate>> {
    let ways = |at: &usize| -> &'static [Fate] {
        match log.get(*at) {
            Some(Op::Bytes { .. }) => &[Fate::Lost, Fate::Torn, Fate::Kept],
            _ => &[Fate::Lost, Fate::Kept],
        }
    };
    if pending.len() <= PENDING {
        return pending.iter().fold(vec![Vec::new()], |all, at| {
            all.iter()
                .flat_map(|head| {
                    ways(at)
                        .iter()
                        .map(move |fate| head.iter().copied().chain([*fate]).collect())
                })
                .collect()
        });
    }
    let all = |fate: Fate| pending.iter().map(|_| fate).collect::<Vec<Fate>>();
    let mut out = vec![all(Fate::Lost), all(Fate::Kept)];
    for (i, at) in pending.iter().enumerate() {
        for (rest, one) in [(Fate::Lost, Fate::Kept), (Fate::Kept, Fate::Lost)] {
            let mut fate = all(rest);
            if let Some(f) = fate.get_mut(i) {
                *f = one;
            }
            out.push(fate);
        }
        if matches!(log.get(*at), Some(Op::Bytes { .. })) {
            let mut fate = all(Fate::Kept);
            if let Some(f) = fate.get_mut(i) {
                *f = Fate::Torn;
            }
            out.push(fate);
        }
    }
    out
}
