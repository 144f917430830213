//! What a queue's owner gives to the qdisc.

use std::mem;

use txq_core::arch::{Arch, Memory, Work};
use txq_core::packet::PacketList;
use txq_sched::generic::qdisc::Verdict;

use crate::generic::datapath::{Core, Ctx, Root};
use crate::generic::run::unwind::{Back, InQdisc};

impl<A: Arch> Core<A> {
    /// Gives a batch, which `taken` counts, to the qdisc. Returns the verdict on it.
    ///
    /// # Panics
    /// The queue is noqueue's.
    #[inline]
    pub(super) fn enqueue(
        &mut self,
        root: &Root<A>,
        batch: &mut PacketList<A>,
        cx: &mut Ctx<'_, A>,
    ) -> Verdict {
        let n = batch.len();
        A::spend(move || Work::Enqueue(n));
        A::touch(|| self.qdisc(), Memory::Enqueue);
        A::classify(|| (self.qdisc(), batch.iter().map(|packet| packet.data())));
        let mut in_qdisc = InQdisc { core: self, batch, back: Back::ToQdisc };
        let InQdisc { core: Core { qdisc, counters, .. }, batch, .. } = &mut in_qdisc;
        let mut qcx = cx.for_qdisc(counters);
        let qdisc = &mut **qdisc.as_mut().expect("noqueue enqueues nothing");
        let mut dropped = 0;
        let verdict = if n == 1 {
            let before = qcx.to_free();
            let verdict = qdisc.enqueue(batch.pop_front().expect("one packet"), &mut qcx);
            dropped += qcx.to_free() - before;
            qcx.enqueue_copies(qdisc);
            verdict
        } else {
            while !batch.is_empty() {
                let before = qcx.to_free();
                qdisc.enqueue_batch(batch, &mut qcx);
                dropped += qcx.to_free() - before;
                qcx.enqueue_copies(qdisc);
            }
            match dropped {
                0 => Verdict::Success,
                dropped if dropped == n => Verdict::Drop,
                _ => Verdict::Congested,
            }
        };
        mem::forget(in_qdisc);
        A::spend(|| Work::Drop(dropped));
        A::touch(|| self.qdisc(), Memory::Drop(dropped));
        if verdict != Verdict::Success {
            self.note_refusal(root);
        }
        verdict
    }
}
