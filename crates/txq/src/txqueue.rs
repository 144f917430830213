//! A txq: one ring of the device, its tx lock, its stop and its wake (the kernel's `netdev_queue`).
//!
//! The txq itself counts the packets that the device keeps, so it knows when the ring is full and stops before the driver
//! would have to refuse (`DRV_XOFF`). It also counts their bytes, and stops when they are more than the byte queue limit
//! (`STACK_XOFF`, [`crate::bql`]). Whoever reaps completions wakes it (`reap`).
//!
//! Stop and wake must not miss each other. The transmitter stores the stop and then looks for room; the completer
//! stores the room and then looks for a stop. Each is a store before a load of the other's word, so each has a full
//! fence between: [`TxQueue::stop`] and [`TxQueue::reap`], which pair, for the ring and for the bytes. Without one of
//! them both may look before either is seen, and the queue stops for ever.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic, Memory, Nanos, Work};
use crate::bql::{self, Attr, BqlConfig, BqlError, BqlState};
use crate::ctx::Ctx;
use crate::driver::{Complete, DriverQueue, Status, Transmit, TxCx};
use crate::drop::DropCounts;
use crate::packet::PacketList;
use crate::qdisc::Budget;
use crate::stats::latency::Latency;
use crate::sync::contention::{Lock, Recorded, Site};
use crate::sync::spinlock::SpinLock;

mod completions;
mod reap;
mod replace;
mod watchdog;

pub use completions::Completions;
use watchdog::Standstill;
pub use watchdog::TxTimeout;
pub(crate) use watchdog::{TimeoutHook, Watchdog};

/// The ring is full, or the driver waits for a completion (`__QUEUE_STATE_DRV_XOFF`).
const DRV_XOFF: u32 = 1;
/// The bytes in flight are more than the limit (`__QUEUE_STATE_STACK_XOFF`).
const STACK_XOFF: u32 = 2;
/// Completions reaped at a time (`NAPI_POLL_WEIGHT`).
const REAP: usize = 64;
/// When nothing tells when to try again, nanoseconds.
const RETRY: Nanos = 50_000;

pub(crate) struct TxQueue<A: Arch> {
    pub(crate) index: u16,
    /// Packets that the device keeps at most; `u32::MAX` when it keeps none and so never runs out of room. Written under
    /// both locks, when the driver is replaced, and so is `inline`.
    ring: A::AtomicU32,
    /// 1 where whoever sends may reap.
    inline: A::AtomicU32,
    /// Whether bytes are limited.
    bql: bool,
    /// The schedule of the worker that reaps, among the device's.
    reaper: usize,
    state: CachePadded<A::AtomicU32>,
    issued: CachePadded<Issued<A>>,
    completed: CachePadded<Completed<A>>,
    tx: CachePadded<SpinLock<A, TxSide<A>>>,
    done: CachePadded<SpinLock<A, DoneSide<A>>>,
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
    /// The schedule of the worker that reaps.
    pub(crate) reaper: usize,
    /// Limits of the bytes in flight, where the device keeps packets.
    pub(crate) bql: Option<BqlConfig>,
    /// The time.
    pub(crate) now: Nanos,
}

/// What the tx lock guards.
struct TxSide<A: Arch> {
    driver: Box<dyn Transmit<A>>,
    counters: TxCounters,
    /// From xmit to the driver, and on to completion where the driver keeps nothing.
    to_driver: Latency,
    to_completion: Latency,
    /// The place in the batch and the time of each packet whose latency is sampled.
    stamps: Vec<(usize, Nanos)>,
    /// When the driver was given the batch, if any of it is sampled.
    given: Nanos,
}

/// What the completion lock guards.
struct DoneSide<A: Arch> {
    driver: Box<dyn Complete<A>>,
    to_completion: Latency,
    /// Where bytes are limited.
    bql: Option<bql::Consumer>,
    /// The txq, found stopped by the watchdog.
    standstill: Option<Standstill>,
    tx_timeout: u64,
}

/// A txq's counters (`netdev_queue`'s share of `rtnl_link_stats64`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TxCounters {
    /// Packets that the driver took and did not drop; a GSO packet is one.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Calls of the driver.
    pub batches: u64,
    /// Packets that the driver dropped.
    pub dropped: u64,
    /// Times that the txq was stopped.
    pub stops: u64,
    /// Times that it was stopped for too long (`tx_timeout`), each period counted.
    pub tx_timeout: u64,
}

