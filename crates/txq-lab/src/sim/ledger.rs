//! Where a task's time goes: by phase, and by cause.
//!
//! The data plane announces each phase ([`txq_core::arch::Arch::spend`]). All time until the next announcement belongs to that
//! phase: work, transfers of lines, and waits for other tasks.

use serde::Serialize;
use txq_core::arch::Work;

use crate::sim::machine::Picos;

/// The phase of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The task's own work: before a call of the data plane, or apart from it.
    Private,
    /// Allocates buffers.
    Alloc,
    /// Steers a packet and takes it to its queue; or a worker goes to a queue.
    Xmit,
    /// Enqueues to the qdisc.
    Enqueue,
    /// Dequeues from the qdisc.
    Dequeue,
    /// Calls the driver.
    Drive,
    /// Takes completions from the driver.
    Reap,
    /// Frees buffers.
    Free,
}

impl Phase {
    /// All phases, in the order in which a packet meets them.
    pub const ALL: [Self; 8] = [
        Self::Private,
        Self::Alloc,
        Self::Xmit,
        Self::Enqueue,
        Self::Dequeue,
        Self::Drive,
        Self::Reap,
        Self::Free,
    ];

    /// Returns the phase's name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Private => "private work",
            Self::Alloc => "alloc",
            Self::Xmit => "xmit",
            Self::Enqueue => "enqueue",
            Self::Dequeue => "dequeue",
            Self::Drive => "driver",
            Self::Reap => "reap",
            Self::Free => "free",
        }
    }

    pub(crate) fn of(work: Work) -> Self {
        match work {
            Work::Alloc(_) => Self::Alloc,
            Work::Free(_) => Self::Free,
            Work::Xmit | Work::Run => Self::Xmit,
            Work::Enqueue(_) | Work::Drop(_) => Self::Enqueue,
            Work::Dequeue(_) => Self::Dequeue,
            Work::Drive(_) => Self::Drive,
            Work::Reap(_) => Self::Reap,
        }
    }
}

/// A task's time by cause, in picoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Spent {
    /// Instructions, and hits of lines.
    pub work: Picos,
    /// Transfers of lines from other caches or from memory.
    pub lines: Picos,
    /// Waits for a lock, or for another word that another task must write, with the CPU or without.
    pub waits: Picos,
}

impl Spent {
    /// Returns the sum.
    pub fn total(&self) -> Picos {
        self.work + self.lines + self.waits
    }

    /// Adds other times.
    #[inline]
    pub(crate) fn add(&mut self, other: &Self) {
        self.work += other.work;
        self.lines += other.lines;
        self.waits += other.waits;
    }
}

/// A task's time by phase and cause, without its sleep and its waits for a CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Ledger([Spent; Phase::ALL.len()]);

impl Ledger {
    /// Returns the time of a phase.
    pub fn of(&self, phase: Phase) -> &Spent {
        &self.0[phase as usize]
    }

    #[inline]
    pub(crate) fn at(&mut self, phase: Phase) -> &mut Spent {
        &mut self.0[phase as usize]
    }

    /// Returns the time of all phases together.
    pub fn total(&self) -> Spent {
        self.0.iter().fold(Spent::default(), |sum, s| Spent {
            work: sum.work + s.work,
            lines: sum.lines + s.lines,
            waits: sum.waits + s.waits,
        })
    }

    /// Adds another task's times.
    pub fn add(&mut self, other: &Ledger) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            mine.add(theirs);
        }
    }

    /// Returns the times added since `before`.
    pub fn since(&self, before: &Ledger) -> Ledger {
        let mut now = *self;
        for (mine, then) in now.0.iter_mut().zip(&before.0) {
            mine.work -= then.work;
            mine.lines -= then.lines;
            mine.waits -= then.waits;
        }
        now
    }
}
