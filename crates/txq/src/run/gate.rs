//! Whether a queue takes part: a queue that is in force, one that is not, and one whose device is down
//! (`dev_activate`, `dev_deactivate`, `qdisc_reset`, `qdisc_graft`).

use crate::arch::Arch;
use crate::ctx::Ctx;
use crate::drop::DropReason;
use crate::packet::PacketList;
use crate::qdisc::{Cx, Qdisc, Verdict};
use crate::run::Core;

/// What becomes of packets that arrive at a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    /// They are queued and sent.
    Open,
    /// Another queue is in force for them; they are handed on to it, in order (`run/relay.rs`).
    Relay,
    /// The device is down: they are dropped, and their sender is told so (`noop_qdisc`, which says `NET_XMIT_CN`).
    Down,
    /// The device is gone: they are dropped.
    Gone,
}

impl<A: Arch> Core<A> {
    pub(crate) fn gate(&self) -> Gate {
        self.gate
    }

    /// Whether there is something that only the qdisc may have next.
    #[inline]
    pub(super) fn has_unadmitted(&self) -> bool {
        !self.unadmitted.is_empty()
    }

    /// Takes packets for the qdisc, which gets them when the queue is run next.
    pub(crate) fn admit_later(&mut self, batch: &mut PacketList<A>) {
        self.counters.taken += batch.len() as u64;
        self.unadmitted.append(batch);
    }

    /// What becomes of `batch` where it may not simply be enqueued; `None` when it may now.
    #[cold]
    pub(super) fn at_gate(&mut self, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Option<Verdict> {
        match self.gate {
            _ if self.has_unadmitted() => {
                self.unadmitted.append(batch);
                batch.append(&mut self.unadmitted);
                self.at_gate(batch, cx)
            }
            Gate::Open => None,
            Gate::Relay => {
                self.requeued.append(batch);
                Some(Verdict::Success)
            }
            Gate::Down => {
                self.drop_all(batch, DropReason::QdiscDrop, cx);
                Some(Verdict::Congested)
            }
            Gate::Gone => {
                self.drop_all(batch, DropReason::QdiscDrop, cx);
                Some(Verdict::Drop)
            }
        }
    }

    /// Whether what arrives is dropped.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.gate, Gate::Down | Gate::Gone)
    }

    /// Drops everything that is queued (`qdisc_reset`). Counters stay, and what is in the driver and comes back is dropped
    /// too: it belongs to what was queued.
    pub(crate) fn purge(&mut self, cx: &mut Ctx<'_, A>) {
        self.purges = self.purges.wrapping_add(1);
        let mut qcx = cx.for_qdisc(&mut self.counters);
        if let Some(qdisc) = &mut self.qdisc {
            qdisc.reset(&mut qcx);
        }
        for list in [&mut self.requeued, &mut self.unadmitted] {
            while let Some(packet) = list.pop_front() {
                qcx.drop(packet, DropReason::QueuePurge);
            }
        }
    }

    /// Drops everything that is queued, and treats what comes as `gate` says (`dev_deactivate`).
    pub(crate) fn close(&mut self, gate: Gate, cx: &mut Ctx<'_, A>) {
        self.purge(cx);
        self.gate = gate;
    }

    /// Treats what comes as `gate` says, and keeps what is there (`dev_activate`).
    pub(crate) fn open(&mut self, gate: Gate) {
        self.gate = gate;
    }

    /// Tells the qdisc how long the device's queues are now.
    pub(crate) fn set_tx_queue_len(&mut self, packets: u32, cx: &mut Ctx<'_, A>) {
        let mut qcx = cx.for_qdisc(&mut self.counters);
        if let Some(qdisc) = &mut self.qdisc {
            qdisc.set_tx_queue_len(packets, &mut qcx);
        }
    }

    /// Calls `f` with the qdisc, if there is one, and what its calls need.
    pub(crate) fn with_qdisc<R>(
        &mut self,
        cx: &mut Ctx<'_, A>,
        f: impl FnOnce(&mut dyn Qdisc<A>, &mut Cx<'_, A>) -> R,
    ) -> Option<R> {
        let mut qcx = cx.for_qdisc(&mut self.counters);
        self.qdisc.as_mut().map(|qdisc| f(&mut **qdisc, &mut qcx))
    }

    /// Exchanges the qdisc (`qdisc_graft`). What the old one has queued is dropped, as the kernel does it; packets that a
    /// queue that was not in force has on their way stay. The counters shown for the queue begin anew, those of the
    /// device do not.
    pub(crate) fn graft(
        &mut self,
        qdisc: Option<Box<dyn Qdisc<A>>>,
        gate: Gate,
        cx: &mut Ctx<'_, A>,
    ) -> Option<Box<dyn Qdisc<A>>> {
        if self.gate == Gate::Relay {
            self.unadmitted.append(&mut self.requeued);
        } else {
            self.purge(cx);
        }
        self.refused = 0;
        self.requeues_before = self.counters.requeues;
        self.gate = gate;
        std::mem::replace(&mut self.qdisc, qdisc)
    }
}
