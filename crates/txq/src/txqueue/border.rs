//! The border to the driver: what a driver hands back is compared with what it was given.
//!
//! Drivers are safe code of the program's own, and may be wrong. The sums of a txq rest on what they hand back, so each call is
//! checked by its counts: packets given against packets left in the batch, sent and dropped; packets and bytes kept
//! against packets and bytes completed. An honest driver pays a few comparisons per call. What a driver invents is freed
//! and part of no sum but [`TxCounters::invented`](super::TxCounters::invented). Each broken rule is counted, and the
//! worker that reaps the txq reports it once ([`Builder::on_driver_bug`](crate::netdev::Builder::on_driver_bug)).

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::{fmt, mem};

use super::{DoneSide, TxQueue, TxSide};
use crate::arch::{Arch, Atomic, Nanos};
use crate::driver::{Clock, Status, Transmit, TxCx};
use crate::netdev::Shared;
use crate::packet::{Packet, PacketList};

/// How long a worker leaves packets in a device that does not say when they will be done, in nanoseconds.
const POLL: Nanos = 20_000;
/// How often that doubles for a driver that keeps packets without a ring: up to 10 ms.
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
    /// All of them, in the order of their numbers.
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

/// A driver has broken a rule for the first time on this txq.
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

/// Called with each event.
pub(crate) type DriverBugHook = Box<dyn Fn(&DriverBugEvent) + Send + Sync>;

/// What a txq remembers of its driver's bugs. Nothing of it is touched while there is none, but `unreported`, which the
/// worker reads at each reap. All accesses are relaxed: counters, and a report that the schedule's bit orders.
pub(super) struct Border<A: Arch> {
    /// Calls that broke each rule, by [`DriverBug`].
    calls: [A::AtomicU64; DriverBug::ALL.len()],
    /// Packets that were invented.
    invented: A::AtomicU64,
    /// A bit for each rule that was broken and is not yet reported. Set by the thread that finds out, taken by the worker.
    unreported: A::AtomicU32,
    /// 1 once a panic has ended a call of `start_xmit`: then the bytes in flight are no longer known.
    panicked: A::AtomicU32,
    /// Of a txq without a ring whose driver keeps packets: the packets completed when the worker last looked, and how often
    /// it has looked since in vain. Only that worker reads and writes them.
    completed: A::AtomicU32,
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

    /// Calls that broke a rule, and packets that were invented.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.calls.iter().map(|calls| calls.load(Relaxed)).sum(), self.invented.load(Relaxed))
    }
}

/// A call of [`Transmit::start_xmit`], by the owner of the transmitting half. If it panics, what the driver left of the batch
/// stays there.
pub(super) struct Call<'c, A: Arch> {
    pub(super) txq: &'c TxQueue<A>,
    pub(super) dev: &'c Shared<A>,
    pub(super) batch: &'c mut PacketList<A>,
    pub(super) tx: TxCx<'c, A>,
    /// See `TxSide::unsure`.
    pub(super) unsure: &'c mut u32,
    /// Where invented packets go, to be freed when every lock is left.
    pub(super) to_free: &'c mut PacketList<A>,
}

impl<A: Arch> Call<'_, A> {
    /// Calls the driver. Afterwards packets left, sent and dropped are at most as many as were given, and [`Status::Ok`] means
    /// that none is left.
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

/// What the driver was given.
struct Given {
    packets: usize,
    /// The last packet: a driver that takes from the front, as it shall, leaves it behind all others.
    last: Option<*const ()>,
}

/// A call that has not returned.
struct Calling<'c, A: Arch> {
    call: Call<'c, A>,
    packets: usize,
}

