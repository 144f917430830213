//! What a panic leaves behind is set right here: of a qdisc, of a driver. The packet that it had in its hands is lost, and
//! counted so (`NOT_SPECIFIED`); every other packet stays in the queue, for whoever has that next. So who panics over each
//! packet still comes to an end.

use std::marker::PhantomData;
use std::mem;
use std::panic::{self, AssertUnwindSafe};

use crate::arch::Arch;
use crate::drop::DropReason;
use crate::packet::PacketList;
use crate::run::{Core, Driven, Owner};

/// A core whose qdisc is being called with packets at hand. Forgotten when the call returns; dropped when it panics.
pub(super) struct InQdisc<'c, A: Arch> {
    pub(super) core: &'c mut Core<A>,
    pub(super) batch: &'c mut PacketList<A>,
    /// Where the packets go that the qdisc has not, or has no more.
    pub(super) back: Back,
}

/// Where packets go whose qdisc has panicked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Back {
    /// They were to be enqueued: to the qdisc, before all others, when it is called next.
    ToQdisc,
    /// They were dequeued: in front of everything.
    InFront,
}

impl<A: Arch> Drop for InQdisc<'_, A> {
    fn drop(&mut self) {
        let Self { core, batch, back } = self;
        match back {
            Back::ToQdisc => core.unadmitted.append(batch),
            Back::InFront => core.put_in_front(batch),
        }
        // The qdisc's word for how many it has is taken, and the difference is lost. A second panic here would abort: a qdisc
        // that cannot even say that has none.
        let held = panic::catch_unwind(AssertUnwindSafe(|| core.qlen()));
        let held = held.unwrap_or(core.requeued.len() + core.unadmitted.len()) as u64;
        let counters = &mut core.counters;
        let there = [counters.sent, counters.drops.total(), counters.in_driver, held];
        let there = there.into_iter().fold(0, u64::saturating_add);
        counters
            .drops
            .add(DropReason::NotSpecified, (counters.taken + counters.created).saturating_sub(there));
    }
}

/// An owner while its batch is in the driver. Whatever ends that, a panic of the driver too, the queue goes on.
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
            // It panicked over completions.
            self.counters.sent += driven.sent.packets;
            self.counters.sent_bytes += driven.sent.bytes;
            self.counters.drops.merge(&driven.drops);
            lost = lost.saturating_sub(driven.sent.packets + driven.drops.total());
        } else if driven.batch.len() as u64 == lost {
            // It panicked before it took one, and may do so again, over the first: that one is given up.
            drop(driven.batch.pop_front());
        }
        if driven.purges == self.purges {
            lost = lost.saturating_sub(driven.batch.len() as u64);
            self.put_in_front(&mut driven.batch);
        }
        self.counters.drops.add(DropReason::NotSpecified, lost);
    }

    /// Has packets sent before everything else.
    pub(super) fn put_in_front(&mut self, batch: &mut PacketList<A>) {
        batch.append(&mut self.requeued);
        self.requeued.append(batch);
    }
}

/// A sender's own packets while there is no qdisc and the driver has them.
pub(super) struct Direct<'c, A: Arch> {
    pub(super) core: &'c mut Core<A>,
    pub(super) packets: u64,
}

impl<A: Arch> Drop for Direct<'_, A> {
    fn drop(&mut self) {
        if self.packets > 0 {
            self.core.permit.withdraw();
        }
        self.core.counters.drops.add(DropReason::NotSpecified, self.packets);
    }
}
