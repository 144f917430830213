//! Processes events, and decides which task runs next.

use super::Engine;
use crate::sim::ahead::{fetch, fetch_stack};
use crate::sim::machine::Picos;
use crate::sim::os::{Mode, State};
use crate::sim::queue::{Event, Target};

impl Engine {
    /// Gives the task its turn, and prefetches the host memory of the task after it.
    #[inline]
    pub(crate) fn turn(&mut self, task: u32, now: Picos) {
        let cpu = self.tasks[task as usize].cpu;
        (self.current, self.cpu, self.now) = (task, cpu, now);
        self.slowness = self.slowness_of(cpu);
        self.set_horizon();
        if let Some(next) = self.queue.first_task() {
            let thread = (&raw const self.tasks[next as usize]).addr();
            fetch(thread);
            fetch(thread + 64);
            let ahead = self.ahead[next as usize];
            self.lines.fetch(ahead.line);
            fetch_stack(ahead.top);
        }
    }

    /// Sets the horizon: how far the running task may go.
    #[inline]
    pub(super) fn set_horizon(&mut self) {
        let resched = self.resched(self.cpu);
        self.horizon = if resched { 0 } else { self.queue.first() };
    }

    /// Processes an event; returns the task that has its turn now, if any.
    pub(crate) fn fire(&mut self, event: Event) -> Option<u32> {
        let now = event.at;
        match event.target {
            Target::Task(task) => {
                let thread = &mut self.tasks[task as usize];
                if thread.due != event.seq {
                    return None;
                }
                thread.due = 0;
                match thread.state {
                    State::Running | State::InFlight => return Some(task),
                    State::Parked => {
                        thread.expired = true;
                        thread.state = State::Running;
                        let cpu = thread.cpu;
                        self.lines.unwait(task);
                        self.set_mode(cpu, Mode::Busy, now);
                        return Some(task);
                    }
                    State::Yielded => {
                        thread.expired = true;
                        self.lines.unwait(task);
                        self.rejoin(task, now);
                    }
                    State::Sleeping => {
                        thread.expired = true;
                        self.wake_up(task, now);
                    }
                    State::Ready | State::Done => {}
                }
            }
            Target::Wake(task) => self.wake_up(task, now),
            Target::Tick(cpu) => self.tick(cpu, event.seq, now),
            Target::Move(task) => self.rehome(task, now),
            Target::Stop => {}
        }
        None
    }
}