/// What became of a batch, beside what is left in it.
#[derive(Clone, Copy)]
pub(crate) struct Transmitted {
    /// Packets that the driver took and did not drop.
    pub(crate) packets: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// When to try again, if the wake of the txq will not tell.
    pub(crate) retry: Option<Nanos>,
}

impl<A: Arch> TxQueue<A> {
    pub(crate) fn new(index: u16, queue: DriverQueue<A>, setup: &Setup) -> Self {
        let ring = queue.ring.unwrap_or(u32::MAX);
        let inline = setup.inline && queue.done.inline();
        let config = setup.bql.filter(|_| queue.ring.is_some() && queue.done.bql());
        let issued = Issued { packets: A::AtomicU32::new(0), bytes: bql::Producer::new() };
        let completed = Completed { packets: A::AtomicU32::new(0), adj_limit: A::AtomicU32::new(0) };
        A::name(&*queue.tx, "driver: ring");
        A::name(&*queue.done, "driver: completions");
        let bql =
            config.map(|config| bql::Consumer::new(&config, &issued.bytes, &completed.adj_limit, setup.now));
        let tx = TxSide {
            driver: queue.tx,
            counters: TxCounters::default(),
            to_driver: Latency::new(),
            to_completion: Latency::new(),
            stamps: Vec::new(),
            given: 0,
        };
        let done = DoneSide {
            driver: queue.done,
            to_completion: Latency::new(),
            bql,
            standstill: None,
            tx_timeout: 0,
        };
        Self {
            index,
            ring: A::AtomicU32::new(ring),
            inline: A::AtomicU32::new(inline.into()),
            bql: config.is_some(),
            reaper: setup.reaper,
            state: CachePadded::new(A::AtomicU32::new(0)),
            issued: CachePadded::new(issued),
            completed: CachePadded::new(completed),
            tx: CachePadded::new(SpinLock::new(tx)),
            done: CachePadded::new(SpinLock::new(done)),
        }
    }

    /// Names its lines ([`Arch::name`]).
    pub(crate) fn name_lines(&self) {
        A::name(self, "txq: ring and who reaps");
        A::name(&self.state, "txq: whether it is stopped");
        A::name(&self.issued, "BQL: what was issued");
        A::name(&self.completed, "BQL: what has completed");
        self.tx.name_lines("tx lock", "driver: counters");
        self.done.name_lines("completion lock", "driver: counters");
    }

