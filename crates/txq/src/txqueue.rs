//! A txq: one ring of the device, its tx lock, its stop and its wake (the kernel's `netdev_queue`).
//!
//! The txq itself counts the packets that the device keeps, so it knows when the ring is full and stops before the driver
//! would have to refuse. Whoever reaps completions wakes it.
//!
//! Stop and wake must not miss each other. The transmitter stores the stop and then looks for room; the completer stores
//! the room and then looks for a stop. Each is a store before a load of the other's word, so each has a full fence
//! between: [`TxQueue::stop`] and [`TxQueue::reap`], which pair. Without one of them both may look before either is seen,
//! and the queue stops for ever.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic, Nanos};
use crate::ctx::Ctx;
use crate::driver::{Complete, DriverQueue, Status, Transmit, TxCx};
use crate::drop::DropCounts;
use crate::netdev::Shared;
use crate::packet::PacketList;
use crate::stats::latency::Latency;
use crate::sync::spinlock::SpinLock;

/// The ring is full (`__QUEUE_STATE_DRV_XOFF`).
const XOFF: u32 = 1;
/// Completions reaped at a time (`NAPI_POLL_WEIGHT`).
const REAP: usize = 64;
/// When nothing tells when to try again, nanoseconds.
const RETRY: Nanos = 50_000;

mod replace;

pub(crate) struct TxQueue<A: Arch> {
    pub(crate) index: u16,
    /// Packets that the device keeps at most; `u32::MAX` when it keeps none and so never runs out of room. Written under
    /// both locks, when the driver is replaced, and so is `inline`.
    ring: A::AtomicU32,
    /// 1 where whoever sends may reap.
    inline: A::AtomicU32,
    state: CachePadded<A::AtomicU32>,
    /// Packets the device has taken to keep, wrapping. Written under the tx lock.
    issued: CachePadded<A::AtomicU32>,
    /// Packets of those that it gave back, wrapping. Written under the completion lock.
    completed: CachePadded<A::AtomicU32>,
    tx: CachePadded<SpinLock<A, TxSide<A>>>,
    done: CachePadded<SpinLock<A, DoneSide<A>>>,
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
}

/// What a driver returned from its ring. It is counted also if the driver panics, and somebody looks again then.
struct Polled<'d, A: Arch> {
    txq: &'d TxQueue<A>,
    dev: &'d Shared<A>,
    done: &'d mut PacketList<A>,
}

impl<A: Arch> Drop for Polled<'_, A> {
    #[inline]
    fn drop(&mut self) {
        if !self.done.is_empty() {
            let completed = self.txq.completed.load(Relaxed).wrapping_add(self.done.len() as u32);
            self.txq.completed.store(completed, Release);
        }
        if std::thread::panicking() {
            self.dev.sched_of(self.txq.index).reap(self.txq.index);
        }
    }
}

/// The calling thread, while it is in a driver.
struct InDriver<A: Arch> {
    /// Other drivers that it is in already.
    before: u32,
    arch: std::marker::PhantomData<A>,
}

impl<A: Arch> InDriver<A> {
    #[inline]
    fn enter<R>(f: impl FnOnce() -> R) -> R {
        let before = A::in_driver(|depth| depth.replace(depth.get() + 1));
        let _in_driver = Self { before, arch: std::marker::PhantomData };
        f()
    }
}

impl<A: Arch> Drop for InDriver<A> {
    #[inline]
    fn drop(&mut self) {
        A::in_driver(|depth| depth.set(self.before));
    }
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
    pub(crate) fn new(index: u16, queue: DriverQueue<A>) -> Self {
        let ring = queue.ring.unwrap_or(u32::MAX);
        let inline = queue.done.inline();
        let tx = TxSide {
            driver: queue.tx,
            counters: TxCounters::default(),
            to_driver: Latency::new(),
            to_completion: Latency::new(),
            stamps: Vec::new(),
            given: 0,
        };
        Self {
            index,
            ring: A::AtomicU32::new(ring),
            inline: A::AtomicU32::new(inline.into()),
            state: CachePadded::new(A::AtomicU32::new(0)),
            issued: CachePadded::new(A::AtomicU32::new(0)),
            completed: CachePadded::new(A::AtomicU32::new(0)),
            tx: CachePadded::new(SpinLock::new(tx)),
            done: CachePadded::new(SpinLock::new(DoneSide {
                driver: queue.done,
                to_completion: Latency::new(),
            })),
        }
    }

