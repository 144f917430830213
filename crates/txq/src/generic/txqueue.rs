//! A txq: one ring of the device, with its tx lock, its stop and its wake (the kernel's `netdev_queue`). If one queue alone
//! feeds the txq, that queue's owner takes no lock here ([`seat`]).
//!
//! The txq counts the packets that the device keeps. So it knows when the ring is full, and stops before the driver would
//! refuse packets (`DRV_XOFF`). It also counts their bytes, and stops when they exceed the byte queue limit (`STACK_XOFF`,
//! [`crate::generic::bql`]). The thread that reaps completions wakes it (`reap`).
//!
//! Two sides share a txq: the *transmitter* gives packets to the driver, the *completer* takes completed packets back.
//! [`TxQueue::state`] documents how a stop by the one and a wake by the other never miss each other.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crossbeam_utils::CachePadded;

use txq_core::arch::{Arch, Atomic, Nanos};
use txq_core::stats::contention::Lock;
use txq_core::stats::latency::Latency;
use txq_core::sync::contention::Recorded;
use txq_core::sync::spinlock::SpinLock;
use txq_sched::generic::qdisc::Budget;

use crate::generic::bql::{self, Attr, BqlConfig, BqlError, BqlState};
use crate::generic::driver::{Complete, DriverQueue, Transmit};

mod bugs;
mod completions;
mod counters;
mod deferred;
mod seat;
pub(crate) mod watchdog;

pub(crate) use bugs::{Border, DriverBugHook};
pub use bugs::{DriverBug, DriverBugEvent};
pub use completions::Completions;
use counters::Counters;
pub use counters::TxCounters;
pub(crate) use deferred::{DEFERRING, Deferred, UNWATCHED, WATCHED};
pub(crate) use seat::Access;
use seat::Seat;
pub use watchdog::TxTimeout;
use watchdog::Watched;
pub(crate) use watchdog::{TimeoutHook, Watchdog};

/// The txq is stopped: the ring is full, or the driver waits for a completion (`__QUEUE_STATE_DRV_XOFF`).
pub(crate) const DRV_XOFF: u32 = 1;
/// The txq is stopped: the bytes in flight exceed the limit (`__QUEUE_STATE_STACK_XOFF`).
pub(crate) const STACK_XOFF: u32 = 2;
/// Completions reaped at a time (`NAPI_POLL_WEIGHT`).
pub(crate) const REAP: usize = 64;
/// Only the worker reaps, as the driver requires.
pub(crate) const NOBODY: u32 = 0;
/// The worker reaps, and so does an owner that finds the txq stopped.
pub(crate) const OWNERS: u32 = 1;
/// As [`OWNERS`], and each sender reaps after a batch.
pub(crate) const SENDERS: u32 = 2;
/// Bound on the delay that a driver asks for, in nanoseconds.
pub(crate) const LONGEST_RETRY: Nanos = 1_000_000_000;

pub(crate) struct TxQueue<A: Arch> {
    pub(crate) index: u16,
    /// Packets that the device can keep; `u32::MAX` if it keeps none and so never runs out of room. Written by the thread
    /// that replaces the driver, with both halves; read by all (Relaxed: the hand-over of the halves orders it).
    pub(crate) ring: A::AtomicU32,
    /// Which threads beside the worker may reap: [`NOBODY`], [`OWNERS`] or [`SENDERS`]. Written and read as `ring`.
    pub(crate) inline: A::AtomicU32,
    /// Whether senders reap where the driver lets them.
    pub(crate) senders_reap: bool,
    /// Whether the txq has a byte queue limit.
    pub(crate) bql: bool,
    /// Whether a lone sender may leave completions to its next calls (`transfer/defer.rs`).
    pub(crate) defers: bool,
    /// The root whose ownership replaces the locks.
    pub(crate) seat: Seat<A>,
    /// Index of the schedule of the worker that reaps, among the device's.
    pub(crate) reaper: usize,
    /// The reasons for which the txq is stopped: [`DRV_XOFF`], [`STACK_XOFF`], both, or 0 if it is open.
    ///
    /// The transmitter sets reasons ([`TxQueue::stop`], Release: the issued packets, to the thread that wakes the txq). The
    /// completer clears them when there is room ([`TxQueue::wake`], Release: the completed packets, to the transmitter that
    /// finds the txq open); so do the transmitter, if there is room by then, and the thread that replaces the driver. Read
    /// by all ([`TxQueue::stopped`], Acquire).
    ///
    /// A stop and a wake must not miss each other. The transmitter sets a reason here and then loads the room (`completed`,
    /// `adj_limit`); the completer stores the room and then loads this word. The SeqCst fences between these steps, in
    /// [`TxQueue::stop`] and `TxQueue::reap_with_lock`, pair, for the ring and for the bytes. Without either fence each side
    /// may miss the other's store, and the txq stays stopped for ever. If transmitter and completer are the same owner
    /// ([`seat`], inline completions), neither can miss the other, and there is no fence.
    pub(crate) state: CachePadded<A::AtomicU32>,
    pub(crate) issued: CachePadded<Issued<A>>,
    pub(crate) completed: CachePadded<Completed<A>>,
    pub(crate) tx: CachePadded<SpinLock<A, TxSide<A>>>,
    pub(crate) done: CachePadded<SpinLock<A, DoneSide<A>>>,
    pub(crate) border: Box<Border<A>>,
    /// The watchdog's state, used by the worker that reaps.
    pub(crate) watched: SpinLock<A, Watched>,
    pub(crate) deferred: CachePadded<Deferred<A>>,
}

