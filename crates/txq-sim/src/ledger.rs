//! Where a task's time goes: by what it was doing, and by what took the time.
//!
//! The data plane says what it begins ([`txq::arch::Arch::spend`]); all that follows until it says the next thing belongs to
//! that: the work itself, the lines that had to come, and the waits for others.

use serde::Serialize;
use txq::arch::Work;

use crate::machine::Picos;

/// What a task is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// What is its own: before a packet is handed in, or where it does nothing for the data plane.
    Private,
    /// Buffers are allocated.
    Alloc,
    /// A packet is steered, and brought to its queue; or a worker goes to a queue.
    Xmit,
    /// Into the qdisc.
    Enqueue,
    /// Out of the qdisc.
    Dequeue,
    /// In the driver, and back.
    Drive,
    /// Completions are taken from the driver.
    Reap,
    /// Buffers are freed.
    Free,
}

impl Phase {
    /// All of them, in a packet's order.
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

    /// Its name in reports.
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
            Work::Enqueue(_) => Self::Enqueue,
            Work::Dequeue(_) => Self::Dequeue,
            Work::Drive(_) => Self::Drive,
            Work::Reap(_) => Self::Reap,
        }
    }
}

/// What took a task's time, in picoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Spent {
    /// Instructions, and lines that the core had.
    pub work: Picos,
    /// Lines that had to come from elsewhere.
    pub lines: Picos,
    /// A lock, or another word that somebody else had to write, with the CPU or without.
    pub waits: Picos,
}

impl Spent {
    /// All of it.
    pub fn total(&self) -> Picos {
        self.work + self.lines + self.waits
    }
}

/// Where a task's time went, sleep and the wait for a CPU apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Ledger([Spent; Phase::ALL.len()]);

impl Ledger {
    /// What a phase took.
    pub fn of(&self, phase: Phase) -> &Spent {
        &self.0[phase as usize]
    }

    #[inline]
    pub(crate) fn at(&mut self, phase: Phase) -> &mut Spent {
        &mut self.0[phase as usize]
    }

    /// All phases together.
    pub fn total(&self) -> Spent {
        self.0.iter().fold(Spent::default(), |sum, s| Spent {
            work: sum.work + s.work,
            lines: sum.lines + s.lines,
            waits: sum.waits + s.waits,
        })
    }

    /// Adds another task's.
    pub fn add(&mut self, other: &Ledger) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            mine.work += theirs.work;
            mine.lines += theirs.lines;
            mine.waits += theirs.waits;
        }
    }

    /// What has been added since `before`.
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