    /// Whether it is stopped (`netif_xmit_stopped`).
    #[inline]
    pub(crate) fn stopped(&self) -> bool {
        // Acquire: who sees the wake also sees the room.
        self.state.load(Acquire) & XOFF != 0
    }

    /// Packets that the device keeps now.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        // A completion may be counted before the transmitter has counted the packet: below zero is none.
        let completed = self.completed.load(Acquire);
        let n = self.issued.load(Acquire).wrapping_sub(completed);
        if n > i32::MAX as u32 { 0 } else { n }
    }

    /// Packets that it takes now.
    #[inline]
    pub(crate) fn room(&self) -> u32 {
        let ring = self.ring.load(Relaxed);
        if ring == u32::MAX { u32::MAX } else { ring.saturating_sub(self.in_flight()) }
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
        self.tx.with(|held| {
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
            let mut tx = TxCx::new(&mut cx.clock, &mut done, &mut dropped);
            status = InDriver::<A>::enter(|| side.driver.start_xmit(batch, &mut tx));
            if !rest.is_empty() {
                batch.append(&mut rest);
                status = Status::Busy { retry: None };
            }
            let taken = packets - batch.len();
            side.record_stamps(taken, done.stamped());
            let kept = taken - done.len() - dropped.len();
            if kept > 0 {
                let issued = self.issued.load(Relaxed).wrapping_add(kept as u32);
                self.issued.store(issued, Release);
            }
            side.counters.batches += 1;
            side.counters.packets += (taken - dropped.len()) as u64;
            side.counters.bytes += bytes - batch.bytes() - dropped.bytes();
            side.counters.dropped += dropped.len() as u64;
            if self.room() == 0 || (status == Status::Busy { retry: None } && self.in_flight() > 0) {
                side.counters.stops += 1;
                self.stop();
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

    /// Stops the txq, unless room has come back meanwhile.
    fn stop(&self) {
        self.state.fetch_or(XOFF, Relaxed);
        // Store XOFF before load `completed`: pairs with the fence in `reap`.
        A::fence(SeqCst);
        if self.room() >= self.wake_at() {
            self.state.fetch_and(!XOFF, Relaxed);
        }
    }

    /// Reaps what is complete if whoever sends may, and leaves the rest to the worker. Comes after
    /// [`transmit`](TxQueue::transmit), when what became of the batch is known.
    #[inline]
    pub(crate) fn reap_or_leave(&self, cx: &mut Ctx<'_, A>) {
        if self.in_flight() == 0 {
            return;
        }
        if self.inline.load(Relaxed) != 0 {
            self.reap(cx);
        }
        if self.in_flight() > 0 {
            cx.dev.sched_of(self.index).reap(self.index);
        }
    }

    /// Takes what is complete from the device, wakes the txq if that makes room, and frees the buffers. Returns when
    /// to look again, if the driver knows.
    pub(crate) fn reap(&self, cx: &mut Ctx<'_, A>) -> Option<Nanos> {
        let mut done = PacketList::new();
        let next = self.done.try_with(|held| {
            let side = held.data();
            let polled = Polled { txq: self, dev: cx.dev, done: &mut done };
            let next = side.driver.poll(REAP, polled.done, &mut cx.clock);
            if polled.done.stamped() {
                let now = A::now();
                side.to_completion.record_all(polled.done, now);
            }
            next
        });
        if !done.is_empty() || self.stopped() {
            // Store `completed` before load XOFF: pairs with the fence in `stop`.
            A::fence(SeqCst);
            if self.stopped()
                && self.room() >= self.wake_at()
                && self.state.fetch_and(!XOFF, Release) & XOFF != 0
            {
                cx.dev.schedule(cx.dev.root_of(self.index));
            }
        }
        if !done.is_empty() {
            let full = done.len() == REAP;
            cx.cache.free(&mut done);
            if full {
                // There may be more that is complete already.
                return Some(0);
            }
        }
        next.flatten()
    }

    /// Ends the transmission: the driver writes out what it has.
    pub(crate) fn finish(&self) -> std::io::Result<()> {
        self.tx.with(|held| held.data().driver.finish())
    }

    pub(crate) fn counters(&self) -> TxCounters {
        self.tx.with(|held| held.data().counters)
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
