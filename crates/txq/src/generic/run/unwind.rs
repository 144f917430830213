//! Guards that restore a queue after a panic of a qdisc or a driver. The packet that the code was handling is lost and
//! counted as dropped (`NOT_SPECIFIED`); every other packet stays in the queue, for the next owner. So even code that panics
//! over each packet comes to an end.

use std::marker::PhantomData;
use std::mem;

use txq_core::arch::Arch;
use txq_core::drop::DropReason;
use txq_core::packet::PacketList;

use crate::generic::datapath::Core;
use crate::generic::panics::Panics;
use crate::generic::run::{Driven, Owner};

/// Guards a core while its qdisc is called with a batch. Forgotten when the call returns; dropped when it panics.
pub(super) struct InQdisc<'c, A: Arch> {
    pub(super) core: &'c mut Core<A>,
    pub(super) batch: &'c mut PacketList<A>,
    /// Where the batch's remaining packets go after a panic.
    pub(super) back: Back,
}

/// Where a batch's remaining packets go after the qdisc has panicked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Back {
    /// The packets were being enqueued: the qdisc gets them before all others, at its next call.
    ToQdisc,
    /// The packets were dequeued: they go in front of the queue.
    InFront,
}

impl<A: Arch> Drop for InQdisc<'_, A> {
    fn drop(&mut self) {
        let Self { core, batch, back } = self;
        match back {
            Back::ToQdisc => core.unadmitted.append(batch),
            Back::InFront => core.put_in_front(batch),
        }
        core.count_lost();
    }
}

impl<A: Arch> Core<A> {
    /// Counts packets as lost that the qdisc had and no longer says that it holds. One that panics in `qlen` counts as empty:
    /// a second panic would abort.
    pub(crate) fn count_lost(&mut self) {
        let held = Panics::default().catch(|| self.qlen());
        let held = held.unwrap_or(self.requeued.len() + self.unadmitted.len()) as u64;
        let counters = &mut self.counters;
        let there = [counters.sent, counters.drops.total(), counters.in_driver, held];
        let there = there.into_iter().fold(0, u64::saturating_add);
        counters
            .drops
            .add(DropReason::NotSpecified, (counters.taken + counters.created).saturating_sub(there));
    }
}

/// Guards an owner whose batch is in the driver: marks the core as running until this is dropped, also by a panic of the
/// driver.
pub(super) struct InDriver<'o, A: Arch, O: Owner<A>> {
    pub(super) owner: &'o mut O,
    pub(super) driven: &'o mut Driven<A>,
    arch: PhantomData<A>,
}

impl<'o, A: Arch, O: Owner<A>> InDriver<'o, A, O> {
    #[inline]
    pub(super) fn enter(owner: &'o mut O, driven: &'o mut Driven<A>) -> Self {
        let core = owner.core();
        core.running = true;
        core.counters.in_driver = driven.packets;
        core.driven_bytes = driven.batch.bytes();
        Self { owner, driven, arch: PhantomData }
    }
}

impl<A: Arch, O: Owner<A>> Drop for InDriver<'_, A, O> {
    #[inline]
    fn drop(&mut self) {
        let core = self.owner.core();
        core.running = false;
        if core.counters.in_driver > 0 {
            core.driver_panicked(self.driven);
        }
    }
}

impl<A: Arch> Core<A> {
    #[cold]
    pub(super) fn driver_panicked(&mut self, driven: &mut Driven<A>) {
        self.permit.withdraw();
        let mut lost = mem::take(&mut self.counters.in_driver);
        if driven.back {
            // The panic came after `transmit`, in the reaping of completions.
            self.counters.sent += driven.sent.packets;
            self.counters.sent_bytes += driven.sent.bytes;
            self.counters.drops.merge(&driven.drops);
            lost = lost.saturating_sub(driven.sent.packets + driven.drops.total());
        } else if driven.batch.len() as u64 == lost {
            // The driver panicked before it took a packet, and may panic again over the first: drop that one.
            drop(driven.batch.pop_front());
        }
        if driven.purges == self.purges {
            lost = lost.saturating_sub(driven.batch.len() as u64);
            self.put_in_front(&mut driven.batch);
        }
        self.counters.drops.add(DropReason::NotSpecified, lost);
    }

    /// Puts packets in front of all others of the queue.
    pub(super) fn put_in_front(&mut self, batch: &mut PacketList<A>) {
        batch.append(&mut self.requeued);
        self.requeued.append(batch);
    }
}
