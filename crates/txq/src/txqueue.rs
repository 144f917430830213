//! A txq: one ring of the device, its tx lock, its stop and its wake (the kernel's `netdev_queue`). Where one queue alone
//! feeds the txq, that queue's owner needs no lock here ([`seat`]).
//!
//! The txq itself counts the packets that the device keeps, so it knows when the ring is full and stops before the driver
//! would have to refuse (`DRV_XOFF`). It also counts their bytes, and stops when they are more than the byte queue limit
//! (`STACK_XOFF`, [`crate::bql`]). Whoever reaps completions wakes it (`reap`).
//!
//! Stop and wake must not miss each other. The transmitter stores the stop and then looks for room; the completer
//! stores the room and then looks for a stop. Each is a store before a load of the other's word, so each has a full
//! fence between: [`TxQueue::stop`] and [`TxQueue::reap`], which pair, for the ring and for the bytes. Without one of
//! them both may look before either is seen, and the queue stops for ever. Where transmitter and completer are the same
//! owner ([`seat`], inline completions) neither can miss the other, and there is no fence.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic, Nanos};
use crate::bql::{self, Attr, BqlConfig, BqlError, BqlState};
use crate::driver::{Complete, DriverQueue, Transmit};
use crate::qdisc::Budget;
use crate::stats::latency::Latency;
use crate::sync::contention::{Lock, Recorded};
use crate::sync::spinlock::SpinLock;

mod border;
mod completions;
mod counters;
mod defer;
mod pass;
mod reap;
mod replace;
mod seat;
mod transmit;
mod watchdog;

use border::Border;
pub(crate) use border::DriverBugHook;
pub use border::{DriverBug, DriverBugEvent};
pub use completions::Completions;
use counters::Counters;
pub use counters::TxCounters;
use defer::Deferred;
use seat::{Access, Seat};
pub(crate) use transmit::Transmitted;
pub use watchdog::TxTimeout;
use watchdog::Watched;
pub(crate) use watchdog::{TimeoutHook, Watchdog};

/// The ring is full, or the driver waits for a completion (`__QUEUE_STATE_DRV_XOFF`).
const DRV_XOFF: u32 = 1;
/// The bytes in flight are more than the limit (`__QUEUE_STATE_STACK_XOFF`).
const STACK_XOFF: u32 = 2;
/// Completions reaped at a time (`NAPI_POLL_WEIGHT`).
const REAP: usize = 64;
/// Nobody reaps but the worker: the driver wants it so.
const NOBODY: u32 = 0;
/// An owner that finds the txq stopped reaps.
const OWNERS: u32 = 1;
/// And so does each sender after a batch.
const SENDERS: u32 = 2;
/// When nothing tells when to try again, nanoseconds.
const RETRY: Nanos = 50_000;
/// The longest time after which a refused batch is tried again, whatever the driver says, in nanoseconds.
const LONGEST_RETRY: Nanos = 1_000_000_000;

pub(crate) struct TxQueue<A: Arch> {
    pub(crate) index: u16,
    /// Packets that the device keeps at most; `u32::MAX` when it keeps none and so never runs out of room. Written under
    /// both locks, when the driver is replaced, and so is `inline`.
    ring: A::AtomicU32,
    /// Who may reap beside the worker: [`NOBODY`], [`OWNERS`] or [`SENDERS`].
    inline: A::AtomicU32,
    /// Whether senders reap where the driver lets them.
    senders_reap: bool,
    /// Whether bytes are limited.
    bql: bool,
    /// Whether a lone sender may leave completions to its next calls (`defer`).
    defers: bool,
    /// Which root's ownership stands for the locks.
    seat: Seat<A>,
    /// The schedule of the worker that reaps, among the device's.
    reaper: usize,
    state: CachePadded<A::AtomicU32>,
    issued: CachePadded<Issued<A>>,
    completed: CachePadded<Completed<A>>,
    tx: CachePadded<SpinLock<A, TxSide<A>>>,
    done: CachePadded<SpinLock<A, DoneSide<A>>>,
    border: Box<Border<A>>,
    /// Written by the transmitter alone, read by anybody.
    counters: CachePadded<Counters<A>>,
    /// The watchdog's, for the worker that reaps.
    watched: SpinLock<A, Watched>,
    deferred: CachePadded<Deferred<A>>,
}

