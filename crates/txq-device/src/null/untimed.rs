//! The ring of a device on which no time passes: an entry is a batch, as the driver received it.
//!
//! A device that reads packets needs an entry for each. This one reads none, so an entry is the list itself, and a
//! measurement on this device shows the path's cost and not the device's.

use std::mem;

use txq::driver::Status;
use txq::generic::driver::{Complete, DriverQueue, Transmit, TxCx};
use txq_core::arch::{Arch, Nanos, Native};
use txq_core::clock::Clock;
use txq_core::packet::PacketList;
use txq_core::sync::spsc::{Consumer, Producer, ring};

/// Creates a txq whose ring holds `packets`.
pub(super) fn queue<A: Arch>(packets: u32, inline: bool) -> DriverQueue<A> {
    // Each batch has at least one packet, so there is an entry for it while there is room for the packet.
    let (tx, done) = ring(packets);
    let (tx, done) = (Box::new(Tx { ring: tx }), Box::new(Done { ring: done, inline }));
    DriverQueue { tx, done, ring: Some(packets) }
}

struct Tx<A: Arch = Native> {
    ring: Producer<A, PacketList<A>>,
}

impl<A: Arch> Transmit<A> for Tx<A> {
    fn start_xmit(&mut self, batch: &mut PacketList<A>, _: &mut TxCx<'_, A>) -> Status {
        // The txq stops before the ring is full, so only callers that ignore the ring's size are refused.
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
            // Appends it in place: moving the list would copy it in wider words than it was just written in, and wait for
            // those stores.
            done.append(batch);
            // The list is empty now: there is nothing to drop.
            self.ring.skip();
        }
        self.ring.publish();
        None
    }

    fn inline(&self) -> bool {
        self.inline
    }

    /// No packet waits for a wire.
    fn bql(&self) -> bool {
        false
    }
}
