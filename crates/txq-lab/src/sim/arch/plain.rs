//! Plain memory of the data plane: the lines that it reads and writes of queues, flows, senders and packets without an
//! atomic. Each task pays for as many lines as the [`Footprint`] says.

use std::ops::Range;

use txq_core::arch::Memory;

use super::charge;
use crate::sim::engine::{self, Engine};
use crate::sim::footprint::Footprint;
use crate::sim::keys;
use crate::sim::workload::flow_of;

/// Charges the use of an object that a lock guards, by the lock holder.
#[inline]
pub(super) fn touch<'m, T: ?Sized + 'm>(at: impl FnOnce() -> &'m T, what: Memory) {
    // SAFETY: the engine whose task calls.
    charge(|e| unsafe { engine::update(e, keys::object(at(), (*e).footprint.of(what))) });
}

/// Charges a qdisc's look at the frames that it enqueues: at their senders, and at its state of their flows.
#[inline]
pub(super) fn classify<'p, T: ?Sized + 'p, F: Iterator<Item = &'p [u8]>>(
    qdisc_and_frames: impl FnOnce() -> (&'p T, F),
) {
    charge(|e| {
        // SAFETY: the engine whose task calls.
        let Footprint { flow: of_flow, sender, .. } = unsafe { (*e).footprint };
        if of_flow == 0 && sender == 0 {
            return;
        }
        let (qdisc, frames) = qdisc_and_frames();
        for flow in frames.filter_map(flow_of) {
            // SAFETY: as above. One after the other: the qdisc finds the flow by the sender's contents.
            unsafe {
                engine::read_now(e, keys::sender(flow, sender));
                use_flow(e, keys::flow(qdisc, flow, of_flow));
            }
        }
    });
}

/// Charges a qdisc's use of its state of the flows whose packets it has dequeued, and its look at these packets.
#[inline]
pub(super) fn dequeued<'p, T: ?Sized + 'p, F: Iterator<Item = &'p [u8]>>(
    qdisc_and_frames: impl FnOnce() -> (&'p T, F),
) {
    charge(|e| {
        // SAFETY: the engine whose task calls.
        let Footprint { flow: lines, peek, .. } = unsafe { (*e).footprint };
        if lines == 0 && peek == 0 {
            return;
        }
        let (qdisc, frames) = qdisc_and_frames();
        for frame in frames {
            if peek > 0 {
                // SAFETY: as above.
                unsafe { engine::read(e, keys::lines(frame.as_ptr(), peek)) };
            }
            if lines > 0
                && let Some(flow) = flow_of(frame)
            {
                // SAFETY: as above.
                unsafe { use_flow(e, keys::flow(qdisc, flow, lines)) };
            }
        }
    });
}

/// Charges a qdisc's use of a flow's lines: it tests their contents before it writes.
///
/// # Safety
/// As [`engine::update`].
unsafe fn use_flow(e: *mut Engine, keys: Range<u64>) {
    // SAFETY: as the caller promises.
    unsafe {
        engine::read_now(e, keys.clone());
        engine::update(e, keys);
    }
}

/// Charges a sender's write of a packet's bytes, and its note that the packet is in flight.
pub(crate) fn write_packet(packet: &[u8]) {
    // SAFETY: the engine whose task calls.
    charge(|e| unsafe {
        engine::write(e, keys::lines(packet.as_ptr(), packet.len().div_ceil(64) as u32));
        if let Some(flow) = flow_of(packet) {
            engine::update(e, keys::sender(flow, (*e).footprint.sender));
        }
    });
}

/// Charges a driver's read of the lines of a packet that the queue layer has not read. The driver waits for
/// them, since it tests the number of the packet's fragments.
pub(crate) fn read_packet(packet: &[u8]) {
    // SAFETY: the engine whose task calls.
    charge(|e| unsafe { engine::read_now(e, keys::lines(packet.as_ptr(), (*e).footprint.packet)) });
}
