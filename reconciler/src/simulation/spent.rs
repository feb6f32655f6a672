//! Whose the processor's time is in a rehearsal. Everything happens one after the other, so that the time which the whole
//! process has had over a part, the database's threads with it, is that part's.

use std::time::Duration;

/// The processor's time by who had it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// The reconciler's passes: reading, deciding, signing, storing.
    pub passes: Duration,
    /// The reconciler's taking of reports, until they are stored.
    pub reports: Duration,
    /// Reading each order for the machine that it is for, as sessions do.
    pub orders: Duration,
}

impl Spent {
    /// All of it: what is left of the process's time is that of simulated machines, forge and clock.
    #[must_use]
    pub fn by_the_reconciler(&self) -> Duration {
        self.passes + self.reports + self.orders
    }
}

/// The processor's time that this process has had.
pub(super) fn processor() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let secs = u64::try_from(spent.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(spent.tv_nsec).unwrap_or(0);
    Duration::new(secs, nanos)
}
