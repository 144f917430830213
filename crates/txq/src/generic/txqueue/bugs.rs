//! Rules that drivers break, and a txq's record of them (`transfer/border.rs` finds them).

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

use txq_core::arch::{Arch, Atomic};

#[cfg(doc)]
use crate::generic::driver::{Status, Transmit};

/// A rule that a driver has broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DriverBug {
    /// A call of [`Transmit::start_xmit`] left, sent and dropped more packets than it was given.
    Invented,
    /// A call of [`Transmit::start_xmit`] returned [`Status::Ok`] and left packets in the batch.
    LeftBehind,
    /// The driver keeps packets, and [`DriverQueue::ring`](crate::generic::driver::DriverQueue::ring) is `None`.
    KeptWithoutRing,
    /// [`Complete::poll`](crate::generic::driver::Complete::poll) returned packets that the device did not keep.
    NeverKept,
    /// [`Complete::poll`](crate::generic::driver::Complete::poll) returned more packets than its budget.
    OverBudget,
    /// [`Complete::poll`](crate::generic::driver::Complete::poll) returned packets of other lengths than the device was given.
    LengthChanged,
}

impl DriverBug {
    /// All rules, in the order of their numbers.
    pub const ALL: &'static [DriverBug] = &[
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
#[non_exhaustive]
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

/// The record of a driver's bugs on a txq, and of the packets that it hands on. While there is none, only `unreported` is accessed:
/// the worker reads it at each reap. All accesses are relaxed: counters, and a report that the schedule's bit orders.
pub(crate) struct Border<A: Arch> {
    /// Calls that broke each rule, by [`DriverBug`]. Incremented by the thread that finds the bug, read by all.
    pub(crate) calls: [A::AtomicU64; DriverBug::ALL.len()],
    /// Packets that were invented. Written and read as `calls`.
    pub(crate) invented: A::AtomicU64,
    /// Packets that the driver handed on, which the counters of its packets have as well. Written and read as `calls`. Not
    /// on the transmitter's line, which has no place left.
    pub(crate) handed_on: A::AtomicU64,
    /// A bit for each rule that was broken and is not yet reported. Set by the thread that finds the bug, taken by the
    /// worker.
    pub(crate) unreported: A::AtomicU32,
    /// 1 once a panic has ended a call of `start_xmit`: the bytes in flight are no longer known. Set by the thread that
    /// panics, read by the transmitter and the completer.
    pub(crate) panicked: A::AtomicU32,
    /// For a txq without a ring whose driver keeps packets: the count of completed packets at the worker's last poll. Only
    /// that worker accesses this and `in_vain`.
    pub(crate) completed: A::AtomicU32,
    /// Polls in vain since then, up to [`DOUBLINGS`].
    pub(crate) in_vain: A::AtomicU32,
}

impl<A: Arch> Border<A> {
    pub(crate) fn new() -> Self {
        Self {
            calls: std::array::from_fn(|_| A::AtomicU64::new(0)),
            invented: A::AtomicU64::new(0),
            handed_on: A::AtomicU64::new(0),
            unreported: A::AtomicU32::new(0),
            panicked: A::AtomicU32::new(0),
            completed: A::AtomicU32::new(0),
            in_vain: A::AtomicU32::new(0),
        }
    }

    /// Returns the number of calls that broke a rule, and of invented packets.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.calls.iter().map(|calls| calls.load(Relaxed)).sum(), self.invented.load(Relaxed))
    }
}
