//! The ring of a device on which no time passes: an entry is a batch, as the driver was given it.
//!
//! A device that reads packets needs an entry for each; one that only has them needs no more than the list they come on. So
//! what is measured on this device is the path and not the device.

use std::mem;

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
        if let Err(mut refused) = self.ring.push(mem::take(batch)) {
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
        while let Some(batch) = self.ring.peek_mut()
            && (done.is_empty() || done.len() + batch.len() <= budget)
        {
            // Where it lies: a list that is moved is copied in wider words than it was just written in, and waits for them.
            done.append(batch);
            // Empty now, so there is nothing to drop, and nothing is copied.
            mem::forget(self.ring.pop());
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
