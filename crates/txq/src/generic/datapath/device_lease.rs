//! The lease of all queues of a device, for senders that send to several of them by turns (`enqueue/lease.rs`).

use std::sync::atomic::Ordering::Relaxed;

use txq_core::arch::{Arch, Atomic, Nanos};
use txq_core::stats::contention::Site;
use txq_core::sync::lease::Lease;
use txq_core::sync::spinlock::SpinLock;

use crate::generic::datapath::{Datapath, Trial};

/// The lease of all queues of a device.
pub(crate) struct DeviceLease<A: Arch> {
    /// Read at every call of a sender that sends to several queues by turns, written when the lease is granted, taken or ended.
    pub(crate) word: Lease<A>,
    /// The longest wait for this lease, and for that of a queue.
    pub(crate) longest_wait: Nanos,
    /// The time before which a look changes nothing. Written with `trial` locked, read by owners of queues. Relaxed: a hint that
    /// orders nothing.
    due: A::AtomicU64,
    /// Measures whether leases send more. No thread waits for the lock: its holder looks.
    trial: SpinLock<A, Trial>,
}

impl<A: Arch> DeviceLease<A> {
    pub(crate) fn new(longest_wait: Nanos) -> Self {
        let trial = SpinLock::new(Trial::new());
        Self { word: Lease::new(), longest_wait, due: A::AtomicU64::new(0), trial }
    }
}

impl<A: Arch> Datapath<A> {
    /// Begins or ends leases of the device if the phase of its trial is over. `own` is the tag of the sender that looks.
    #[cold]
    pub(crate) fn look_at_lease(&self, own: u16) {
        let now = A::now();
        let DeviceLease { word, due, trial, .. } = &*self.lease;
        if now < due.load(Relaxed) {
            return;
        }
        trial.try_with_at(Site::Control, |held| {
            let trial = held.data();
            word.set(trial.judge(now, self.tx_packets()), own, now);
            due.store(trial.due(), Relaxed);
        });
    }
}