/// What the device has taken to keep. Written under the tx lock.
struct Issued<A: Arch> {
    /// Packets, wrapping.
    packets: A::AtomicU32,
    bytes: bql::Producer<A>,
}

/// What of it the device has given back. Written under the completion lock.
struct Completed<A: Arch> {
    /// Packets, wrapping.
    packets: A::AtomicU32,
    /// Bytes that the transmitter may issue in all, wrapping.
    adj_limit: A::AtomicU32,
}

/// How a txq is set up.
pub(crate) struct Setup {
    /// Whether senders reap where the driver lets them.
    pub(crate) inline: bool,
    /// Whether a lone sender may leave completions to its next calls.
    pub(crate) defers: bool,
    /// The schedule of the worker that reaps.
    pub(crate) reaper: usize,
    /// Limits of the bytes in flight, where the device keeps packets.
    pub(crate) bql: Option<BqlConfig>,
    /// The time.
    pub(crate) now: Nanos,
}

/// What the tx lock guards, or the seat.
pub(crate) struct TxSide<A: Arch> {
    driver: Box<dyn Transmit<A>>,
    /// From xmit to the driver, and on to completion where the driver keeps nothing.
    to_driver: Latency,
    to_completion: Latency,
    /// The place in the batch and the time of each packet whose latency is sampled.
    stamps: Vec<(usize, Nanos)>,
    /// When the driver was given the batch, if any of it is sampled.
    given: Nanos,
    /// Packets that calls took that panicked: on the device's ring, which may return them, or gone.
    unsure: u32,
}

/// What the completion lock guards, or the seat where completions are inline.
pub(crate) struct DoneSide<A: Arch> {
    driver: Box<dyn Complete<A>>,
    to_completion: Latency,
    /// Where bytes are limited.
    bql: Option<bql::Consumer>,
    /// Reaps in a row by the queue's owner that left nothing in the device (`defer`).
    prompt: u32,
}

/// Who may reap beside the worker, by what the device's builder asked for and what the driver allows.
fn reapers(asked: bool, allowed: bool) -> u32 {
    match (asked, allowed) {
        (_, false) => NOBODY,
        (false, true) => OWNERS,
        (true, true) => SENDERS,
    }
}

impl<A: Arch> TxQueue<A> {
    pub(crate) fn new(index: u16, queue: DriverQueue<A>, setup: &Setup) -> Self {
        let ring = queue.ring.unwrap_or(u32::MAX);
        let inline = reapers(setup.inline, queue.done.inline());
        let config = setup.bql.filter(|_| queue.ring.is_some() && queue.done.bql());
        let issued = Issued { packets: A::AtomicU32::new(0), bytes: bql::Producer::new() };
        let completed = Completed { packets: A::AtomicU32::new(0), adj_limit: A::AtomicU32::new(0) };
        A::name(&*queue.tx, "driver: ring");
        A::name(&*queue.done, "driver: completions");
        let bql =
            config.map(|config| bql::Consumer::new(&config, &issued.bytes, &completed.adj_limit, setup.now));
        let tx = TxSide {
            driver: queue.tx,
            to_driver: Latency::new(),
            to_completion: Latency::new(),
            stamps: Vec::new(),
            given: 0,
            unsure: 0,
        };
        let done = DoneSide { driver: queue.done, to_completion: Latency::new(), bql, prompt: 0 };
        Self {
            index,
            ring: A::AtomicU32::new(ring),
            inline: A::AtomicU32::new(inline),
            senders_reap: setup.inline,
            bql: config.is_some(),
            defers: setup.defers && config.is_none(),
            seat: Seat::new(),
            reaper: setup.reaper,
            state: CachePadded::new(A::AtomicU32::new(0)),
            issued: CachePadded::new(issued),
            completed: CachePadded::new(completed),
            tx: CachePadded::new(SpinLock::new(tx)),
            done: CachePadded::new(SpinLock::new(done)),
            border: Box::new(Border::new()),
            counters: CachePadded::new(Counters::new()),
            watched: SpinLock::new(Watched::default()),
            deferred: CachePadded::new(Deferred::new()),
        }
    }

    /// Names its lines ([`Arch::name`]).
    pub(crate) fn name_lines(&self) {
        A::name(self, "txq: ring and who reaps");
        A::name(&self.state, "txq: whether it is stopped");
        A::name(&self.issued, "BQL: what was issued");
        A::name(&self.completed, "BQL: what has completed");
        A::name(&self.counters, "driver: counters");
        A::name(&self.deferred, "txq: completions left to later calls");
        self.tx.name_lines("tx lock", "driver: counters");
        self.done.name_lines("completion lock", "driver: counters");
    }

