//! Plain memory of the data plane: the lines that it reads and writes of queues, flows, senders and packets without an
//! atomic. Each task pays for as many lines as the [`Footprint`] says.

use std::ops::Range;

use txq_core::arch::Memory;

use super::charge;
use crate::sim::engine::{self, Engine};
use crate::sim::footprint::Footprint;
use crate::sim::keys;
use crate::sim::moves::{Moves, Recent};
use crate::sim::workload::flow_of;

/// Charges the use of an object that a lock guards, by the lock holder.
#[inline]
pub(super) fn touch<'m, T: ?Sized + 'm>(at: impl FnOnce() -> &'m T, what: Memory) {
    charge(|e| {
        // SAFETY: the engine whose task calls.
        let (known, lines) = unsafe { ((*e).known, (*e).footprint.of(what)) };
        match (known, what) {
            (Some(known), Memory::Enqueue | Memory::Dequeue | Memory::Drop(_)) => {
                if what != Memory::Drop(0) {
                    // SAFETY: as above.
                    unsafe { move_qdisc(e, at(), known.moves, what) };
                }
            }
            (_, Memory::Drop(_)) => {}
            // SAFETY: as above.
            _ => unsafe { engine::update(e, keys::object(at(), lines)) },
        }
    });
}

/// Charges a call of a qdisc whose state is known: its own lines, and those that a drop uses of other flows.
///
/// # Safety
/// As [`engine::update`].
unsafe fn move_qdisc<T: ?Sized>(e: *mut Engine, qdisc: &T, moves: &'static Moves, what: Memory) {
    let first = keys::object(qdisc, 1).start;
    // SAFETY: as the caller promises.
    unsafe {
        engine::move_lines(e, moves.fixed(what).iter().map(|&(at, writes)| (first + u64::from(at), writes)));
        if let Memory::Drop(n) = what {
            for _ in 0..n {
                recent(e, qdisc).begin();
                move_others(e, qdisc, moves, what);
            }
        }
    }
}

/// Returns what the last calls of a qdisc accessed.
///
/// # Safety
/// As [`engine::update`]. The reference ends before the task may yield its turn.
unsafe fn recent<'e, T: ?Sized>(e: *mut Engine, qdisc: &T) -> &'e mut Recent {
    // SAFETY: as the caller promises.
    unsafe { (*e).recent.entry(keys::object(qdisc, 1).start).or_default() }
}

/// Charges the lines of other flows and of tables that a packet's call accesses: most are those that the last calls accessed, as the
/// neighbours in a list of flows and the classes of a tree are.
///
/// # Safety
/// As [`engine::update`].
unsafe fn move_others<T: ?Sized>(e: *mut Engine, qdisc: &T, moves: &'static Moves, what: Memory) {
    // SAFETY: as the caller promises; the reference ends at once.
    let random = || unsafe { engine::random(&mut (*e).me().random) };
    let any = |random: u64| keys::of_qdisc(qdisc, random % u64::from(moves.among));
    for (age, lines) in moves.others(what, random()).into_iter().enumerate() {
        for _ in 0..lines {
            let random = random();
            // SAFETY: as the caller promises; each reference ends at once.
            unsafe {
                let line = match age {
                    0 => recent(e, qdisc).again(random),
                    1 => recent(e, qdisc).recent(random),
                    _ => None,
                };
                let line = line.unwrap_or_else(|| any(random));
                recent(e, qdisc).note(line);
                engine::move_lines(e, std::iter::once((line, true)));
            }
        }
    }
}

/// Charges a packet's call of a qdisc whose state is known: the lines of its flow, and others.
///
/// # Safety
/// As [`engine::update`].
unsafe fn move_flow<T: ?Sized>(e: *mut Engine, qdisc: &T, frame: &[u8], moves: &'static Moves, what: Memory) {
    // SAFETY: as the caller promises.
    unsafe {
        recent(e, qdisc).begin();
        if what == Memory::Enqueue {
            engine::move_lines(e, keys::lines(frame.as_ptr(), moves.data).map(|key| (key, false)));
        }
        if let Some(flow) = flow_of(frame) {
            let first = keys::flow(qdisc, flow, 1).start;
            let lines = moves.flow(what).iter().map(|&(at, writes)| (first + u64::from(at), writes));
            lines.clone().for_each(|(line, _)| recent(e, qdisc).note(line));
            engine::move_lines(e, lines);
        }
        move_others(e, qdisc, moves, what);
    }
}

/// Charges a qdisc's reads of the frames that it enqueues: their senders, and its state of their flows.
#[inline]
pub(super) fn classify<'p, T: ?Sized + 'p, F: Iterator<Item = &'p [u8]>>(
    qdisc_and_frames: impl FnOnce() -> (&'p T, F),
) {
    charge(|e| {
        // SAFETY: the engine whose task calls.
        if let Some(known) = unsafe { (*e).known } {
            let (qdisc, frames) = qdisc_and_frames();
            for frame in frames {
                // SAFETY: as above.
                unsafe { move_flow(e, qdisc, frame, known.moves, Memory::Enqueue) };
            }
            return;
        }
        // SAFETY: as above.
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

/// Charges a qdisc's use of its state of the flows whose packets it has dequeued, and its reads of these packets.
#[inline]
pub(super) fn dequeued<'p, T: ?Sized + 'p, F: Iterator<Item = &'p [u8]>>(
    qdisc_and_frames: impl FnOnce() -> (&'p T, F),
) {
    charge(|e| {
        // SAFETY: the engine whose task calls.
        if let Some(known) = unsafe { (*e).known } {
            let (qdisc, frames) = qdisc_and_frames();
            for frame in frames {
                // SAFETY: as above.
                unsafe { move_flow(e, qdisc, frame, known.moves, Memory::Dequeue) };
            }
            return;
        }
        // SAFETY: as above.
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
