//! The short path to the driver, for a batch that the device takes whole, from an empty queue that has the seat
//! (`run/bypass.rs`).

use std::mem;
use std::sync::atomic::Ordering::{Relaxed, Release};

use txq_core::arch::{Arch, Atomic, Memory, Work, fetch_to_write};
use txq_core::drop::DropCounts;
use txq_core::packet::PacketList;

use super::border::Call;
use super::transmit::Ended;
use crate::generic::datapath::Ctx;
use crate::generic::driver::{Status, TxCx};
use crate::generic::transfer::Transmitted;
use crate::generic::txqueue::{Access, DRV_XOFF, TxQueue};

impl<A: Arch> TxQueue<A> {
    /// Whether the owner of `root` needs no lock and the device takes the whole batch now.
    #[inline]
    pub(crate) fn takes_all(&self, root: usize, batch: &PacketList<A>) -> bool {
        // A single packet may exceed the bytes left.
        let bytes = !self.bql || batch.len() == 1 || self.avail().max(0) as u64 >= batch.bytes();
        bytes && self.takes(root, batch.len())
    }

    /// As [`takes_all`](TxQueue::takes_all), for as many packets as the txq's budget allowed.
    #[inline]
    pub(crate) fn takes(&self, root: usize, packets: usize) -> bool {
        let open =
            self.seat.access(root) == Access::Owner && self.inline.load(Relaxed) != 0 && !self.stopped();
        open && packets as u64 <= u64::from(self.room())
    }

    /// Prefetches the lines that a transmission writes. The caller owns the core of `root`, and no thread is in the driver for
    /// it. If the last owner ran on another CPU, the lines come together, and with the core's own. Otherwise each comes when it
    /// is used; where a read of the clock has a fence, the driver's read waits for all lines before it.
    #[inline(always)]
    pub(crate) fn fetch_to_write(&self, root: usize) {
        fetch_to_write(&raw const *self.issued);
        if self.seat.access(root) == Access::Owner {
            // SAFETY: the root has the seat, and the caller owns its core while no thread is in the driver.
            let driver = self.tx.as_owner(|side| unsafe { &raw const *(*side).driver });
            fetch_to_write(driver.cast::<()>());
        }
    }

    /// As [`transmit`](TxQueue::transmit), after [`takes_all`](TxQueue::takes_all) has returned true.
    pub(crate) fn pass(
        &self,
        root: usize,
        batch: &mut PacketList<A>,
        cx: &mut Ctx<'_, A>,
        drops: &mut DropCounts,
    ) -> Transmitted {
        if self.bql || batch.stamped() {
            return self.transmit(root, batch, cx, drops);
        }
        let sent = self.pass_permitted(root, batch, cx, drops);
        if self.room() == 0 && !self.stopped() {
            self.issued.counters.add_stop();
            self.stop(root, DRV_XOFF);
        }
        sent
    }

    /// As [`pass`](TxQueue::pass), for a batch that has a permit: the ring is not full afterwards.
    #[inline(always)]
    pub(crate) fn pass_permitted(
        &self,
        root: usize,
        batch: &mut PacketList<A>,
        cx: &mut Ctx<'_, A>,
        drops: &mut DropCounts,
    ) -> Transmitted {
        let (packets, bytes) = (batch.len(), batch.bytes());
        let mut ended = Ended::new();
        A::spend(|| Work::Drive(packets));
        let (status, handed_on) = self.tx.as_owner(|side| {
            // SAFETY: the caller is in the driver for the root that has the seat.
            let side = unsafe { &mut *side };
            A::touch(|| &*side.driver, Memory::Driver);
            let tx = TxCx::new(&mut cx.clock, &mut ended.sent, &mut ended.dropped);
            let (unsure, to_free) = (&mut side.unsure, &mut cx.to_free);
            let call = Call { txq: self, dev: cx.dev, batch: &mut *batch, tx, unsure, to_free };
            call.make(&mut *side.driver)
        });
        ended.handed_on = handed_on;
        let ring = self.ring.load(Relaxed);
        if !batch.is_empty() || ended.len() > 0 || handed_on.packets() > 0 || ring == u32::MAX {
            return self.passed_otherwise(root, status, (packets, bytes), batch, cx, &mut ended, drops);
        }
        // The device has kept all packets. Both lists are empty.
        mem::forget(ended);
        let issued = self.issued.packets.load(Relaxed).wrapping_add(packets as u32);
        self.issued.packets.store(issued, Release);
        self.issued.counters.add(packets as u64, bytes, 0);
        Transmitted { packets: packets as u64, bytes, retry: None }
    }

    /// Counts the result of a driver call that has not kept all packets.
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "all that a call leaves")]
    fn passed_otherwise(
        &self,
        root: usize,
        status: Status,
        given: (usize, u64),
        batch: &PacketList<A>,
        cx: &mut Ctx<'_, A>,
        ended: &mut Ended<A>,
        drops: &mut DropCounts,
    ) -> Transmitted {
        let sent = self.tx.as_owner(|side| {
            // SAFETY: as in `pass_permitted`.
            let side = unsafe { &mut *side };
            // They belong to an earlier batch.
            side.stamps.clear();
            self.account(side, root, status, given, batch, cx, ended)
        });
        ended.free(cx, drops);
        sent
    }
}