    /// Whether it is stopped (`netif_xmit_stopped`).
    #[inline]
    pub(crate) fn stopped(&self) -> bool {
        // Acquire: a thread that sees the wake also sees the room; pairs with the exchange in `wake`.
        self.state.load(Acquire) != 0
    }

    /// Packets that the device keeps now.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        // A completion may be counted before the transmitter has counted the packet: below zero is none.
        let completed = self.completed.packets.load(Acquire);
        let n = self.issued.packets.load(Acquire).wrapping_sub(completed);
        if n > i32::MAX as u32 { 0 } else { n }
    }

    /// Packets that it takes now.
    #[inline]
    pub(crate) fn room(&self) -> u32 {
        let ring = self.ring.load(Relaxed);
        if ring == u32::MAX { u32::MAX } else { ring.saturating_sub(self.in_flight()) }
    }

    /// Bytes that may be in flight beside those that are; below zero when there are too many.
    #[inline]
    fn avail(&self) -> i32 {
        if self.bql { self.issued.bytes.avail(&self.completed.adj_limit) } else { i32::MAX }
    }

    /// What it takes now of up to `quota` packets (`qdisc_avail_bulklimit`).
    #[inline]
    pub(crate) fn budget(&self, quota: usize) -> Budget {
        let bytes = if self.bql { self.avail().max(0) as u64 } else { u64::MAX };
        Budget::new(quota.min(self.room() as usize), bytes)
    }

    /// Room that wakes it when it is stopped: enough for a batch to be worth it.
    fn wake_at(&self) -> u32 {
        (self.ring.load(Relaxed) / 4).clamp(1, REAP as u32)
    }

    /// Stops the txq for these reasons, except for those that have gone meanwhile.
    fn stop(&self, root: usize, reasons: u32) {
        if self.reaped_by() == Some(root) {
            // The caller itself reaps next, and nobody else writes the state.
            return self.state.store(self.state.load(Relaxed) | reasons, Relaxed);
        }
        // Release: what was issued, to the thread that wakes the txq; pairs with the load in `wake`.
        self.state.fetch_or(reasons, Release);
        // Store XOFF before load `completed` and `adj_limit`: pairs with the fence in `reap`.
        A::fence(SeqCst);
        let gone = self.gone(reasons);
        if gone != 0 {
            self.state.fetch_and(!gone, Relaxed);
        }
    }

    /// Which of these reasons to be stopped do not hold any more.
    fn gone(&self, reasons: u32) -> u32 {
        let mut gone = 0;
        if reasons & DRV_XOFF != 0 && self.room() >= self.wake_at() {
            gone |= DRV_XOFF;
        }
        if reasons & STACK_XOFF != 0 && self.avail() >= 0 {
            gone |= STACK_XOFF;
        }
        gone
    }

    /// Calls `f` with each lock, for its record.
    pub(crate) fn locks(&self, f: &mut dyn FnMut(Lock, &dyn Recorded)) {
        f(Lock::Tx, &*self.tx);
        f(Lock::Completion, &*self.done);
    }

    pub(crate) fn counters(&self) -> TxCounters {
        let tx_timeout = self.watched.with(|held| held.data().tx_timeout);
        let (driver_bugs, invented) = self.border.counts();
        TxCounters { tx_timeout, driver_bugs, invented, ..self.counters.get() }
    }

    /// Whether bytes are limited.
    pub(crate) fn has_bql(&self) -> bool {
        self.bql
    }

    /// The byte queue limits, where there are some.
    pub(crate) fn bql(&self, done: &DoneSide<A>) -> Option<BqlState> {
        done.bql.as_ref().map(|bql| bql.state(&self.issued.bytes))
    }

    /// Writes a file of the byte queue limits; `None` where there are none.
    pub(crate) fn set_bql(
        &self,
        done: &mut DoneSide<A>,
        attr: Attr,
        text: &str,
    ) -> Option<Result<(), BqlError>> {
        done.bql.as_mut().map(|bql| bql.set(&self.issued.bytes, attr, text))
    }
}

impl<A: Arch> DoneSide<A> {
    /// Adds the latency from xmit to completion.
    pub(crate) fn add_latency(&self, to_completion: &mut Latency) {
        to_completion.merge(&self.to_completion);
    }
}
