//! The relay: a queue that is not in force hands its packets on.
//!
//! Senders that have not yet read the new rule still enter such a queue, and packets may wait for its owner when it goes out
//! of force. It hands them on, in order, to the queue that is in force for their txq.
//!
//! A sender that reads the new rule waits until all queues that are not in force have handed on their packets
//! (`Shared::follow`) and their last batch has left the driver. So its next packet overtakes none of its own.
//!
//! A relay runs as a turn does, with the other queue in place of the driver. Meanwhile the queue is running, so it is not
//! idle and no other thread hands packets on.

use txq_core::arch::Arch;
use txq_core::packet::PacketList;

use crate::generic::datapath::Ctx;
use crate::generic::datapath::Gate;
use crate::generic::datapath::{Datapath, Root};
use crate::generic::run::unwind::InDriver;
use crate::generic::run::{Driven, Going, Owner};

/// Hands on the queue's packets until none is left, or until a change of the rule holds the queue.
#[cold]
pub(super) fn relay<A: Arch>(owner: &mut impl Owner<A>, root: &Root<A>, cx: &mut Ctx<'_, A>) -> Going {
    while owner.core().gate == Gate::Relay {
        let mut driven = Driven::new();
        let core = owner.core();
        driven.batch.append(&mut core.requeued);
        // Until the other queue takes them, no queue counts these packets, as if a sender were about to submit them.
        core.counters.taken -= driven.batch.len() as u64;
        if driven.batch.is_empty() {
            pass_on(root, cx.dev);
            return Going::Blocked;
        }
        let mut in_driver = InDriver::enter(owner, &mut driven);
        let InDriver { owner, driven, .. } = &mut in_driver;
        owner.drive(driven, |d| forward(root, &mut d.batch, cx));
        let _ = owner.core().returned(root, driven, cx);
    }
    Going::On
}

/// Schedules the queues that are in force now: a wake or a timer of this queue was meant for them.
fn pass_on<A: Arch>(root: &Root<A>, dev: &Datapath<A>) {
    match root.txq {
        Some(txq) => dev.hand_over(dev.root_of(txq)),
        None => (0..dev.txqs.len() as u16).for_each(|txq| dev.hand_over(dev.root_of(txq))),
    }
}

/// Submits packets of one or several txqs to the queues that are in force for them.
pub(crate) fn forward<A: Arch>(root: &Root<A>, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) {
    /// Counts the remaining packets as lost if the other queue's qdisc or driver panics.
    struct Rest<'b, A: Arch>(&'b mut PacketList<A>, &'b Datapath<A>);
    impl<A: Arch> Drop for Rest<'_, A> {
        fn drop(&mut self) {
            self.1.count_lost(self.0.len() as u64);
        }
    }
    let rest = Rest(batch, cx.dev);
    while let Some(txq) = rest.0.front().map(|first| root.txq.unwrap_or(first.txq())) {
        let n = rest.0.iter().take_while(|p| root.txq.unwrap_or(p.txq()) == txq).count();
        let mut part = PacketList::new();
        rest.0.move_front(n, &mut part);
        let _ = cx.dev.submit(cx.dev.root_of(txq), txq, &mut part, cx);
    }
}
