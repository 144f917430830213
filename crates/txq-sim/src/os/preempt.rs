//! Who takes a CPU from whom: the end of a time slice, an interrupt, a waiter that gives its CPU away.

use super::{NONE, State};
use crate::engine::Engine;
use crate::ledger::Phase;
use crate::machine::Picos;
use crate::queue::Target;

impl Engine {
    /// Somebody waits for the CPU: its task has it for so long yet.
    pub(super) fn wanted(&mut self, cpu: u32, now: Picos) {
        let c = &self.cpus[cpu as usize];
        let current = &self.tasks[c.current as usize];
        let mut end = c.slice_end;
        if current.state == State::Parked {
            end = end.min(current.clock + self.os.spin);
        }
        self.arm(cpu, end.max(now));
    }

    /// Has `tick` come at a time, if it does not come before.
    pub(super) fn arm(&mut self, cpu: u32, at: Picos) {
        let c = &self.cpus[cpu as usize];
        if c.tick == 0 || c.tick_at > at {
            let tick = self.put(at, Target::Tick(cpu));
            let c = &mut self.cpus[cpu as usize];
            (c.tick, c.tick_at) = (tick, at);
        }
    }

    /// A slice may be over.
    pub(crate) fn tick(&mut self, cpu: u32, seq: u64, now: Picos) {
        let c = &mut self.cpus[cpu as usize];
        if c.tick != seq {
            return;
        }
        c.tick = 0;
        if c.ready.is_empty() || c.current == NONE {
            return;
        }
        let (task, over) = (c.current, now >= c.slice_end);
        let thread = &mut self.tasks[task as usize];
        if self.os.kernel && (thread.urgent || thread.phase != Phase::Private) {
            // An interrupt's work goes on until it sleeps.
            c.pending = !thread.urgent;
            return;
        }
        match thread.state {
            State::Parked if over || now >= thread.clock + self.os.spin => {
                thread.state = State::Yielded;
                self.cpus[cpu as usize].yielded += 1;
                self.leave(cpu, now);
            }
            State::Running if over => {
                thread.rest = thread.due_at.saturating_sub(now);
                thread.due = 0;
                thread.clock = now;
                self.requeue(task, cpu);
                self.leave(cpu, now);
            }
            State::InFlight if over => self.set_resched(cpu, true),
            _ => self.wanted(cpu, now),
        }
    }

    /// Whether the CPU's task shall give it away as soon as it can.
    #[inline]
    pub(crate) fn resched(&self, cpu: u32) -> bool {
        // Hardly ever is there one, and a look at a CPU is one at memory.
        self.rescheds > 0 && self.cpus[cpu as usize].resched
    }

    pub(super) fn set_resched(&mut self, cpu: u32, resched: bool) {
        let before = std::mem::replace(&mut self.cpus[cpu as usize].resched, resched);
        self.rescheds = self.rescheds + u32::from(resched) - u32::from(before);
    }

    /// The task that runs leaves the data plane. Who waits for its CPU gets it now.
    pub(crate) fn leave_path(&mut self) {
        let c = &mut self.cpus[self.cpu as usize];
        if std::mem::take(&mut c.pending) {
            self.set_resched(self.cpu, true);
            self.horizon = 0;
        }
    }

    pub(super) fn requeue(&mut self, task: u32, cpu: u32) {
        self.tasks[task as usize].state = State::Ready;
        self.cpus[cpu as usize].ready.push_back(task);
        self.waits(task, true);
    }

    /// The task that runs gives its CPU to another, as it was told to, unless nobody wants it any more. Then it gives its
    /// turn away.
    pub(crate) fn give_cpu(&mut self) -> bool {
        let (task, cpu, now) = (self.current, self.cpu, self.now);
        self.set_resched(cpu, false);
        if self.cpus[cpu as usize].ready.is_empty() {
            return false;
        }
        self.me().clock = now;
        self.requeue(task, cpu);
        self.leave(cpu, now);
        true
    }
}
