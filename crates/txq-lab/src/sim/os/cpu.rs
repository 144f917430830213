//! A CPU: its task, its queue and its times.

use std::collections::VecDeque;

use crate::sim::cache::NONE;
use crate::sim::machine::Picos;

/// What a CPU is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Idle,
    Busy,
    Spinning,
}

/// Time that a CPU, or all CPUs together, spent by mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuUse {
    /// A task worked.
    pub busy: Picos,
    /// A task waited for a line to be written.
    pub spinning: Picos,
    /// The CPU had no task.
    pub idle: Picos,
}

pub(crate) struct Cpu {
    /// The task that has it.
    pub(super) current: u32,
    /// The tasks that wait for it.
    pub(super) ready: VecDeque<u32>,
    /// Number of tasks that yielded it while they wait for a line.
    pub(super) yielded: u32,
    pub(super) slice_end: Picos,
    /// The event that ends the slice; 0 for none.
    pub(super) tick: u64,
    pub(super) tick_at: Picos,
    /// The task must give it up as soon as it can.
    pub(super) resched: bool,
    /// The last task that had it, interrupts apart, unless that task went to sleep.
    pub(super) last: u32,
    /// The task must give it up when it leaves the data plane.
    pub(super) pending: bool,
    pub(super) mode: Mode,
    /// Its time is accounted up to this point, which may be in the future while a wake-up is under way.
    pub(super) since: Picos,
    /// Its mode before that point.
    pub(super) did: Mode,
    pub(super) used: CpuUse,
    /// The part of `used` that is accounted to tasks.
    pub(super) charged: CpuUse,
}

impl CpuUse {
    pub(super) fn of(&mut self, mode: Mode) -> &mut Picos {
        match mode {
            Mode::Idle => &mut self.idle,
            Mode::Busy => &mut self.busy,
            Mode::Spinning => &mut self.spinning,
        }
    }
}

impl Cpu {
    pub(crate) fn new() -> Self {
        Self {
            current: NONE,
            ready: VecDeque::new(),
            yielded: 0,
            slice_end: 0,
            tick: 0,
            tick_at: 0,
            resched: false,
            pending: false,
            last: NONE,
            mode: Mode::Idle,
            since: 0,
            did: Mode::Idle,
            used: CpuUse::default(),
            charged: CpuUse::default(),
        }
    }
}
