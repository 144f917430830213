//! [`Root`]: one queue of a device.

use std::mem;
use std::sync::atomic::Ordering::Relaxed;

use txq_core::arch::inside::Entered;
use txq_core::arch::{Arch, Atomic, Nanos};
use txq_core::drop::DropReason;
use txq_core::packet::PacketList;
use txq_core::sync::fill::Fill;
use txq_sched::generic::qdisc::Verdict;

use super::{Core, CoreAccess, Ctx, Datapath, Usage};
use crate::generic::panics::Panics;

/// One queue: a qdisc and the discipline through which senders enter it (`struct Qdisc` at the root of a `netdev_queue`). On
/// lines of its own.
#[repr(align(128))]
pub(crate) struct Root<A: Arch> {
    pub(crate) index: usize,
    /// The txq of all its packets; `None` if it serves all txqs.
    pub(crate) txq: Option<u16>,
    pub(crate) discipline: Box<dyn CoreAccess<A>>,
    /// Whether senders find room in it. An owner loads its word once a turn. The word is written when the queue fills up or
    /// a sender waits.
    pub(crate) fill: Fill<A>,
    /// Which busy sender uses it.
    pub(crate) usage: Usage<A>,
    /// The maximum length of the list in front of the qdisc, in packets (`qdisc_max_burst`).
    pub(crate) max_burst: u32,
    /// The length from which on that list is long, in packets. Written by control operations, read by senders that wait for
    /// room; Relaxed, because a sender that read it a moment before would not see a change either.
    pub(crate) long: A::AtomicU32,
    /// How many packets of one sender certainly find room while the queue is not full: 0 if that depends on the packets.
    /// Written and read as `long`.
    pub(crate) spare: A::AtomicU32,
    /// Packets dropped because the list in front of the qdisc was full. Added by any sender (Relaxed), read by `totals`.
    pub(crate) burst_drops: A::AtomicU64,
    /// The handle of its qdisc in the upper half, and in the lower half its parent; 0 while it has no qdisc. Stored by control
    /// operations at their end, read by threads that are traced. Relaxed: a name for a reader.
    pub(crate) names: A::AtomicU64,
}

impl<A: Arch> Root<A> {
    /// Whether the list in front of the qdisc is long. A sender that waits for room then does not add to the list: the owner
    /// is behind, and may find no room for all packets.
    pub(crate) fn is_behind(&self) -> bool {
        self.discipline.is_behind(self.long.load(Relaxed))
    }

    /// Returns how many packets of one sender certainly find room while the queue is not full, without a question to the qdisc.
    pub(crate) fn spare(&self) -> usize {
        self.spare.load(Relaxed) as usize
    }

    /// Drops a batch because the list in front of the qdisc has no room (`qdisc_max_burst`).
    pub(crate) fn drop_burst(&self, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) {
        self.burst_drops.fetch_add(batch.len() as u64, Relaxed);
        // The queue is partly full until the owner's next turn ends: that turn empties the list.
        self.fill.note_partial(usize::MAX);
        batch.for_each_mut(|p| p.set_drop_reason(DropReason::QdiscBurstDrop));
        cx.free_list(batch);
    }

    /// Runs the queue, as a worker does.
    pub(crate) fn run(&self, dev: &Datapath<A>, cx: &mut Ctx<'_, A>) {
        let _inside = Entered::<A>::new(dev);
        cx.note_root(self.index);
        self.run_inside(dev, cx);
    }

    /// As [`run`](Root::run), for a thread that is inside the device's data path.
    pub(crate) fn run_inside(&self, dev: &Datapath<A>, cx: &mut Ctx<'_, A>) {
        let hand_over = HandOver(self.index, dev);
        self.discipline.run(self, cx);
        hand_over.end(false);
    }

    /// Hands a batch to the discipline; returns the verdict.
    #[inline]
    pub(super) fn submit(
        &self,
        dev: &Datapath<A>,
        batch: &mut PacketList<A>,
        cx: &mut Ctx<'_, A>,
    ) -> Verdict {
        let hand_over = HandOver(self.index, dev);
        let verdict = self.discipline.submit(self, batch, cx);
        hand_over.end(false);
        verdict
    }

    /// Waits until the core has no owner, and calls `f` with it. If the qdisc panics, outside `f` too, the visit ends like any
    /// other before the panic is raised again.
    pub(crate) fn with_core(&self, dev: &Datapath<A>, mut f: impl FnMut(&mut Core<A>)) {
        let _ = self.visit(dev, &mut f);
    }

    /// As [`with_core`](Root::with_core), for one of many calls in a row. If packets wait for an owner afterwards, sleeps for
    /// as long as `f` took. A caller that took the core again at once would keep it: the worker needs longer to wake.
    pub(crate) fn with_core_for_portion(&self, dev: &Datapath<A>, mut f: impl FnMut(&mut Core<A>)) {
        let mut took: Nanos = 0;
        let is_waited_for = self.visit(dev, &mut |core| {
            let began = A::now();
            f(core);
            took = A::now().saturating_sub(began);
        });
        if is_waited_for {
            let end = A::now().saturating_add(took);
            while A::now() < end {
                A::relax();
            }
        }
    }

    /// Waits until the core has no owner, and calls `f` with it. Returns whether packets waited for an owner afterwards, so
    /// that a worker runs the queue.
    fn visit(&self, dev: &Datapath<A>, f: &mut dyn FnMut(&mut Core<A>)) -> bool {
        let _inside = Entered::<A>::new(dev);
        let mut panics = Panics::default();
        let hand_over = HandOver(self.index, dev);
        let must_run = !self.discipline.with_core(&mut |core, _| {
            panics.catch(|| core.end_permit());
            panics.catch(|| f(core));
            core.note_limit();
            self.long.store(core.marks.long(self.max_burst), Relaxed);
            self.spare.store(core.marks.spare, Relaxed);
        });
        hand_over.end(must_run);
        panics.raise();
        must_run
    }

    /// Returns whether nothing is queued, nothing waits for an owner, and there is no owner. Does not wait, since senders
    /// call it on their way.
    pub(crate) fn is_idle(&self, dev: &Datapath<A>) -> bool {
        let mut idle = false;
        let hand_over = HandOver(self.index, dev);
        let ended = self.discipline.try_with_core(&mut |core, waiting| idle = core.is_idle() && !waiting);
        hand_over.end(ended == Some(false));
        idle
    }
}

/// Makes a worker run a queue when dropped: at the end of a visit, and if a panic of the qdisc or the driver ends a visit, a
/// sender's call or a run. Packets may wait that the panic has left, or that a sender has left for this owner.
pub(super) struct HandOver<'d, A: Arch>(pub(super) usize, pub(super) &'d Datapath<A>);

impl<A: Arch> HandOver<'_, A> {
    /// Ends it without a panic: a worker runs the queue only if it must.
    #[inline]
    pub(super) fn end(self, must_run: bool) {
        if !must_run {
            mem::forget(self);
        }
    }
}

impl<A: Arch> Drop for HandOver<'_, A> {
    fn drop(&mut self) {
        self.1.hand_over(self.0);
    }
}
