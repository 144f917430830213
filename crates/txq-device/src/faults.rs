//! A wrapper that makes a driver misbehave, within what a driver may do, so that tests meet rare events often.
//!
//! It refuses batches or their ends, refuses everything for a while, drops packets, and returns completions late and in
//! another order. In every case each packet is sent, dropped, refused, or completed: conservation holds.
//!
//! Its faults are drawn from its own random numbers (SplitMix64), seeded by a seed, the txq and the half: the same calls
//! with the same batches meet the same faults. Times are the clock's, so under a virtual clock the whole run repeats.
//!
//! | option | unit | default | |
//! |---|---|---|---|
//! | `driver`, `seed` of [`Faults::new`] | | none | the driver, and the seed of the random numbers |
//! | [`busy`](Rates::busy) | probability, each call | 0 | the batch is refused from a random packet on |
//! | [`stall`](Rates::stall) | probability, each call | 0 | this call and all others are refused for `stall_time` |
//! | [`stall_time`](Rates::stall_time) | time | 0 | |
//! | [`drop`](Rates::drop) | probability, each packet | 0 | the packet is dropped ([`DropReason::NoMem`]) |
//! | [`delay`](Rates::delay) | probability, each completion | 0 | the completion is returned up to `delay_time` late |
//! | [`delay_time`](Rates::delay_time) | time | 0 | |
//! | [`reorder`](Rates::reorder) | probability, each completion | 0 | the completion overtakes others that wait |
//!
//! A probability is from 0 to 1: below counts as 0, above as 1. There are no errors but the driver's, which pass through.
//!
//! ```
//! use std::time::Duration;
//! use txq::NetDev;
//! use txq::drop::DropReason;
//! use txq_device::faults::Rates;
//! use txq_device::{Faults, Null};
//!
//! let delay_time = Duration::from_micros(100);
//! let rates = Rates { busy: 0.2, drop: 0.1, delay: 0.5, delay_time, ..Rates::default() };
//! let dev = NetDev::builder(Faults::new(Null::new(1), 42, rates)).qdisc("pfifo limit 1000").start()?;
//! let mut sender = dev.sender("main");
//! for _ in 0..1000 {
//!     let packet = sender.packet(&[0; 60])?;
//!     let _verdict = sender.xmit(packet);
//! }
//! assert!(dev.drain(Duration::from_secs(10)));
//! let stats = dev.audit()?;
//! assert_eq!(stats.sent + stats.dropped.get(DropReason::NoMem), 1000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use txq::Instant;
use txq::driver::{Clock, Complete, DeviceInfo, Driver, DriverQueue, Status, Transmit, TxCx};
use txq::drop::DropReason;
use txq::packet::{Packet, PacketList};

/// Rates of the faults: probabilities from 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Rates {
    /// A call refuses its batch from a random packet on (`NETDEV_TX_BUSY`); half of these refusals say when to try again.
    pub busy: f64,
    /// A call begins a stall: that call and all others are refused for [`Rates::stall_time`].
    pub stall: f64,
    /// Length of a stall.
    pub stall_time: Duration,
    /// A packet is dropped ([`DropReason::NoMem`]).
    pub drop: f64,
    /// A completion is returned up to [`Rates::delay_time`] late. Only for devices that keep packets.
    pub delay: f64,
    /// The longest delay.
    pub delay_time: Duration,
    /// A completion overtakes others that wait. Only for devices that keep packets.
    pub reorder: f64,
}

/// A driver with faults.
#[derive(Debug, Clone)]
pub struct Faults<D> {
    driver: D,
    seed: u64,
    rates: Rates,
}

impl<D> Faults<D> {
    /// Adds faults at these rates to `driver`, decided by `seed`.
    pub fn new(driver: D, seed: u64, rates: Rates) -> Self {
        Self { driver, seed, rates }
    }
}

impl<D: Driver> Driver for Faults<D> {
    fn info(&self) -> DeviceInfo {
        self.driver.info()
    }

    fn pacing_horizon(&self) -> Duration {
        self.driver.pacing_horizon()
    }

