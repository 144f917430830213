//! Chooses CPUs for tasks that are not pinned.

use super::State;
use crate::sim::cache::NONE;
use crate::sim::engine::{Engine, random};
use crate::sim::machine::Picos;
use crate::sim::queue::Target;
use crate::sim::topology::Distance;

impl Engine {
    /// Returns the CPU for a task that becomes ready.
    pub(super) fn place(&self, task: u32) -> u32 {
        let thread = &self.tasks[task as usize];
        if let Some(cpu) = thread.pinned {
            return cpu;
        }
        if self.idle == 0 || self.is_idle(thread.cpu) {
            return thread.cpu;
        }
        use Distance::{Complex, Die, Far, Socket};
        let near = [Complex, Die, Socket, Far].into_iter().find_map(|d| self.idle_within(thread.cpu, d));
        near.unwrap_or(thread.cpu)
    }

    fn is_idle(&self, cpu: u32) -> bool {
        self.cpus[cpu as usize].current == NONE
    }

    /// Returns an idle CPU within `distance`, on an idle core if there is one.
    fn idle_within(&self, cpu: u32, distance: Distance) -> Option<u32> {
        let topology = self.lines.topology();
        let range = topology.within(cpu, distance);
        let (n, from) = (range.len() as u32, topology.place(cpu).core - range.start);
        let (cores, cpus) = (topology.cores(), topology.cpus());
        let threads = |core: u32| (0..cpus / cores).map(move |thread| thread * cores + core);
        let near = || (1..=n).map(|i| range.start + (from + i) % n);
        let whole = near().find(|&core| threads(core).all(|cpu| self.is_idle(cpu)));
        whole.or_else(|| near().flat_map(threads).find(|&cpu| self.is_idle(cpu)))
    }

    /// Returns an idle CPU, starting the search at a random one.
    fn any_idle(&mut self) -> Option<u32> {
        let n = self.cpus.len() as u32;
        let from = (random(&mut self.random) % u64::from(n)) as u32;
        (self.idle > 0).then(|| (0..n).map(|i| (from + i) % n).find(|&cpu| self.is_idle(cpu)))?
    }

    /// Plans a move of the task at a random time, if tasks are moved at all.
    pub(crate) fn plan_move(&mut self, task: u32, now: Picos) {
        if self.os.rehome > 0 && self.tasks[task as usize].pinned.is_none() {
            let wait = self.os.rehome / 2 + random(&mut self.random) % self.os.rehome;
            self.put(now + wait.max(1), Target::Move(task));
        }
    }

    /// Moves the task to an idle CPU, if its state allows it now.
    pub(crate) fn rehome(&mut self, task: u32, now: Picos) {
        let state = self.tasks[task as usize].state;
        if state == State::Done || self.ending || self.tasks[task as usize].pinned.is_some() {
            return;
        }
        self.plan_move(task, now);
        if !matches!(state, State::Running | State::Ready | State::Sleeping) {
            return;
        }
        let Some(to) = self.any_idle() else { return };
        self.migrations += 1;
        let thread = &mut self.tasks[task as usize];
        let from = std::mem::replace(&mut thread.cpu, to);
        if state == State::Ready {
            self.cpus[from as usize].ready.retain(|&ready| ready != task);
            self.waits(task, false);
            self.start(task, to, now, now + self.os.switch);
        } else if state == State::Running {
            thread.rest = thread.due_at.saturating_sub(now);
            thread.due = 0;
            thread.clock = now;
            self.start(task, to, now, now + self.os.switch);
            self.leave(from, now);
        }
    }
}
