//! A qdisc with a size table (`tc qdisc add ... stab overhead 4 linklayer atm KIND`): it and the qdiscs below it count other
//! lengths than the packets have.
//!
//! A packet gets the table's length where it is enqueued, and its own back where it leaves: the device sends and counts the packet's
//! own bytes. A dropped packet gets its own length back in [`Cx::drop`]. The table is the root's alone, as in Linux, so that all
//! qdiscs of the tree count the same length. No packet bypasses the qdisc, and none is requeued into it.
//!
//! The counterpart is the kernel's `qdisc_calculate_pkt_len`.

use txq_core::arch::Arch;
use txq_core::packet::{Packet, PacketList};

use crate::generic::qdisc::inner::calls_of_inner;
use crate::generic::qdisc::{Arrival, Budget, Cx, Full, Qdisc, Verdict};
use crate::tc::{SizeTable, Stab};

/// A qdisc and its size table.
pub(super) struct WithStab<A: Arch> {
    inner: Box<dyn Qdisc<A>>,
    /// `None` after a change without a table.
    table: Option<(Stab, SizeTable)>,
}

impl<A: Arch> WithStab<A> {
    pub(super) fn new(inner: Box<dyn Qdisc<A>>, stab: Stab) -> Self {
        Self { inner, table: Some((stab, stab.table())) }
    }

    /// Appends packets of the inner qdisc to `out`, with their own lengths.
    fn take(&mut self, budget: Budget, out: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let mut taken = Taken { packets: PacketList::new(), out };
        self.inner.dequeue_batch(budget, &mut taken.packets, cx);
    }
}

fn resize<A: Arch>(table: Option<&(Stab, SizeTable)>, packet: &mut Packet<A>) {
    match table {
        Some((_, table)) => packet.set_pkt_len(table.size(packet.own_len())),
        None => packet.restore_len(),
    }
}

/// Packets that go to the inner qdisc. Those that it leaves get their own lengths back, also after a panic of it.
struct Handed<'b, A: Arch>(&'b mut PacketList<A>);

impl<A: Arch> Drop for Handed<'_, A> {
    fn drop(&mut self) {
        self.0.for_each_mut(Packet::restore_len);
    }
}

/// Packets that come from the inner qdisc. They get their own lengths back and go to `out`, also after a panic of it.
struct Taken<'o, A: Arch> {
    packets: PacketList<A>,
    out: &'o mut PacketList<A>,
}

impl<A: Arch> Drop for Taken<'_, A> {
    fn drop(&mut self) {
        self.packets.for_each_mut(Packet::restore_len);
        self.out.append(&mut self.packets);
    }
}

impl<A: Arch> Qdisc<A> for WithStab<A> {
    calls_of_inner!();

    fn enqueue(&mut self, mut packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        resize(self.table.as_ref(), &mut packet);
        self.inner.enqueue(packet, cx)
    }

    fn enqueue_batch(&mut self, batch: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let handed = Handed(batch);
        handed.0.for_each_mut(|packet| resize(self.table.as_ref(), packet));
        self.inner.enqueue_batch(handed.0, cx);
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        if budget.bytes == u64::MAX {
            return self.take(budget, out, cx);
        }
        // The budget's bytes are the device's, and the inner qdisc would spend others.
        while budget.is_left() {
            let (packets, bytes) = (out.len(), out.bytes());
            self.take(Budget::packets(1), out, cx);
            if out.len() == packets {
                return;
            }
            budget.spend(1, out.bytes() - bytes);
        }
    }

    fn room_for(&self, arrival: Arrival<'_, A>) -> Result<(), Full> {
        let Some((_, table)) = &self.table else { return self.inner.room_for(arrival) };
        if arrival.is_behind() {
            // The lengths of those before it are not known by the table: they are asked for one at a time.
            return Err(Full { queued: self.inner.qlen() });
        }
        let len = table.size(arrival.packet.own_len());
        self.inner.room_for(arrival.of_len(len as u64))
    }

    fn stab(&self) -> Option<Stab> {
        self.table.as_ref().map(|(stab, _)| *stab)
    }

    fn set_stab(&mut self, stab: Option<Stab>) -> bool {
        self.table = stab.map(|stab| (stab, stab.table()));
        true
    }
}

#[cfg(test)]
mod tests;
