//! The border to the driver: compares the packets that a driver hands back with those that it was given.
//!
//! Drivers are safe code of the program's own, and may be wrong. The sums of a txq depend on the packets that they hand
//! back, so the counts of each call are checked: packets given against packets left in the batch, sent and dropped; packets
//! and bytes kept against packets and bytes completed. A correct driver pays a few comparisons per call. Packets that a
//! driver invents are freed and part of no sum but [`TxCounters::invented`](super::TxCounters::invented). Each broken rule
//! is counted, and the worker that reaps the txq reports it once
//! ([`Builder::on_driver_bug`](crate::netdev::Builder::on_driver_bug)).

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::{fmt, mem};

use txq_core::arch::{Arch, Atomic, Nanos};
use txq_core::packet::{Packet, PacketList};

use super::{DoneSide, TxQueue, TxSide};
use crate::driver::{Clock, Status, Transmit, TxCx};
use crate::netdev::Shared;

/// Time to the worker's next poll of a device that does not say when its packets will complete, in nanoseconds.
const POLL: Nanos = 20_000;
/// How many times that doubles for a driver that keeps packets without a ring: up to 10 ms.
const DOUBLINGS: u32 = 9;

/// A rule that a driver has broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DriverBug {
    /// A call of [`Transmit::start_xmit`] left, sent and dropped more packets than it was given.
    Invented,
    /// A call of [`Transmit::start_xmit`] returned [`Status::Ok`] and left packets in the batch.
    LeftBehind,
    /// The driver keeps packets, and [`DriverQueue::ring`](crate::driver::DriverQueue::ring) is `None`.
    KeptWithoutRing,
    /// [`Complete::poll`](crate::driver::Complete::poll) returned packets that the device did not keep.
    NeverKept,
    /// [`Complete::poll`](crate::driver::Complete::poll) returned more packets than its budget.
    OverBudget,
    /// [`Complete::poll`](crate::driver::Complete::poll) returned packets of other lengths than the device was given.
    LengthChanged,
}

impl DriverBug {
    /// All rules, in the order of their numbers.
    pub const ALL: [DriverBug; 6] = [
        Self::Invented,
        Self::LeftBehind,
        Self::KeptWithoutRing,
        Self::NeverKept,
        Self::OverBudget,
        Self::LengthChanged,
    ];
}

impl fmt::Display for DriverBug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Invented => "start_xmit handed back more packets than it was given",
            Self::LeftBehind => "start_xmit returned Ok and left packets in the batch",
            Self::KeptWithoutRing => "start_xmit kept packets of a txq without a ring",
            Self::NeverKept => "poll returned packets that the device did not keep",
            Self::OverBudget => "poll returned more packets than its budget",
            Self::LengthChanged => "poll returned packets of other lengths than the device was given",
        })
    }
}

/// Reports that a driver has broken a rule for the first time on a txq.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverBugEvent {
    /// The device.
    pub device: String,
    /// The txq.
    pub txq: u16,
    /// The rule.
    pub bug: DriverBug,
}

impl fmt::Display for DriverBugEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device \"{}\", txq {}: driver bug: {}", self.device, self.txq, self.bug)
    }
}

/// The hook that is called with each event.
pub(crate) type DriverBugHook = Box<dyn Fn(&DriverBugEvent) + Send + Sync>;

/// The record of a driver's bugs on a txq. While there is none, only `unreported` is accessed: the worker reads it at each
/// reap. All accesses are relaxed: counters, and a report that the schedule's bit orders.
pub(super) struct Border<A: Arch> {
    /// Calls that broke each rule, by [`DriverBug`]. Incremented by the thread that finds the bug, read by all.
    calls: [A::AtomicU64; DriverBug::ALL.len()],
    /// Packets that were invented. Written and read as `calls`.
    invented: A::AtomicU64,
    /// A bit for each rule that was broken and is not yet reported. Set by the thread that finds the bug, taken by the
    /// worker.
    unreported: A::AtomicU32,
    /// 1 once a panic has ended a call of `start_xmit`: the bytes in flight are no longer known. Set by the thread that
    /// panics, read by the transmitter and the completer.
    panicked: A::AtomicU32,
    /// For a txq without a ring whose driver keeps packets: the count of completed packets at the worker's last poll. Only
    /// that worker accesses this and `in_vain`.
    completed: A::AtomicU32,
    /// Polls in vain since then, up to [`DOUBLINGS`].
    in_vain: A::AtomicU32,
}

impl<A: Arch> Border<A> {
    pub(super) fn new() -> Self {
        Self {
            calls: std::array::from_fn(|_| A::AtomicU64::new(0)),
            invented: A::AtomicU64::new(0),
            unreported: A::AtomicU32::new(0),
            panicked: A::AtomicU32::new(0),
            completed: A::AtomicU32::new(0),
            in_vain: A::AtomicU32::new(0),
        }
    }

