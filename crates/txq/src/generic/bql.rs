//! Byte queue limits (BQL): keep as few bytes in the device as it needs to stay busy.
//!
//! A packet that waits in the device's ring is beyond the qdisc's reach: a more urgent packet cannot overtake it, and the
//! qdisc cannot drop it when the queue grows. So the bytes that a txq's device keeps are limited, below the capacity of its
//! ring. When the limit is exceeded, the txq stops (`STACK_XOFF`). The completion that brings the bytes back within the
//! limit wakes it. The limit adapts to the completions (`dql`).
//!
//! The transmitter counts the bytes that it gives to the driver, under the tx lock. The completer counts the bytes that come
//! back and adapts the limit, under the completion lock. Each writes its own words, which the other reads. They lie beside
//! the numbers of packets that the same side writes in any case, so no further cache line moves between CPUs. Stopping and
//! waking are the txq's ([`crate::generic::driver`], `txqueue`).
//!
//! Bytes are counted before the driver is called, so that no completion precedes its count. Bytes that the driver did not
//! keep are subtracted afterwards.
//!
//! The kernel's counterparts are `netdev_tx_sent_queue`, `netdev_tx_completed_queue` and `struct dql`. Differences: a jiffy
//! is 4 ms, whatever the local kernel uses; the object of `slack_last` is the last packet of a batch; all packets that are
//! complete at a time are one completion, in however many portions the driver reports them; and a limit that is too low for
//! a device whose completions come late is found by trial (`probe`).

mod attr;
mod dql;
mod jiffies;
mod probe;
mod stall;

pub use attr::{Attr, BqlError, ErrorKind};

use std::sync::atomic::Ordering::Relaxed;

use txq_core::arch::{Arch, Atomic, Nanos};
use txq_core::clock::Clock;

use self::dql::{Dql, MAX_LIMIT, Queued};
use self::jiffies::Jiffies;
use self::probe::Probe;
use self::stall::{History, Stalls};

/// The initial settings of a txq's byte queue limits; the defaults are the kernel's. Each has the unit of its file in sysfs.
/// Write `..BqlConfig::default()` last: a later version may have more settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BqlConfig {
    /// The first limit, in bytes; 0 by default. The algorithm changes it.
    pub limit: u32,
    /// The smallest limit, in bytes; 0 by default.
    pub limit_min: u32,
    /// The largest limit, in bytes; by default 1879048192, the largest value allowed.
    pub limit_max: u32,
    /// How long slack must last before the limit shrinks by it, in milliseconds, rounded up to jiffies of 4; 1000 by
    /// default.
    pub hold_time: u32,
    /// How long completions stay away before that is a stall, in milliseconds, rounded up to jiffies of 4: 13 to 512, or 0,
    /// the default, for no stall detection.
    pub stall_thrs: u32,
}

impl Default for BqlConfig {
    fn default() -> Self {
        Self { limit: 0, limit_min: 0, limit_max: MAX_LIMIT, hold_time: 1000, stall_thrs: 0 }
    }
}

impl BqlConfig {
    /// Sets the value of the file `attr`, in the file's words: `"max"` is a limit.
    ///
    /// # Errors
    /// When the file does not accept the text, or is read only.
    pub fn set(&mut self, attr: Attr, text: &str) -> Result<(), BqlError> {
        let value = attr.parse(text)?;
        match attr {
            Attr::Limit => self.limit = value,
            Attr::LimitMin => self.limit_min = value,
            Attr::LimitMax => self.limit_max = value,
            Attr::HoldTime => self.hold_time = jiffies::to_ms(value),
            Attr::StallThrs => self.stall_thrs = jiffies::to_ms(value),
            Attr::StallMax | Attr::Inflight | Attr::StallCnt => {}
        }
        Ok(())
    }

    /// Returns an error for the first setting that its file would not accept.
    pub(crate) fn check(&self) -> Result<(), BqlError> {
        for (attr, value) in [
            (Attr::Limit, self.limit),
            (Attr::LimitMin, self.limit_min),
            (Attr::LimitMax, self.limit_max),
            (Attr::HoldTime, self.hold_time),
            (Attr::StallThrs, self.stall_thrs),
        ] {
            attr.parse(&value.to_string())?;
        }
        Ok(())
    }
}

