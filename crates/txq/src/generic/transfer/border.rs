//! The border to the driver: compares the packets that a driver hands back with those that it was given.
//!
//! Drivers are safe code of the program's own, and may be wrong. The sums of a txq depend on the packets that they hand
//! back, so the counts of each call are checked: packets given against packets left in the batch, sent and dropped; packets
//! and bytes kept against packets and bytes completed. A correct driver pays a few comparisons per call. Packets that a
//! driver invents are freed and part of no sum but [`TxCounters::invented`](crate::TxCounters::invented). Each broken rule
//! is counted, and the worker that reaps the txq reports it once
//! ([`Builder::on_driver_bug`](crate::generic::netdev::Builder::on_driver_bug)).

use std::mem;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use txq_core::arch::{Arch, Atomic, Nanos};
use txq_core::clock::Clock;
use txq_core::packet::{Packet, PacketList};

use crate::generic::datapath::Datapath;
use crate::generic::driver::{HandedOn, Status, Transmit, TxCx};
use crate::generic::tuning::{LONGEST_NAP, UNTIMED_POLL};
use crate::generic::txqueue::{Border, DoneSide, DriverBug, DriverBugEvent, TxQueue, TxSide};

/// A call of [`Transmit::start_xmit`], by the owner of the transmitting half. If it panics, the packets that the driver left
/// in the batch stay there.
pub(super) struct Call<'c, A: Arch> {
    pub(super) txq: &'c TxQueue<A>,
    pub(super) dev: &'c Datapath<A>,
    pub(super) batch: &'c mut PacketList<A>,
    pub(super) tx: TxCx<'c, A>,
    /// See `TxSide::unsure`.
    pub(super) unsure: &'c mut u32,
    /// Takes invented packets, which are freed after every lock is released.
    pub(super) to_free: &'c mut PacketList<A>,
}

impl<A: Arch> Call<'_, A> {
    /// Calls the driver and returns its corrected status, and what it has handed on. Afterwards, no more packets are left, sent,
    /// dropped and handed on than were given, and [`Status::Ok`] means that none is left.
    #[inline]
    pub(super) fn make(self, driver: &mut dyn Transmit<A>) -> (Status, HandedOn) {
        let given = Given { packets: self.batch.len(), last: self.batch.back().map(Packet::address) };
        let mut calling = Calling { call: self, packets: given.packets };
        let Call { batch, tx, .. } = &mut calling.call;
        let mut status = driver.start_xmit(batch, tx);
        if calling.handed_back() > given.packets || (status == Status::Ok && !calling.call.batch.is_empty()) {
            status = calling.correct(&given, status);
        }
        let handed_on = calling.call.tx.handed_on;
        mem::forget(calling);
        (status, handed_on)
    }
}

/// The batch that the driver was given.
struct Given {
    packets: usize,
    /// The last packet: a driver that takes packets from the front, as required, leaves it behind all others.
    last: Option<*const ()>,
}

/// A call that has not returned.
struct Calling<'c, A: Arch> {
    call: Call<'c, A>,
    packets: usize,
}

impl<A: Arch> Calling<'_, A> {
    /// Returns the number of packets left, sent, dropped and handed on.
    #[inline]
    fn handed_back(&self) -> usize {
        let Call { batch, tx, .. } = &self.call;
        batch.len() + tx.done.len() + tx.dropped.len() + tx.handed_on.packets
    }

    /// Removes packets that the driver has invented, and returns the status that fits the packets left.
    #[cold]
    fn correct(&mut self, given: &Given, status: Status) -> Status {
        let excess = self.handed_back().saturating_sub(given.packets);
        let Call { txq, dev, batch, tx, to_free, .. } = &mut self.call;
        if excess > 0 {
            txq.note_bug(DriverBug::Invented, excess, dev);
            let end = to_free.len() + excess;
            // First the packets left that are surely not of the batch. All packets sent or dropped are freed anyway.
            cut(batch, given, excess, to_free);
            // Packets handed on are another device's: they are only no longer counted here.
            let left = end - to_free.len();
            let end = end - left.min(tx.handed_on.packets);
            tx.handed_on.packets -= left.min(tx.handed_on.packets);
            for list in [&mut *tx.done, &mut *tx.dropped, &mut **batch] {
                list.move_front(list.len().min(end - to_free.len()), to_free);
            }
        }
        if batch.is_empty() || status != Status::Ok {
            return status;
        }
        txq.note_bug(DriverBug::LeftBehind, 0, dev);
        Status::Busy { retry: None }
    }
}

