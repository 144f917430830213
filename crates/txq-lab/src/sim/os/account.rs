//! Accounts the time of each CPU and each task.

use super::{CpuUse, Mode};
use crate::sim::cache::NONE;
use crate::sim::core_speed::UNIT;
use crate::sim::engine::Engine;
use crate::sim::ledger::Phase;
use crate::sim::machine::Picos;

impl Engine {
    /// Changes the CPU's mode from `now` on, and accounts the time before to the old mode.
    pub(crate) fn set_mode(&mut self, cpu: u32, mode: Mode, now: Picos) {
        let c = &mut self.cpus[cpu as usize];
        let time = now.saturating_sub(c.since);
        let did = std::mem::replace(&mut c.mode, mode);
        if did != mode {
            self.pace.change(self.lines.topology().place(cpu), did, mode);
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

/// Accounting of a task's time.
impl Engine {
    /// Returns the factor on the time of work of a CPU, which works.
    #[inline]
    pub(crate) fn slowness_of(&self, cpu: u32) -> Picos {
        debug_assert_eq!(self.cpus[cpu as usize].mode, Mode::Busy);
        self.pace.slowness(self.lines.topology().place(cpu))
    }

    /// Advances the running task's clock by `time` of work, which takes as long as the [`CoreSpeed`](crate::sim::core_speed::CoreSpeed) says.
    #[inline]
    pub(crate) fn spend(&mut self, time: Picos) {
        let time = (time * self.slowness) / UNIT;
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