impl<A: Arch> Calling<'_, A> {
    /// Packets left, sent and dropped.
    #[inline]
    fn handed_back(&self) -> usize {
        self.call.batch.len() + self.call.tx.done.len() + self.call.tx.dropped.len()
    }

    /// Takes off what the driver has invented, and returns the status that fits what it left.
    #[cold]
    fn correct(&mut self, given: &Given, status: Status) -> Status {
        let excess = self.handed_back().saturating_sub(given.packets);
        let Call { txq, dev, batch, tx, to_free, .. } = &mut self.call;
        if excess > 0 {
            txq.note_bug(DriverBug::Invented, excess, dev);
            let end = to_free.len() + excess;
            // What was left and is surely not of the batch first. Of what was sent or dropped all is freed anyway.
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
    /// The driver has panicked. What it was given and has neither left nor given to the context is on the device's ring, or
    /// was freed by the panic.
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

/// Moves up to `excess` packets that are surely not of the batch from what the driver left: those behind the batch's last
/// packet, and in front as many as make the rest no more than was given.
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
    /// Counts a call that broke a rule, with the packets that it invented, and has the first one reported.
    #[cold]
    pub(super) fn note_bug(&self, bug: DriverBug, invented: usize, dev: &Shared<A>) {
        self.border.invented.fetch_add(invented as u64, Relaxed);
        if self.border.calls[bug as usize].fetch_add(1, Relaxed) == 0 {
            self.border.unreported.fetch_or(1 << bug as u32, Relaxed);
            // The schedule's bit orders `unreported` before the worker's look.
            dev.sched[self.reaper].reap(self.index);
        }
    }

    /// Reports rules that were broken for the first time. For the worker, which holds no lock and owns no queue here.
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

    /// Nanoseconds until the worker looks again after completions that the driver has not announced. A driver that keeps
    /// packets without a ring may never complete them: each look in vain doubles the time.
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

    /// Packets completed beyond those that the device is known to keep. While a driver is being called that may be what it
    /// has just completed; at other times it was never kept.
    #[inline]
    pub(super) fn ahead(&self) -> u32 {
        self.flight().min(0).unsigned_abs()
    }

    /// Packets kept less packets completed.
    #[inline]
    fn flight(&self) -> i32 {
        let completed = self.completed.packets.load(Acquire);
        self.issued.packets.load(Acquire).wrapping_sub(completed) as i32
    }

    /// Packets that it takes now, once those are counted that were completed and never kept. The caller owns the transmitting
    /// half, and no driver is being called.
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

    /// The driver has kept packets and has no ring. The caller holds the tx lock.
    #[cold]
    pub(super) fn keeps_without_ring(&self, unsure: &mut u32, dev: &Shared<A>) {
        if self.ahead() > 0 {
            self.settle(unsure, dev);
        }
        self.note_bug(DriverBug::KeptWithoutRing, 0, dev);
    }

    /// Counts packets that were completed and never kept as kept, so that those that the device keeps next are seen. The caller
    /// holds the tx lock, and no driver is being called.
    #[cold]
    pub(super) fn settle(&self, unsure: &mut u32, dev: &Shared<A>) {
        let ahead = self.ahead();
        let issued = self.issued.packets.load(Relaxed).wrapping_add(ahead);
        self.issued.packets.store(issued, Release);
        // A call that panicked has not told what it kept.
        let excused = ahead.min(*unsure);
        *unsure -= excused;
        if ahead > excused {
            self.note_bug(DriverBug::NeverKept, (ahead - excused) as usize, dev);
        }
    }

    /// Counts bytes in flight without a packet as complete, which no completion will bring. The caller owns the transmitting
    /// half, and no driver is being called.
    #[cold]
    pub(super) fn settle_bytes(&self, done: &mut DoneSide<A>, dev: &Shared<A>, clock: &mut Clock<A>) {
        let Some(bql) = &mut done.bql else { return };
        let bytes = bql.in_flight(&self.issued.bytes);
        if bytes > 0 && self.in_flight() == 0 {
            self.lengths_differ(dev);
            bql.completed(bytes, &self.issued.bytes, &self.completed.adj_limit, clock);
        }
    }

    /// Whether packets were completed that were never kept.
    pub(crate) fn needs_settling(&self) -> bool {
        self.ahead() > 0
    }

    /// Counts what was completed and never kept, or kept and lost. The caller has both halves, and no driver is being called.
    pub(crate) fn settle_all(&self, tx: &mut TxSide<A>, done: &mut DoneSide<A>, dev: &Shared<A>) {
        if self.ahead() > 0 {
            self.settle(&mut tx.unsure, dev);
        }
        if self.in_flight() == 0 {
            self.settle_bytes(done, dev, &mut Clock::new());
        }
    }

    /// The bytes completed are not those that were given to the driver. After a panic nobody knows which it has kept.
    #[cold]
    pub(super) fn lengths_differ(&self, dev: &Shared<A>) {
        if self.border.panicked.load(Relaxed) == 0 {
            self.note_bug(DriverBug::LengthChanged, 0, dev);
        }
    }
}