impl<A: Arch> Drop for Calling<'_, A> {
    /// Accounts for a driver that has panicked. Packets that it was given and has neither left nor given to the context are
    /// on the device's ring, or the panic has freed them.
    #[cold]
    fn drop(&mut self) {
        let taken = self.packets.saturating_sub(self.handed_back());
        let Call { txq, dev, batch, unsure, to_free, .. } = &mut self.call;
        **unsure = unsure.saturating_add(taken as u32);
        txq.border.panicked.store(1, Relaxed);
        if let Some(excess @ 1..) = batch.len().checked_sub(self.packets) {
            txq.note_bug(DriverBug::Invented, excess, dev);
            batch.move_front(excess, to_free);
        }
    }
}

/// Moves up to `excess` packets that are surely not of the batch from those that the driver left to `foreign`: packets
/// behind the batch's last packet, then packets at the front until no more than the given number remain.
fn cut<A: Arch>(left: &mut PacketList<A>, given: &Given, excess: usize, foreign: &mut PacketList<A>) {
    let end = foreign.len() + excess;
    let last = left.iter().position(|packet| Some(packet.address()) == given.last);
    let ours = last.map_or(0, |last| last + 1);
    let mut front = PacketList::new();
    left.move_front(ours, &mut front);
    left.move_front(left.len().min(excess), foreign);
    front.append(left);
    left.append(&mut front);
    let more = left.len().saturating_sub(given.packets).min(end - foreign.len());
    left.move_front(more, foreign);
}

impl<A: Arch> TxQueue<A> {
    /// Counts a call that broke a rule, with the packets that it invented. Schedules the worker to report the rule's first
    /// break.
    #[cold]
    pub(super) fn note_bug(&self, bug: DriverBug, invented: usize, dev: &Datapath<A>) {
        self.border.invented.fetch_add(invented as u64, Relaxed);
        if self.border.calls[bug as usize].fetch_add(1, Relaxed) == 0 {
            self.border.unreported.fetch_or(1 << bug as u32, Relaxed);
            // The schedule's bit orders the store to `unreported` before the worker's load.
            dev.sched[self.reaper].reap(self.index);
        }
    }

    /// Reports rules that were broken for the first time. The caller is the worker, and holds no lock and owns no queue.
    #[inline]
    pub(crate) fn report_bugs(&self, dev: &Datapath<A>) {
        if self.border.unreported.load(Relaxed) != 0 {
            self.report_bugs_slow(dev);
        }
    }

    #[cold]
    fn report_bugs_slow(&self, dev: &Datapath<A>) {
        let bugs = self.border.unreported.swap(0, Relaxed);
        let Some(hook) = &dev.driver_bug_hook else { return };
        for &bug in DriverBug::ALL.iter().filter(|&&bug| bugs & 1 << bug as u32 != 0) {
            hook(&DriverBugEvent { device: dev.info.name.clone(), txq: self.index, bug });
        }
    }

    /// Returns the nanoseconds until the worker polls again a driver that has not said when. A driver that keeps packets
    /// without a ring may never complete them: each poll in vain doubles the time, up to [`LONGEST_NAP`].
    pub(crate) fn next_poll(&self) -> Nanos {
        if self.ring.load(Relaxed) != u32::MAX {
            return UNTIMED_POLL;
        }
        let Border { completed, in_vain, .. } = &*self.border;
        let now = self.completed.packets.load(Relaxed);
        let polls =
            if completed.swap(now, Relaxed) == now { in_vain.load(Relaxed).saturating_add(1) } else { 0 };
        in_vain.store(polls, Relaxed);
        UNTIMED_POLL.saturating_mul(1u64 << polls.min(31)).min(LONGEST_NAP)
    }