    /// Whether it is stopped (`netif_xmit_stopped`).
    #[inline]
    pub(crate) fn stopped(&self) -> bool {
        // Acquire: who sees the wake also sees the room.
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

    /// Hands a batch to the driver under the tx lock (`dev_hard_start_xmit`). What the driver
    /// refuses stays in the batch; what it drops is counted in `drops`.
    pub(crate) fn transmit(
        &self,
        batch: &mut PacketList<A>,
        cx: &mut Ctx<'_, A>,
        drops: &mut DropCounts,
    ) -> Transmitted {
        let (packets, bytes) = (batch.len(), batch.bytes());
        let (mut done, mut dropped) = (PacketList::new(), PacketList::new());
        let mut status = Status::Busy { retry: None };
        self.tx.with_at(Site::Driver, |held| {
            let side = held.data();
            if self.stopped() {
                return;
            }
            // As many as were dequeued had room, unless the driver is another since.
            let room = self.room() as usize;
            let mut rest = PacketList::new();
            if room < packets {
                std::mem::swap(batch, &mut rest);
                rest.move_front(room, batch);
            }
            side.note_stamps(batch);
            let counted = self.bql.then(|| {
                let last = batch.back().map_or(0, |packet| packet.len());
                self.issued.bytes.queued(batch.bytes() as u32, last as u32, &mut cx.clock)
            });
            let mut tx = TxCx::new(&mut cx.clock, &mut done, &mut dropped);
            A::spend(|| Work::Drive(batch.len()));
            A::touch(|| &*side.driver, Memory::Driver);
            status = side.driver.start_xmit(batch, &mut tx);
            if !rest.is_empty() {
                batch.append(&mut rest);
                status = Status::Busy { retry: None };
            }
            let taken = packets - batch.len();
            side.record_stamps(taken, done.stamped());
            let kept = taken - done.len() - dropped.len();
            if kept > 0 {
                let issued = self.issued.packets.load(Relaxed).wrapping_add(kept as u32);
                self.issued.packets.store(issued, Release);
            }
            if let Some(counted) = counted {
                // None where nothing is kept, though the driver may have changed the length of what it sent.
                let others = batch.bytes() + done.bytes() + dropped.bytes();
                counted.kept(if kept > 0 { bytes.saturating_sub(others) as u32 } else { 0 });
            }
            side.counters.batches += 1;
            side.counters.packets += (taken - dropped.len()) as u64;
            side.counters.bytes += bytes - batch.bytes() - dropped.bytes();
            side.counters.dropped += dropped.len() as u64;
            let full = self.room() == 0 || (status == Status::Busy { retry: None } && self.in_flight() > 0);
            let stop = if full { DRV_XOFF } else { 0 } | if self.avail() < 0 { STACK_XOFF } else { 0 };
            if stop != 0 {
                side.counters.stops += 1;
                self.stop(stop);
            }
        });
        let sent = Transmitted {
            packets: (packets - batch.len() - dropped.len()) as u64,
            bytes: bytes - batch.bytes() - dropped.bytes(),
            retry: match status {
                Status::Busy { retry: Some(after) } => Some(after),
                // Refused, nothing on the ring that could complete, and not stopped: only time helps.
                Status::Busy { retry: None } if !self.stopped() => Some(RETRY),
                _ => None,
            },
        };
        if !done.is_empty() {
            cx.cache.free(&mut done);
        }
        if !dropped.is_empty() {
            dropped.iter().for_each(|p| drops.add(p.drop_reason(), 1));
            cx.cache.free(&mut dropped);
        }
        sent
    }

    /// Stops the txq for these reasons, except for those that have gone meanwhile.
    fn stop(&self, reasons: u32) {
        self.state.fetch_or(reasons, Relaxed);
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

    /// Ends the transmission: the driver writes out what it has.
    pub(crate) fn finish(&self) -> std::io::Result<()> {
        self.tx.with(|held| held.data().driver.finish())
    }

    /// Calls `f` with each lock, for its record.
    pub(crate) fn locks(&self, f: &mut dyn FnMut(Lock, &dyn Recorded)) {
        f(Lock::Tx, &*self.tx);
        f(Lock::Completion, &*self.done);
    }

    pub(crate) fn counters(&self) -> TxCounters {
        let counters = self.tx.with(|held| held.data().counters);
        TxCounters { tx_timeout: self.done.with(|held| held.data().tx_timeout), ..counters }
    }

    /// The byte queue limits, where there are some.
    pub(crate) fn bql(&self) -> Option<BqlState> {
        self.done.with(|held| held.data().bql.as_ref().map(|bql| bql.state(&self.issued.bytes)))
    }

    /// Writes a file of the byte queue limits; `None` where there are none.
    pub(crate) fn set_bql(&self, attr: Attr, text: &str) -> Option<Result<(), BqlError>> {
        self.done.with(|held| held.data().bql.as_mut().map(|bql| bql.set(&self.issued.bytes, attr, text)))
    }

    /// Adds this txq's latencies: from xmit to the driver, and to completion.
    pub(crate) fn add_latency(&self, to_driver: &mut Latency, to_completion: &mut Latency) {
        self.tx.with(|held| {
            to_driver.merge(&held.data().to_driver);
            to_completion.merge(&held.data().to_completion);
        });
        self.done.with(|held| to_completion.merge(&held.data().to_completion));
    }
}

impl<A: Arch> TxSide<A> {
    /// Remembers which packets are sampled, for after the call they may be gone.
    fn note_stamps(&mut self, batch: &PacketList<A>) {
        self.stamps.clear();
        if batch.stamped() {
            let stamped = batch.iter().enumerate().filter(|(_, p)| p.stamp() != 0);
            self.stamps.extend(stamped.map(|(i, p)| (i, p.stamp())));
            self.given = A::now();
        }
    }

    fn record_stamps(&mut self, taken: usize, done: bool) {
        if self.stamps.is_empty() {
            return;
        }
        let now = if done { A::now() } else { 0 };
        for &(_, at) in self.stamps.iter().filter(|(i, _)| *i < taken) {
            self.to_driver.record(self.given.saturating_sub(at));
            if done {
                self.to_completion.record(now.saturating_sub(at));
            }
        }
    }
}