/// Counts what the driver was given. Written by the owner of the transmitting half.
///
/// The fields lie in this order: all that a packet writes is on the first line.
#[repr(C)]
pub(crate) struct Issued<A: Arch> {
    /// Packets that the device has kept, wrapping. Written by the transmitter (Release), read by all (Acquire; Relaxed by the
    /// writer, the worker's watch, and a sender that checks whether it is alone).
    pub(crate) packets: A::AtomicU32,
    /// The count of packets at which a sender reaps again (`reap_or_leave`). Written and read by the transmitter. Relaxed: no
    /// other data depends on it.
    pub(crate) reap_at: A::AtomicU32,
    pub(crate) counters: Counters<A>,
    pub(crate) bytes: bql::Producer<A>,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    use txq_core::arch::Native;
    let bytes = std::mem::offset_of!(Issued<Native>, bytes);
    assert!(bytes + bql::Producer::<Native>::WRITTEN <= 64, "a packet writes one line");
};

/// Counts the packets and bytes that the device has given back. Written by the owner of the completing half.
pub(crate) struct Completed<A: Arch> {
    /// Packets, wrapping. Written by the completer (Release), read by all (Acquire; Relaxed by the writer and the worker's
    /// watch). The device keeps `issued` less `completed` packets; a completion may be counted before the transmitter has
    /// counted the packet, so the difference may be negative for a moment.
    pub(crate) packets: A::AtomicU32,
    /// Bytes that the transmitter may issue in all, wrapping. Written by the completer, read by all. Relaxed.
    pub(crate) adj_limit: A::AtomicU32,
}

/// The settings of a txq.
pub(crate) struct Setup {
    /// Whether senders reap where the driver lets them.
    pub(crate) inline: bool,
    /// Whether a lone sender may leave completions to its next calls.
    pub(crate) defers: bool,
    /// Index of the schedule of the worker that reaps.
    pub(crate) reaper: usize,
    /// Limits of the bytes in flight, for devices that keep packets.
    pub(crate) bql: Option<BqlConfig>,
    /// The current time.
    pub(crate) now: Nanos,
}

/// The transmitting half, guarded by the tx lock or the seat.
pub(crate) struct TxSide<A: Arch> {
    pub(crate) driver: Box<dyn Transmit<A>>,
    /// Latency from xmit to the driver.
    pub(crate) to_driver: Latency,
    /// Latency from xmit to completion, of packets that the driver does not keep.
    pub(crate) to_completion: Latency,
    /// Position in the batch and xmit time of each packet whose latency is sampled.
    pub(crate) stamps: Vec<(usize, Nanos)>,
    /// When the driver got the batch, if any of its packets is sampled.
    pub(crate) given: Nanos,
    /// Packets taken by driver calls that panicked: they are on the device's ring and may complete, or are gone.
    pub(crate) unsure: u32,
    /// Bytes by which the driver has lengthened packets that it then refused: not counted when these are sent.
    pub(crate) grown: u64,
}

/// The completing half, guarded by the completion lock, or by the seat if completions are inline.
///
/// The fields lie in this order: those that each reap writes are together.
#[repr(C)]
pub(crate) struct DoneSide<A: Arch> {
    pub(crate) driver: Box<dyn Complete<A>>,
    /// Whether the last reap by the queue's owner left no packet in the device (`transfer/defer.rs`).
    pub(crate) is_prompt: bool,
    /// `None` if the txq has no byte queue limit.
    pub(crate) bql: Option<bql::Consumer>,
    pub(crate) to_completion: Latency,
}

