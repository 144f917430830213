//! Recording of waits between threads, for the whole device.

use txq_core::arch::Arch;
use txq_core::stats::contention::ContentionReport;
use txq_core::stats::contention::Retry;

use crate::generic::datapath::{Datapath, OwnerRecord};

impl<A: Arch> Datapath<A> {
    pub(super) fn set_contention(&self, on: bool) {
        self.locks(&mut |_, lock| lock.set_recording(on));
        for root in &self.roots {
            let mut fresh = on.then(Box::<OwnerRecord>::default);
            root.with_core(self, |core| core.set_recording(&mut fresh));
        }
        self.retries.set(on);
        self.pool.retries().set(on);
    }

    /// Returns the recorded contention; `None` if recording was never on.
    pub(super) fn contention(&self) -> Option<ContentionReport> {
        let mut report = ContentionReport::default();
        let mut recorded = false;
        self.locks(&mut |kind, lock| recorded |= lock.report(kind, &mut report));
        for root in &self.roots {
            root.with_core(self, |core| {
                if let Some(record) = &core.record {
                    report.drained.merge(&record.drained);
                    report.hand_offs += record.hand_offs;
                }
            });
        }
        for &retry in Retry::ALL {
            report.retries[retry as usize] = self.retries.count(retry) + self.pool.retries().count(retry);
        }
        recorded.then_some(report)
    }
}
