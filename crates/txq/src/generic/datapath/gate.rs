//! The gate of a queue: whether it is in force, relays to another queue, or is closed because the device is down
//! (`dev_activate`, `dev_deactivate`, `qdisc_reset`, `qdisc_graft`).

use txq_core::arch::Arch;
use txq_core::drop::DropReason;
use txq_core::packet::PacketList;
use txq_sched::generic::qdisc::{Cx, Qdisc, Verdict};

use crate::generic::datapath::Core;
use crate::generic::datapath::Ctx;
use crate::generic::panics::Panics;

/// What a queue does with packets that arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    /// Queues and sends them.
    Open,
    /// Hands them on, in order, to the queue that is in force for them (`run/relay.rs`).
    Relay,
    /// Keeps them, to relay them once the new rule is in force: the rule is being changed (`netdev/rule.rs`).
    Hold,
    /// Drops them and returns [`Verdict::Congested`]: the device is down (`noop_qdisc`, which returns `NET_XMIT_CN`).
    Down,
    /// Drops them and returns [`Verdict::Drop`]: the device is gone.
    Gone,
}

impl<A: Arch> Core<A> {
    pub(crate) fn gate(&self) -> Gate {
        self.gate
    }

    /// Whether packets wait to be admitted to the qdisc before all others.
    #[inline]
    pub(crate) fn has_unadmitted(&self) -> bool {
        !self.unadmitted.is_empty()
    }

    /// Takes packets for the qdisc, which gets them at the next run of the queue.
    pub(crate) fn admit_later(&mut self, batch: &mut PacketList<A>) {
        self.counters.taken += batch.len() as u64;
        self.unadmitted.append(batch);
    }

    /// Applies the gate to `batch`, and puts unadmitted packets in front of it. Returns the verdict if the batch is not to
    /// be enqueued; `None` if the caller enqueues it.
    #[cold]
    pub(crate) fn at_gate(&mut self, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Option<Verdict> {
        match self.gate {
            _ if self.has_unadmitted() => {
                self.unadmitted.append(batch);
                batch.append(&mut self.unadmitted);
                self.at_gate(batch, cx)
            }
            Gate::Open => None,
            Gate::Relay | Gate::Hold => {
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

    /// Whether the gate drops arriving packets.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.gate, Gate::Down | Gate::Gone)
    }

    /// Drops all queued packets (`qdisc_reset`). Packets in the driver now are dropped too if the driver refuses them.
    /// Counters stay.
    pub(crate) fn purge(&mut self, cx: &mut Ctx<'_, A>) {
        self.purges = self.purges.wrapping_add(1);
        self.lateness.wait(None);
        let mut qcx = cx.for_qdisc(&mut self.counters);
        for list in [&mut self.requeued, &mut self.unadmitted] {
            while let Some(packet) = list.pop_front() {
                qcx.drop(packet, DropReason::QueuePurge);
            }
        }
        // Last, because a program's qdisc may panic.
        if let Some(qdisc) = &mut self.qdisc {
            qdisc.reset(&mut qcx);
        }
    }

    /// Sets the gate, and drops all queued packets (`dev_deactivate`).
    pub(crate) fn close(&mut self, gate: Gate, cx: &mut Ctx<'_, A>) {
        self.gate = gate;
        self.purge(cx);
    }

    /// Sets the gate, and keeps all queued packets (`dev_activate`).
    pub(crate) fn open(&mut self, gate: Gate) {
        self.gate = gate;
    }

    /// Sets the device's queue length in the qdisc, in packets.
    pub(crate) fn set_tx_queue_len(&mut self, packets: u32, cx: &mut Ctx<'_, A>) {
        let mut qcx = cx.for_qdisc(&mut self.counters);
        if let Some(qdisc) = &mut self.qdisc {
            qdisc.set_tx_queue_len(packets, &mut qcx);
        }
    }

    /// Calls `f` with the qdisc and the context of its calls; returns `None` if there is no qdisc.
    pub(crate) fn with_qdisc<R>(
        &mut self,
        cx: &mut Ctx<'_, A>,
        f: impl FnOnce(&mut dyn Qdisc<A>, &mut Cx<'_, A>) -> R,
    ) -> Option<R> {
        let mut qcx = cx.for_qdisc(&mut self.counters);
        self.qdisc.as_mut().map(|qdisc| f(&mut **qdisc, &mut qcx))
    }

    /// Exchanges the qdisc for `qdisc`, and sets the gate (`qdisc_graft`). Drops the packets queued in the old one, as the
    /// kernel does; packets that have come to a queue that is not in force stay. The counters shown for the queue begin anew,
    /// those of the device do not.
    ///
    /// A panic of the old qdisc is raised after all that. What it then still holds is counted as lost, and goes with it.
    pub(crate) fn graft(&mut self, qdisc: &mut Option<Box<dyn Qdisc<A>>>, gate: Gate, cx: &mut Ctx<'_, A>) {
        let mut panics = Panics::default();
        let mut lost = false;
        if self.gate == Gate::Hold {
            self.requeued.append(&mut self.unadmitted);
            self.unadmitted.append(&mut self.requeued);
        } else {
            lost = panics.catch(|| self.purge(cx)).is_none();
        }
        self.refused = 0;
        self.requeues_before = self.counters.requeues;
        self.gate = gate;
        std::mem::swap(&mut self.qdisc, qdisc);
        if lost {
            self.count_lost();
        }
        panics.raise();
    }
}