/// A txq's byte queue limits at one moment: the values of the files, in their units.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BqlState {
    /// Bytes that may be in flight before the txq stops.
    pub limit: u32,
    /// The largest value of `limit`, in bytes.
    pub limit_max: u32,
    /// The smallest value of `limit`, in bytes.
    pub limit_min: u32,
    /// How long slack must last, in milliseconds.
    pub hold_time: u32,
    /// Bytes in flight.
    pub inflight: u32,
    /// How long completions stay away before that is a stall, in milliseconds; 0 for no stall detection.
    pub stall_thrs: u32,
    /// Stalls so far.
    pub stall_cnt: u32,
    /// The longest stall, in milliseconds.
    pub stall_max: u32,
    /// The bytes that the device needs because its completions come late, as found by trying a higher limit; 0 if the
    /// algorithm's own limit suffices.
    pub needed: u32,
    /// How many times as much was sent with those bytes as under the algorithm's own limit, in hundredths; 0 if none are
    /// needed.
    pub gain: u32,
}

impl BqlState {
    /// Returns the value of the file.
    pub fn get(&self, attr: Attr) -> u32 {
        match attr {
            Attr::Limit => self.limit,
            Attr::LimitMax => self.limit_max,
            Attr::LimitMin => self.limit_min,
            Attr::HoldTime => self.hold_time,
            Attr::Inflight => self.inflight,
            Attr::StallThrs => self.stall_thrs,
            Attr::StallCnt => self.stall_cnt,
            Attr::StallMax => self.stall_max,
        }
    }
}

/// The words of the transmitter, written under the tx lock or by the owner of the only queue of the txq. The fields lie in
/// this order: the history is not touched without stall detection.
#[repr(C)]
pub(crate) struct Producer<A: Arch> {
    /// Bytes given to the driver, wrapping (lower 32 bits), and the bytes of the last packet (upper 32 bits). Written by the
    /// transmitter, read by the completer. Relaxed: the completer gets the packets through the device, which orders their
    /// store before.
    queued: A::AtomicU64,
    /// The stall threshold in jiffies, 0 for no stall detection. Written by a control operation that excludes both sides,
    /// read by both sides (Relaxed).
    stall_thrs: A::AtomicU32,
    history: History<A>,
}

impl<A: Arch> Producer<A> {
    /// The bytes at the beginning of this that each packet reads or writes.
    pub(crate) const WRITTEN: usize = std::mem::offset_of!(Self, history);

    pub(crate) fn new() -> Self {
        Self { queued: A::AtomicU64::new(0), stall_thrs: A::AtomicU32::new(0), history: History::new() }
    }

    /// Counts the bytes of a batch before it goes to the driver; `bytes` include those of the last packet, `last`. When the
    /// returned value is dropped, the bytes that the driver did not keep are subtracted; all of them if the driver panics.
    #[inline]
    pub(crate) fn queued(&self, bytes: u32, last: u32, clock: &mut Clock<A>) -> Counted<'_, A> {
        self.set(Queued { num_queued: self.get().num_queued.wrapping_add(bytes), last_obj_cnt: last });
        if self.stall_thrs.load(Relaxed) != 0 {
            self.history.note(jiffies::at(clock.now()));
        }
        Counted { producer: self, not_kept: bytes }
    }

    /// Returns how many bytes may be given to the driver before the txq stops; below 0 if there are too many already. The
    /// completer writes `adj_limit`.
    #[inline]
    pub(crate) fn avail(&self, adj_limit: &A::AtomicU32) -> i32 {
        // Relaxed: an old value is as good here. Where it is not, the caller has a fence before (stop and wake).
        adj_limit.load(Relaxed).wrapping_sub(self.get().num_queued) as i32
    }

    #[inline]
    fn get(&self) -> Queued {
        let queued = self.queued.load(Relaxed);
        Queued { num_queued: queued as u32, last_obj_cnt: (queued >> 32) as u32 }
    }

    /// Relaxed: the thread that completes these packets gets them through the device, which orders this store before.
    #[inline]
    fn set(&self, queued: Queued) {
        self.queued.store(u64::from(queued.last_obj_cnt) << 32 | u64::from(queued.num_queued), Relaxed);
    }
}

/// Counted bytes that the driver may not keep.
pub(crate) struct Counted<'a, A: Arch> {
    producer: &'a Producer<A>,
    not_kept: u32,
}

impl<A: Arch> Counted<'_, A> {
    /// Records that the driver has kept `bytes` of them.
    #[inline]
    pub(crate) fn kept(mut self, bytes: u32) {
        self.not_kept -= bytes;
    }
}

