//! A txq's counters, which any thread may read while the transmitter counts.

use std::sync::atomic::Ordering::Relaxed;

use txq_core::arch::{Arch, Atomic};

/// A txq's counters (`netdev_queue`'s share of `rtnl_link_stats64`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TxCounters {
    /// Packets that the driver took and did not drop; a GSO packet is one.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of these packets, those that the driver handed on to another device ([`TxCx::hand_on`](crate::driver::TxCx::hand_on)).
    pub handed_on: u64,
    /// Calls of the driver.
    pub batches: u64,
    /// Packets that the driver dropped.
    pub dropped: u64,
    /// Times that the txq was stopped.
    pub stops: u64,
    /// Times that it was stopped for too long (`tx_timeout`), each period counted.
    pub tx_timeout: u64,
    /// Calls in which the driver broke a rule ([`DriverBug`](super::DriverBug)).
    pub driver_bugs: u64,
    /// Packets that the driver handed back and was never given. They are freed, and part of no other sum.
    pub invented: u64,
}

/// The same counters as written by the transmitter and read by all. One thread at a time writes them, so an addition is a
/// load and a store. Relaxed: a reader needs the number alone.
pub(crate) struct Counters<A: Arch> {
    packets: A::AtomicU64,
    bytes: A::AtomicU64,
    batches: A::AtomicU64,
    dropped: A::AtomicU64,
    stops: A::AtomicU64,
}

/// Adds to a counter. The caller is its only writer.
#[inline]
fn add<A: Arch>(counter: &A::AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

impl<A: Arch> Counters<A> {
    pub(crate) fn new() -> Self {
        let [packets, bytes, batches, dropped, stops] = [(); 5].map(|()| A::AtomicU64::new(0));
        Self { packets, bytes, batches, dropped, stops }
    }

    /// Counts a call of the driver.
    #[inline]
    pub(crate) fn add(&self, packets: u64, bytes: u64, dropped: u64) {
        add::<A>(&self.batches, 1);
        add::<A>(&self.packets, packets);
        add::<A>(&self.bytes, bytes);
        if dropped > 0 {
            add::<A>(&self.dropped, dropped);
        }
    }

    /// Counts that the txq was stopped.
    pub(crate) fn add_stop(&self) {
        add::<A>(&self.stops, 1);
    }

    pub(crate) fn packets(&self) -> u64 {
        self.packets.load(Relaxed)
    }

    pub(crate) fn get(&self) -> TxCounters {
        TxCounters {
            packets: self.packets(),
            bytes: self.bytes.load(Relaxed),
            batches: self.batches.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
            stops: self.stops.load(Relaxed),
            ..TxCounters::default()
        }
    }
}