    fn open(&mut self, txq: u16) -> io::Result<DriverQueue> {
        let (tx, done, ring) = self.driver.open(txq)?.into_parts();
        let random = |half: u64| Random(self.seed ^ (u64::from(txq) << 1 | half).wrapping_mul(GOLDEN));
        let tx = Tx { inner: tx, random: random(0), rates: self.rates, stalled_until: Instant::ZERO };
        let done = Done { inner: done, random: random(1), rates: self.rates, held: VecDeque::new() };
        Ok(DriverQueue::new(tx, done).ring(ring))
    }
}

/// 2^64 divided by the golden ratio, SplitMix64's step.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// The longest retry time of a refused batch, in nanoseconds.
const LONGEST_RETRY: u64 = 50_000;

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`, which is not 0. The bias of the remainder does not matter for faults.
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn happens(&mut self, probability: f64) -> bool {
        ((self.next() >> 11) as f64) < probability * (1_u64 << 53) as f64
    }
}

struct Tx {
    inner: Box<dyn Transmit>,
    random: Random,
    rates: Rates,
    stalled_until: Instant,
}

impl Tx {
    /// Returns how long the current stall still lasts, or `None`; may begin a stall.
    fn stall(&mut self, now: Instant) -> Option<Duration> {
        if now >= self.stalled_until && self.random.happens(self.rates.stall) {
            self.stalled_until = now + self.rates.stall_time;
        }
        (now < self.stalled_until).then(|| self.stalled_until - now)
    }

    fn drop_some(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) {
        for _ in 0..batch.len() {
            let packet = batch.pop_front().expect("len packets");
            if self.random.happens(self.rates.drop) {
                cx.drop(packet, DropReason::NoMem);
            } else {
                batch.push_back(packet);
            }
        }
    }
}

impl Transmit for Tx {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        if let Some(left) = self.stall(cx.now()) {
            return Status::Busy { retry: Some(left) };
        }
        if self.rates.drop > 0.0 {
            self.drop_some(batch, cx);
        }
        if batch.is_empty() || !self.random.happens(self.rates.busy) {
            return if batch.is_empty() { Status::Ok } else { self.inner.start_xmit(batch, cx) };
        }
        let mut head = PacketList::new();
        batch.move_front(self.random.below(batch.len() as u64) as usize, &mut head);
        let retry =
            self.random.happens(0.5).then(|| Duration::from_nanos(1 + self.random.below(LONGEST_RETRY)));
        let inner = if head.is_empty() { Status::Ok } else { self.inner.start_xmit(&mut head, cx) };
        head.append(batch);
        *batch = head;
        match inner {
            Status::Ok => Status::Busy { retry },
            busy => busy,
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.inner.finish()
    }
}

struct Done {
    inner: Box<dyn Complete>,
    random: Random,
    rates: Rates,
    /// Completed packets not yet returned, with the earliest time of each.
    held: VecDeque<(Instant, Packet)>,
}

impl Complete for Done {
    fn poll(&mut self, budget: usize, done: &mut PacketList, clock: &mut Clock) -> Option<Instant> {
        let mut complete = PacketList::new();
        let mut next = self.inner.poll(budget, &mut complete, clock);
        while let Some(packet) = complete.pop_front() {
            let longest = u64::try_from(self.rates.delay_time.as_nanos()).unwrap_or(u64::MAX);
            let is_late = self.random.happens(self.rates.delay) && longest > 0;
            let mut at = Instant::ZERO;
            if is_late {
                at = clock.now() + Duration::from_nanos(self.random.below(longest).saturating_add(1));
            }
            let place = match self.random.happens(self.rates.reorder) {
                true => self.random.below(self.held.len() as u64 + 1) as usize,
                false => self.held.len(),
            };
            self.held.insert(place, (at, packet));
        }
        let mut given = 0;
        for _ in 0..self.held.len() {
            let (at, packet) = self.held.pop_front().expect("len packets");
            if given < budget && (at == Instant::ZERO || at <= clock.now()) {
                given += 1;
                done.push_back(packet);
            } else {
                next = Some(next.map_or(at, |n| n.min(at)));
                self.held.push_back((at, packet));
            }
        }
        next
    }

    fn inline(&self) -> bool {
        self.inner.inline()
    }

    fn bql(&self) -> bool {
        self.inner.bql()
    }
}

#[cfg(test)]
mod tests;
