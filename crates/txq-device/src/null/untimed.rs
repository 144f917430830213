//! The ring of a device on which no time passes: an entry is a batch, as the driver was given it.
//!
//! A device that reads packets needs an entry for each; one that only has them needs no more than the list they come on. So
//! what is measured on this device is the path and not the device.

use txq::arch::{Arch, Nanos, Native};
use txq::driver::{Clock, Complete, DriverQueue, Status, Transmit, TxCx};
use txq::packet::PacketList;
use txq::sync::spsc::{Consumer, Producer, ring};

/// A txq whose ring holds `packets`.
pub(super) fn queue<A: Arch>(packets: u32, inline: bool) -> DriverQueue<A> {
    // Each batch has a packet at least, so there is an entry for it while there is room for the packet.
    let (tx, done) = ring(packets);
    DriverQueue {
        tx: Box::new(Tx { ring: tx }),
        done: Box::new(Done { ring: done, inline }),
        ring: Some(packets),
    }
}

struct Tx<A: Arch = Native> {
    ring: Producer<A, PacketList<A>>,
}

impl<A: Arch> Transmit<A> for Tx<A> {
    fn start_xmit(&mut self, batch: &mut PacketList<A>, _: &mut TxCx<'_, A>) -> Status {
        // The txq stops before the ring is full, so a refusal is for callers that ignore the ring's size.
        if let Err(mut refused) = self.ring.push(std::mem::take(batch)) {
            batch.append(&mut refused);
            return Status::Busy { retry: None };
        }
        self.ring.publish();
        Status::Ok
    }
}

struct Done<A: Arch = Native> {
    ring: Consumer<A, PacketList<A>>,
    inline: bool,
}

impl<A: Arch> Complete<A> for Done<A> {
    fn poll(&mut self, budget: usize, done: &mut PacketList<A>, _: &mut Clock<A>) -> Option<Nanos> {
        while self.ring.peek().is_some_and(|batch| done.is_empty() || done.len() + batch.len() <= budget) {
            if let Some(mut batch) = self.ring.pop() {
                done.append(&mut batch);
            }
        }
        self.ring.publish();
        None
    }

    fn inline(&self) -> bool {
        self.inline
    }

    /// Nothing waits for a wire.
    fn bql(&self) -> bool {
        false
    }
}
