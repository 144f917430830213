//! What a traced thread writes for the traces of its device.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use txq_core::arch::{Arch, Atomic};
use txq_core::packet::PacketList;
use txq_core::sync::lossy::Consumer;
use txq_sched::tc::Handle;

use super::ctx::NO_ROOT;
use super::{Ctx, Datapath, Root};
use crate::generic::trace::{At, EventKind, Filter, Stored, Tap};

impl<A: Arch> Root<A> {
    /// Sets the handle and the place of its qdisc; `None` if it has none.
    pub(crate) fn set_names(&self, names: Option<(Handle, Handle)>) {
        let word = names.map_or(0, |(handle, parent)| u64::from(handle.0) << 32 | u64::from(parent.0));
        self.names.store(word, Relaxed);
    }

    /// Returns the handle and the place of its qdisc.
    fn names(&self) -> Option<(Handle, Handle)> {
        let word = self.names.load(Relaxed);
        // A default qdisc has no handle, but every qdisc has a place.
        (word != 0).then_some((Handle((word >> 32) as u32), Handle(word as u32)))
    }
}

impl<A: Arch> Ctx<'_, A> {
    /// Returns whether the device is traced.
    #[inline(always)]
    pub(crate) fn is_traced(&self) -> bool {
        self.traced
    }

    /// Notes the queue that the thread works for, for the events of its drops.
    #[inline]
    pub(crate) fn note_root(&mut self, root: usize) {
        if self.traced {
            self.root = root as u32;
        }
    }

    /// Writes an event for each packet of a queue.
    #[inline]
    pub(crate) fn trace(&self, kind: EventKind, root: &Root<A>, packets: &PacketList<A>) {
        if self.traced {
            self.write(kind, root.txq, Some(root.index), packets);
        }
    }

    /// As [`trace`](Ctx::trace), for packets of one txq.
    #[inline]
    pub(crate) fn trace_txq(&self, kind: EventKind, root: usize, txq: u16, packets: &PacketList<A>) {
        if self.traced {
            self.write(kind, Some(txq), Some(root), packets);
        }
    }

    #[cold]
    fn write(&self, kind: EventKind, txq: Option<u16>, root: Option<usize>, packets: &PacketList<A>) {
        let root = root.map(|root| &self.dev.roots[root]);
        let at = At { kind, txq, steered: root.is_some(), queue: root.and_then(Root::names) };
        self.dev.tracer.write(at, A::now(), packets);
    }

    /// Frees dropped packets, and writes an event for each. The caller holds no lock.
    pub(crate) fn free_list(&mut self, dropped: &mut PacketList<A>) {
        if self.traced {
            let root = (self.root != NO_ROOT).then_some(self.root as usize);
            let txq = root.and_then(|root| self.dev.roots[root].txq);
            self.write(EventKind::KfreeSkb, txq, root, dropped);
        }
        self.cache.free_dropped(dropped);
    }
}

impl<A: Arch> Datapath<A> {
    /// Begins a trace.
    pub(crate) fn begin_trace(&self, filter: Filter, capacity: usize) -> (Arc<Tap<A>>, Consumer<A, Stored>) {
        self.tracer.add(filter, capacity, || self.set_traced(true))
    }

    /// Ends a trace.
    pub(crate) fn end_trace(&self, tap: &Arc<Tap<A>>) {
        self.tracer.remove(tap, || self.set_traced(false));
    }
}
