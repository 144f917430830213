//! Preemption: the end of a time slice, an interrupt, a waiter that yields its CPU.

use super::{NONE, State};
use crate::sim::engine::Engine;
use crate::sim::ledger::Phase;
use crate::sim::machine::Picos;
use crate::sim::queue::Target;

impl Engine {
    /// Arms the tick that ends the current task's slice, because another task waits for the CPU. A parked task has only
    /// `spin`.
    pub(super) fn wanted(&mut self, cpu: u32, now: Picos) {
        let c = &self.cpus[cpu as usize];
        let current = &self.tasks[c.current as usize];
        let mut end = c.slice_end;
        if current.state == State::Parked {
            end = end.min(current.clock + self.os.spin);
        }
        self.arm(cpu, end.max(now));
    }

    /// Arms the CPU's tick for `at`, unless an earlier one is armed.
    pub(super) fn arm(&mut self, cpu: u32, at: Picos) {
        let c = &self.cpus[cpu as usize];
        if c.tick == 0 || c.tick_at > at {
            let tick = self.put(at, Target::Tick(cpu));
            let c = &mut self.cpus[cpu as usize];
            (c.tick, c.tick_at) = (tick, at);
        }
    }

    /// Handles a tick: preempts the CPU's task if its slice is over.
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
            // An interrupt's work continues until it sleeps.
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

    /// Returns whether the CPU's task must give it up as soon as it can.
    #[inline]
    pub(crate) fn resched(&self, cpu: u32) -> bool {
        // `rescheds` avoids the load of a CPU's memory: it is almost always 0.
        self.rescheds > 0 && self.cpus[cpu as usize].resched
    }

    pub(super) fn set_resched(&mut self, cpu: u32, resched: bool) {
        let before = std::mem::replace(&mut self.cpus[cpu as usize].resched, resched);
        self.rescheds = self.rescheds + u32::from(resched) - u32::from(before);
    }

    /// Notes that the running task leaves the data plane. A task that waits for its CPU gets it now.
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

    /// Gives the running task's CPU to another, as it was asked to; returns whether it did. It does not when no task waits
    /// for the CPU any more. If it returns true, the caller yields its turn.
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
