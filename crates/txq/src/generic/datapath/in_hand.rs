//! Packets in a sender's hands, for a call that may not return.

use std::mem;

use txq_core::arch::Arch;

use super::Datapath;

/// Packets that a sender still holds while it waits, runs a queue or reaps for others. Counts them as lost if a driver or a qdisc
/// panics meanwhile; the list that holds them frees them.
pub(crate) struct InHand<'d, A: Arch> {
    dev: &'d Datapath<A>,
    packets: usize,
}

impl<'d, A: Arch> InHand<'d, A> {
    /// Calls `f`, in which a driver or a qdisc may panic, while the sender holds `packets` packets.
    pub(crate) fn during<R>(dev: &'d Datapath<A>, packets: usize, f: impl FnOnce() -> R) -> R {
        let in_hand = Self { dev, packets };
        let result = f();
        mem::forget(in_hand);
        result
    }
}

impl<A: Arch> Drop for InHand<'_, A> {
    fn drop(&mut self) {
        self.dev.count_lost(self.packets as u64);
    }
}