impl<A: Arch> Drop for Counted<'_, A> {
    #[inline]
    fn drop(&mut self) {
        if self.not_kept > 0 {
            let queued = self.producer.get();
            let num_queued = queued.num_queued.wrapping_sub(self.not_kept);
            self.producer.set(Queued { num_queued, ..queued });
        }
    }
}

/// The state of the completer, which writes it under the completion lock. The same holds for `adj_limit`, the word that
/// tells the transmitter how far it may go.
///
/// The fields lie in this order, and the probe's: each completion writes the first lines.
#[repr(C)]
pub(crate) struct Consumer {
    dql: Dql,
    probe: Probe,
    stalls: Stalls,
}

impl Consumer {
    /// Creates the state with the settings of `config`, which are checked. Writes the words that the transmitter reads.
    pub(crate) fn new<A: Arch>(
        config: &BqlConfig,
        producer: &Producer<A>,
        adj_limit: &A::AtomicU32,
        now: Nanos,
    ) -> Self {
        let hold: Jiffies = jiffies::from_ms(config.hold_time).into();
        let now = jiffies::at(now);
        let dql = Dql::new(config.limit, config.limit_min, config.limit_max, hold, now);
        let mut stalls = Stalls::default();
        stalls.begin(now);
        producer.stall_thrs.store(jiffies::from_ms(config.stall_thrs), Relaxed);
        adj_limit.store(dql.adj_limit(), Relaxed);
        Self { dql, probe: Probe::new(), stalls }
    }

    /// Counts bytes as completed, adapts the limit, and publishes it in `adj_limit` for the transmitter.
    pub(crate) fn completed<A: Arch>(
        &mut self,
        bytes: u32,
        producer: &Producer<A>,
        adj_limit: &A::AtomicU32,
        clock: &mut Clock<A>,
    ) {
        if bytes == 0 {
            return;
        }
        let queued = producer.get();
        let blocked = self.dql.over_limit(queued.num_queued) > 0;
        self.dql.completed(bytes, queued, || jiffies::at(clock.now()));
        self.probe.completed(&mut self.dql, queued.num_queued, blocked, clock.now());
        adj_limit.store(self.dql.adj_limit(), Relaxed);
        let thrs = producer.stall_thrs.load(Relaxed);
        if thrs != 0 {
            self.stalls.completed(thrs, &producer.history, jiffies::at(clock.now()));
        }
    }

    /// Returns the bytes in flight.
    #[inline]
    pub(crate) fn in_flight<A: Arch>(&self, producer: &Producer<A>) -> u32 {
        dql::posdiff(producer.get().num_queued, self.dql.num_completed)
    }

    pub(crate) fn state<A: Arch>(&self, producer: &Producer<A>) -> BqlState {
        let Dql { limit, min_limit, max_limit, slack_hold_time, .. } = self.dql;
        let (needed, gain) = self.probe.gained();
        BqlState {
            limit,
            limit_max: max_limit,
            limit_min: min_limit,
            hold_time: jiffies::to_ms(slack_hold_time as u32),
            inflight: self.in_flight(producer),
            stall_thrs: jiffies::to_ms(producer.stall_thrs.load(Relaxed)),
            stall_cnt: self.stalls.count,
            stall_max: jiffies::to_ms(self.stalls.max),
            needed,
            gain,
        }
    }

    /// Writes a file. A limit takes effect at the next completion.
    pub(crate) fn set<A: Arch>(
        &mut self,
        producer: &Producer<A>,
        attr: Attr,
        text: &str,
    ) -> Result<(), BqlError> {
        let value = attr.parse(text)?;
        match attr {
            Attr::Limit => self.dql.limit = value,
            Attr::LimitMin => self.dql.min_limit = value,
            Attr::LimitMax => self.dql.max_limit = value,
            Attr::HoldTime => self.dql.slack_hold_time = value.into(),
            Attr::StallThrs => {
                if producer.stall_thrs.load(Relaxed) == 0 {
                    self.stalls.begin(jiffies::at(A::now()));
                }
                producer.stall_thrs.store(value, Relaxed);
            }
            Attr::StallMax => self.stalls.max = 0,
            Attr::Inflight | Attr::StallCnt => {}
        }
        if matches!(attr, Attr::Limit | Attr::LimitMin | Attr::LimitMax) {
            self.probe.reset(&mut self.dql);
        }
        Ok(())
    }
}
