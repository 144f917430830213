//! What a CPU does, and for whom.

use std::collections::VecDeque;

use crate::cache::NONE;
use crate::machine::Picos;

/// What a CPU does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Idle,
    Busy,
    Spinning,
}

/// What a CPU, or all, did for how long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuUse {
    /// A task worked.
    pub busy: Picos,
    /// A task waited for a line to be written.
    pub spinning: Picos,
    /// There was no task.
    pub idle: Picos,
}

pub(crate) struct Cpu {
    /// The task that has it.
    pub(super) current: u32,
    /// Those that wait for it.
    pub(super) ready: VecDeque<u32>,
    /// Tasks that gave it away while they wait for a line.
    pub(super) yielded: u32,
    pub(super) slice_end: Picos,
    /// The event that ends the slice, 0 for none.
    pub(super) tick: u64,
    pub(super) tick_at: Picos,
    /// The task shall give it away as soon as it can.
    pub(super) resched: bool,
    /// The task that had it last, interrupts apart, if it did not go to sleep.
    pub(super) last: u32,
    /// It shall do so when it leaves the data plane.
    pub(super) pending: bool,
    pub(super) mode: Mode,
    /// What it did is counted until then, which may be a time to come: a wake-up that is under way.
    pub(super) since: Picos,
    /// What it did last before that.
    pub(super) did: Mode,
    pub(super) used: CpuUse,
    /// What of it tasks were charged for.
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
