//! Says that the remote is worth a look now, and hears when one that began since is over and stored.
//!
//! It stands alone because others of this process ask and wait, and know nothing of looks. Never data: what a look brings
//! stands in the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// The request: we ourselves have pushed to the branch, or somebody asks again. All clones are one.
#[derive(Debug, Clone, Default)]
pub struct LookNow {
    wanted: Arc<AtomicBool>,
    looks: Arc<watch::Sender<Looks>>,
}

/// How many looks there were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Looks {
    begun: u64,
    /// The newest that is over, with all that it brought stored.
    stored: u64,
}

impl LookNow {
    /// The next pass looks.
    pub fn say(&self) {
        self.wanted.store(true, Ordering::Release);
    }

    pub(super) fn is_said(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    /// Whether it was said since the last time.
    pub(in crate::edge) fn take(&self) -> bool {
        self.wanted.swap(false, Ordering::AcqRel)
    }

    /// A look begins.
    pub(super) fn begin(&self) {
        self.looks.send_modify(|looks| looks.begun += 1);
    }

    /// How many have begun: the number of the newest.
    pub(super) fn begun(&self) -> u64 {
        self.looks.borrow().begun
    }

    /// What the look of this number has brought is stored.
    pub(super) fn stored(&self, number: u64) {
        self.looks.send_modify(|looks| looks.stored = number);
    }

    /// Asks for a look, has `wake` wake the pass, and waits until one that began since is over and stored.
    pub(in crate::edge) async fn looked(&self, wake: impl Fn()) {
        let mut looks = self.looks.subscribe();
        let before = looks.borrow().begun;
        self.say();
        wake();
        // The sender is ours: it does not go.
        let _ = looks.wait_for(|looks| looks.stored > before).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    // holds: DL-1
    #[tokio::test]
    async fn a_look_that_began_before_somebody_asked_does_not_answer() {
        let look_now = LookNow::default();
        look_now.begin();
        let asked = look_now.clone();
        let mut waits = tokio::spawn(async move { asked.looked(|| {}).await });
        while !look_now.take() {
            tokio::task::yield_now().await;
        }
        look_now.stored(1);
        let early = tokio::time::timeout(Duration::from_millis(50), &mut waits).await;
        assert!(early.is_err(), "the look had begun before");
        look_now.begin();
        let early = tokio::time::timeout(Duration::from_millis(50), &mut waits).await;
        assert!(early.is_err(), "it is not over");
        look_now.stored(look_now.begun());
        tokio::time::timeout(Duration::from_secs(5), waits)
            .await
            .expect("it was not told")
            .unwrap();
    }
}