    /// Returns the number of packets completed beyond those issued. During a driver call, the device may have completed
    /// packets of that call; at other times, the device never kept them.
    #[inline]
    pub(super) fn ahead(&self) -> u32 {
        self.flight().min(0).unsigned_abs()
    }

    /// Returns packets issued less packets completed.
    #[inline]
    fn flight(&self) -> i32 {
        let completed = self.completed.packets.load(Acquire);
        self.issued.packets.load(Acquire).wrapping_sub(completed) as i32
    }

    /// Returns the room on the ring, in packets, after counting packets that were completed and never kept
    /// ([`settle`](TxQueue::settle)). The caller owns the transmitting half, and no driver call is under way.
    #[inline]
    pub(super) fn settled_room(&self, unsure: &mut u32, dev: &Datapath<A>) -> u32 {
        let ring = self.ring.load(Relaxed);
        if ring == u32::MAX {
            return ring;
        }
        match u32::try_from(self.flight()) {
            Ok(in_flight) => ring.saturating_sub(in_flight),
            Err(_) => {
                self.settle(unsure, dev);
                ring
            }
        }
    }

    /// Counts the bug that the driver has kept packets without a ring. The caller owns the transmitting half.
    #[cold]
    pub(super) fn keeps_without_ring(&self, unsure: &mut u32, dev: &Datapath<A>) {
        if self.ahead() > 0 {
            self.settle(unsure, dev);
        }
        self.note_bug(DriverBug::KeptWithoutRing, 0, dev);
    }

    /// Counts packets that were completed and never kept as issued, so that packets that the device keeps next are in
    /// flight. The caller owns the transmitting half, and no driver call is under way.
    #[cold]
    pub(super) fn settle(&self, unsure: &mut u32, dev: &Datapath<A>) {
        let ahead = self.ahead();
        let issued = self.issued.packets.load(Relaxed).wrapping_add(ahead);
        self.issued.packets.store(issued, Release);
        // A call that panicked has not reported the packets that it kept.
        let excused = ahead.min(*unsure);
        *unsure -= excused;
        if ahead > excused {
            self.note_bug(DriverBug::NeverKept, (ahead - excused) as usize, dev);
        }
    }

    /// Counts bytes in flight as complete if no packet is in flight, since no completion will return them. The caller owns
    /// the transmitting half, and no driver call is under way.
    #[cold]
    pub(super) fn settle_bytes(&self, done: &mut DoneSide<A>, dev: &Datapath<A>, clock: &mut Clock<A>) {
        let Some(bql) = &mut done.bql else { return };
        let bytes = bql.in_flight(&self.issued.bytes);
        if bytes > 0 && self.in_flight() == 0 {
            self.lengths_differ(dev);
            bql.completed(bytes, &self.issued.bytes, &self.completed.adj_limit, clock);
        }
    }

    /// Whether the device has completed packets that it never kept.
    pub(crate) fn needs_settling(&self) -> bool {
        self.ahead() > 0
    }

    /// Counts packets completed and never kept, and bytes kept and lost. The caller owns both halves, and no driver call is
    /// under way.
    pub(crate) fn settle_all(&self, tx: &mut TxSide<A>, done: &mut DoneSide<A>, dev: &Datapath<A>) {
        if self.ahead() > 0 {
            self.settle(&mut tx.unsure, dev);
        }
        if self.in_flight() == 0 {
            self.settle_bytes(done, dev, &mut Clock::new());
        }
    }

    /// Counts the bug that completed bytes differ from those given to the driver; not after a panic, since then the bytes
    /// that it keeps are unknown.
    #[cold]
    pub(super) fn lengths_differ(&self, dev: &Datapath<A>) {
        if self.border.panicked.load(Relaxed) == 0 {
            self.note_bug(DriverBug::LengthChanged, 0, dev);
        }
    }
}
