//! Accounts the time of each CPU and each task.

use super::{CpuUse, Mode};
use crate::cache::NONE;
use crate::engine::Engine;
use crate::ledger::Phase;
use crate::machine::Picos;

impl Engine {
    /// Changes the CPU's mode from `now` on, and accounts the time before to the old mode.
    pub(crate) fn set_mode(&mut self, cpu: u32, mode: Mode, now: Picos) {
        let c = &mut self.cpus[cpu as usize];
        let time = now.saturating_sub(c.since);
        let did = std::mem::replace(&mut c.mode, mode);
        if (did == Mode::Busy) != (mode == Mode::Busy) {
            let at_work = &mut self.at_work[self.lines.topology().core(cpu) as usize];
            *at_work = if mode == Mode::Busy { *at_work + 1 } else { *at_work - 1 };
        }
        if time > 0 {
            (c.since, c.did) = (now, did);
            *c.used.of(did) += time;
        }
    }

    /// Excludes the time until `now` from the counts.
    pub(crate) fn forget_uses(&mut self, now: Picos) {
        let _ = self.uses(now);
        for c in &mut self.cpus {
            c.used = CpuUse::default();
            *c.used.of(c.did) = c.since.saturating_sub(now);
            c.charged = c.used;
        }
        self.tasks.iter_mut().for_each(|t| (t.busy, t.spinning) = (0, 0));
        (self.switches, self.migrations) = (0, 0);
    }

    /// Returns what each CPU did until `now`.
    pub(crate) fn uses(&mut self, now: Picos) -> Vec<CpuUse> {
        (0..self.cpus.len())
            .map(|cpu| {
                self.settle(cpu as u32, now);
                let c = &self.cpus[cpu];
                let mut used = c.used;
                // Subtract the time after `now`, which is counted already.
                *used.of(c.did) -= c.since.saturating_sub(now);
                used
            })
            .collect()
    }

    /// Accounts the CPU's time until `now`, to it and to its task.
    pub(super) fn settle(&mut self, cpu: u32, now: Picos) {
        let mode = self.cpus[cpu as usize].mode;
        self.set_mode(cpu, mode, now);
        let c = &mut self.cpus[cpu as usize];
        let before = std::mem::replace(&mut c.charged, c.used);
        if c.current != NONE {
            let thread = &mut self.tasks[c.current as usize];
            thread.busy += c.used.busy - before.busy;
            thread.spinning += c.used.spinning - before.spinning;
        }
    }
}

impl Engine {
    /// Returns whether another thread of the core works beside the CPU's, which works. A thread that spins leaves the
    /// core's units to the others.
    #[inline]
    pub(crate) fn shares_core(&self, cpu: u32) -> bool {
        debug_assert_eq!(self.cpus[cpu as usize].mode, Mode::Busy);
        self.shared > 1024 && self.at_work[self.lines.topology().core(cpu) as usize] > 1
    }
}

/// Accounting of a task's time.
impl Engine {
    /// Advances the running task's clock by `time` of work, which takes longer while the core's other thread works.
    #[inline]
    pub(crate) fn spend(&mut self, time: Picos) {
        let time = if self.beside { (time * self.shared) >> 10 } else { time };
        let (now, overlap) = (self.now, self.loads > 0);
        let me = self.me();
        me.spent.work += time;
        let mut stands = 0;
        if overlap && me.loads.any() {
            stands = me.loads.work(now, time);
            me.spent.lines += stands;
        }
        self.now = now + time + stands;
    }

    /// Begins another phase of the running task.
    #[inline]
    pub(crate) fn begin(&mut self, phase: Phase) {
        self.me().begin(phase);
        if phase == Phase::Private {
            self.leave_path();
        }
    }
}