/// Returns which threads beside the worker may reap, by the builder's setting and the driver's permission.
pub(crate) fn reapers(asked: bool, allowed: bool) -> u32 {
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
        let [packets, reap_at] = [(); 2].map(|()| A::AtomicU32::new(0));
        let issued = Issued { packets, reap_at, counters: Counters::new(), bytes: bql::Producer::new() };
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
            grown: 0,
        };
        let done = DoneSide { driver: queue.done, is_prompt: false, bql, to_completion: Latency::new() };
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
            watched: SpinLock::new(Watched::default()),
            deferred: CachePadded::new(Deferred::new()),
        }
    }

    /// Names its lines ([`Arch::name`]).
    pub(crate) fn name_lines(&self) {
        A::name(self, "txq: ring and who reaps");
        A::name(&self.state, "txq: whether it is stopped");
        A::name(&self.issued, "BQL and driver: what was issued");
        A::name(&self.completed, "BQL: what has completed");
        A::name(&self.deferred, "txq: completions left to later calls");
        self.tx.name_lines("tx lock", "driver: counters");
        self.done.name_lines("completion lock", "driver: counters");
    }

    /// Whether the txq is stopped (`netif_xmit_stopped`).
    #[inline]
    pub(crate) fn stopped(&self) -> bool {
        // Acquire: a thread that sees the wake also sees the room; pairs with the `fetch_and` in `wake`.
        self.state.load(Acquire) != 0
    }

    /// Returns the packets that the driver has taken and not dropped.
    pub(crate) fn tx_packets(&self) -> u64 {
        self.issued.counters.packets()
    }

    /// Returns the number of packets that the device keeps now.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        // A completion may be counted before the transmitter has counted the packet: a negative difference means none.
        let completed = self.completed.packets.load(Acquire);
        let n = self.issued.packets.load(Acquire).wrapping_sub(completed);
        if n > i32::MAX as u32 { 0 } else { n }
    }

    /// Returns the number of packets that the ring has room for; `u32::MAX` if the device keeps none.
    #[inline]
    pub(crate) fn room(&self) -> u32 {
        let ring = self.ring.load(Relaxed);
        if ring == u32::MAX { u32::MAX } else { ring.saturating_sub(self.in_flight()) }
    }

    /// Returns how many more bytes may be in flight; negative if the limit is exceeded.
    #[inline]
    pub(crate) fn avail(&self) -> i32 {
        if self.bql { self.issued.bytes.avail(&self.completed.adj_limit) } else { i32::MAX }
    }

    /// Returns how much of up to `quota` packets the txq takes now, in packets and bytes (`qdisc_avail_bulklimit`); at least one
    /// packet.
    #[inline]
    pub(crate) fn budget(&self, quota: usize) -> Budget {
        let bytes = if self.bql { self.avail().max(0) as u64 } else { u64::MAX };
        Budget::new(quota.min(self.room() as usize), bytes)
    }

    /// Returns the room that wakes a stopped txq, in packets: enough for a worthwhile batch.
    pub(crate) fn wake_at(&self) -> u32 {
        (self.ring.load(Relaxed) / 4).clamp(1, REAP as u32)
    }

    /// Stops the txq for these reasons, except for those that no longer hold. `root` is the queue for which the caller is in
    /// the driver.
    ///
    /// The check for reasons that no longer hold saves the worker's poll: without it, `reap_or_leave`, which the caller calls
    /// next, would make the worker open the txq.
    pub(crate) fn stop(&self, root: usize, reasons: u32) {
        if self.reaped_by() == Some(root) {
            // The caller alone reaps and alone writes the state.
            return self.state.store(self.state.load(Relaxed) | reasons, Relaxed);
        }
        // Release: the issued packets, to the thread that wakes the txq; pairs with the load in `wake`.
        self.state.fetch_or(reasons, Release);
        // Orders the store of XOFF before the loads of `completed` and `adj_limit`. Pairs with the fence in
        // `reap_with_lock`.
        A::fence(SeqCst);
        let gone = self.gone(reasons);
        if gone != 0 {
            self.state.fetch_and(!gone, Relaxed);
        }
    }

    /// Returns which of these reasons no longer hold.
    pub(crate) fn gone(&self, reasons: u32) -> u32 {
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
        let handed_on = self.border.handed_on.load(Relaxed);
        TxCounters { tx_timeout, driver_bugs, invented, handed_on, ..self.issued.counters.get() }
    }

    /// Whether bytes are limited.
    pub(crate) fn has_bql(&self) -> bool {
        self.bql
    }

    /// Returns the state of the byte queue limit; `None` if there is none.
    pub(crate) fn bql(&self, done: &DoneSide<A>) -> Option<BqlState> {
        done.bql.as_ref().map(|bql| bql.state(&self.issued.bytes))
    }

    /// Writes a file of the byte queue limit; returns `None` if there is none.
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
