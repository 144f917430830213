//! The traces of a device: where the data path writes its events.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError, RwLock};

use txq_core::arch::{Arch, Atomic, Nanos};
use txq_core::packet::{Packet, PacketList};
use txq_core::sync::lossy::{Consumer, Ring, ring};
use txq_sched::Instant;
use txq_sched::tc::Handle;

use super::event::{Event, EventKind, SNAPLEN};
use super::filter::Filter;

/// An event in a ring.
pub(crate) struct Stored {
    pub(crate) event: Event,
    /// The losses of this trace when the event was written.
    pub(crate) lost: u64,
}

/// One trace, as the data path sees it.
pub(crate) struct Tap<A: Arch> {
    ring: Arc<Ring<A, Stored>>,
    filter: Filter,
    /// `Tracer::missed` when the trace began.
    missed: u64,
}

/// The place of an event.
#[derive(Clone, Copy)]
pub(crate) struct At {
    pub(crate) kind: EventKind,
    /// `None` if each packet carries the number of its own, or has none.
    pub(crate) txq: Option<u16>,
    /// Whether each packet has a txq.
    pub(crate) steered: bool,
    /// `None` if it is not known.
    pub(crate) queue: Option<(Handle, Handle)>,
}

/// All traces of a device.
pub(crate) struct Tracer<A: Arch> {
    /// Written by the threads that start and end a trace. The data path only tries to read it, and counts its events in
    /// `missed` if a writer has it. Not a lock of the `Arch`: no thread keeps it across another step of the data path.
    taps: RwLock<Vec<Arc<Tap<A>>>>,
    /// Events lost because a trace began or ended at the same time. Added by the data path, read by traces. Relaxed: a count.
    missed: A::AtomicU64,
}

impl<A: Arch> Tracer<A> {
    pub(crate) fn new() -> Self {
        Self { taps: RwLock::default(), missed: A::AtomicU64::new(0) }
    }

    /// Adds a trace with a ring of `capacity` events, and calls `added` before another trace begins or ends; returns the trace,
    /// with the reader's side of the ring.
    pub(crate) fn add(
        &self,
        filter: Filter,
        capacity: usize,
        added: impl FnOnce(),
    ) -> (Arc<Tap<A>>, Consumer<A, Stored>) {
        let (ring, consumer) = ring(capacity, || Stored { event: Event::empty(), lost: 0 });
        let tap = Arc::new(Tap { ring, filter, missed: self.missed.load(Relaxed) });
        let mut taps = self.taps.write().unwrap_or_else(PoisonError::into_inner);
        taps.push(tap.clone());
        added();
        drop(taps);
        (tap, consumer)
    }

    /// Removes a trace, and calls `none_left` if it was the last one, before another trace begins.
    pub(crate) fn remove(&self, tap: &Arc<Tap<A>>, none_left: impl FnOnce()) {
        let mut taps = self.taps.write().unwrap_or_else(PoisonError::into_inner);
        taps.retain(|other| !Arc::ptr_eq(other, tap));
        if taps.is_empty() {
            none_left();
        }
    }

    /// Returns how many events of a trace were lost.
    pub(crate) fn lost(&self, tap: &Tap<A>) -> u64 {
        tap.ring.lost() + (self.missed.load(Relaxed) - tap.missed)
    }

    /// Writes an event of each packet for each trace.
    pub(crate) fn write(&self, at: At, now: Nanos, packets: &PacketList<A>) {
        let Ok(taps) = self.taps.try_read() else {
            self.missed.fetch_add(packets.len() as u64, Relaxed);
            return;
        };
        for tap in &*taps {
            if tap.filter.writes(at.kind) {
                packets.iter().for_each(|packet| self.write_one(tap, at, now, packet));
            }
        }
    }

    fn write_one(&self, tap: &Tap<A>, at: At, now: Nanos, packet: &Packet<A>) {
        let expr = || tap.filter.packet_expr();
        let txq = at.txq.or_else(|| at.steered.then(|| packet.txq()));
        if !tap.filter.writes_txq(txq)
            || expr()
                .is_some_and(|expr| !expr.matches(&packet.link().dissect_outer(packet.data()), packet.len()))
        {
            return;
        }
        let lost = self.lost(tap);
        tap.ring.push(|slot| {
            let data = packet.data();
            let captured = data.len().min(SNAPLEN);
            slot.lost = lost;
            let event = &mut slot.event;
            (event.kind, event.time, event.txq, event.queue) =
                (at.kind, Instant::from_nanos(now), txq, at.queue);
            (event.packet, event.len) = (packet.address() as u64, packet.len() as u32);
            (event.priority, event.link) = (packet.priority(), packet.link());
            event.reason = (at.kind == EventKind::KfreeSkb).then(|| packet.drop_reason());
            event.captured = captured as u8;
            event.bytes[..captured].copy_from_slice(&data[..captured]);
        });
    }
}