    /// Returns the number of calls that broke a rule, and of invented packets.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.calls.iter().map(|calls| calls.load(Relaxed)).sum(), self.invented.load(Relaxed))
    }
}

/// A call of [`Transmit::start_xmit`], by the owner of the transmitting half. If it panics, the packets that the driver left
/// in the batch stay there.
pub(super) struct Call<'c, A: Arch> {
    pub(super) txq: &'c TxQueue<A>,
    pub(super) dev: &'c Shared<A>,
    pub(super) batch: &'c mut PacketList<A>,
    pub(super) tx: TxCx<'c, A>,
    /// See `TxSide::unsure`.
    pub(super) unsure: &'c mut u32,
    /// Takes invented packets, which are freed after every lock is released.
    pub(super) to_free: &'c mut PacketList<A>,
}

impl<A: Arch> Call<'_, A> {
    /// Calls the driver and returns its corrected status. Afterwards, no more packets are left, sent and dropped than were
    /// given, and [`Status::Ok`] means that none is left.
    #[inline]
    pub(super) fn make(self, driver: &mut dyn Transmit<A>) -> Status {
        let given = Given { packets: self.batch.len(), last: self.batch.back().map(Packet::address) };
        let mut calling = Calling { call: self, packets: given.packets };
        let Call { batch, tx, .. } = &mut calling.call;
        let mut status = driver.start_xmit(batch, tx);
        if calling.handed_back() > given.packets || (status == Status::Ok && !calling.call.batch.is_empty()) {
            status = calling.correct(&given, status);
        }
        mem::forget(calling);
        status
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
    /// Returns the number of packets left, sent and dropped.
    #[inline]
    fn handed_back(&self) -> usize {
        self.call.batch.len() + self.call.tx.done.len() + self.call.tx.dropped.len()
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
    pub(super) fn note_bug(&self, bug: DriverBug, invented: usize, dev: &Shared<A>) {
        self.border.invented.fetch_add(invented as u64, Relaxed);
        if self.border.calls[bug as usize].fetch_add(1, Relaxed) == 0 {
            self.border.unreported.fetch_or(1 << bug as u32, Relaxed);
            // The schedule's bit orders the store to `unreported` before the worker's load.
            dev.sched[self.reaper].reap(self.index);
        }
    }

    /// Reports rules that were broken for the first time. The caller is the worker, and holds no lock and owns no queue.
    #[inline]
    pub(crate) fn report_bugs(&self, dev: &Shared<A>) {
        if self.border.unreported.load(Relaxed) != 0 {
            self.report_bugs_slow(dev);
        }
    }

    #[cold]
    fn report_bugs_slow(&self, dev: &Shared<A>) {
        let bugs = self.border.unreported.swap(0, Relaxed);
        let Some(hook) = &dev.driver_bug_hook else { return };
        for bug in DriverBug::ALL.into_iter().filter(|&bug| bugs & 1 << bug as u32 != 0) {
            hook(&DriverBugEvent { device: dev.info.name.clone(), txq: self.index, bug });
        }
    }

    /// Returns the nanoseconds until the worker polls again a driver that has not said when. A driver that keeps packets
    /// without a ring may never complete them: each poll in vain doubles the time.
    pub(crate) fn look_again(&self) -> Nanos {
        if self.ring.load(Relaxed) != u32::MAX {
            return POLL;
        }
        let Border { completed, in_vain, .. } = &*self.border;
        let now = self.completed.packets.load(Relaxed);
        let looks = if completed.swap(now, Relaxed) == now { in_vain.load(Relaxed) + 1 } else { 0 };
        in_vain.store(looks.min(DOUBLINGS), Relaxed);
        POLL << looks.min(DOUBLINGS)
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
    pub(super) fn settled_room(&self, unsure: &mut u32, dev: &Shared<A>) -> u32 {
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
    pub(super) fn keeps_without_ring(&self, unsure: &mut u32, dev: &Shared<A>) {
        if self.ahead() > 0 {
            self.settle(unsure, dev);
        }
        self.note_bug(DriverBug::KeptWithoutRing, 0, dev);
    }

    /// Counts packets that were completed and never kept as issued, so that packets that the device keeps next are in
    /// flight. The caller owns the transmitting half, and no driver call is under way.
    #[cold]
    pub(super) fn settle(&self, unsure: &mut u32, dev: &Shared<A>) {
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
    pub(super) fn settle_bytes(&self, done: &mut DoneSide<A>, dev: &Shared<A>, clock: &mut Clock<A>) {
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
    pub(crate) fn settle_all(&self, tx: &mut TxSide<A>, done: &mut DoneSide<A>, dev: &Shared<A>) {
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
    pub(super) fn lengths_differ(&self, dev: &Shared<A>) {
        if self.border.panicked.load(Relaxed) == 0 {
            self.note_bug(DriverBug::LengthChanged, 0, dev);
        }
    }
}
