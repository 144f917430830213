//! The operating system: schedules tasks on CPUs.
//!
//! A CPU runs at most one task; others wait in its queue. A task gives up its CPU when it sleeps, when its slice is over and
//! others wait, and when it has spun for [`Os::spin`](crate::sim::machine::Os::spin) and others wait, as a native waiter does
//! with `sched_yield`. A task that yielded while spinning becomes ready again when the line that it waits for is written.
//!
//! A pinned task stays on its CPU. A softirq runs on the CPU that raised it, after the task that raised it. Any other task,
//! when it wakes up, goes to the idle CPU nearest to its last one. A CPU that becomes idle takes a task from the longest
//! queue. Tasks also move at random times if the [`World`](crate::sim::World) is set so
//! ([`World::rehome`](crate::sim::World::rehome)).
//!
//! Time is accounted as `busy`, `spinning` (a task waits for a line to be written) and `idle`.
//!
//! Simplifications: there are no priorities; a task that wakes up preempts no other task before the end of its slice; a tick
//! costs nothing; and waking an idle CPU always takes the same time.

use txq_core::arch::Inside;

use corosensei::Yielder;

use crate::sim::cache::NONE;
use crate::sim::engine::Engine;
use crate::sim::ledger::{Ledger, Phase, Spent};
use crate::sim::loads::Loads;
use crate::sim::machine::{self, Picos, picos};
use crate::sim::queue::Target;
use crate::sim::stores::Stores;

mod account;
mod cpu;
mod place;
mod preempt;
#[cfg(test)]
mod tests;

pub use cpu::CpuUse;
pub(crate) use cpu::{Cpu, Mode};

/// The costs of the operating system's work.
pub(crate) struct OsCosts {
    pub(crate) clock: Picos,
    pub(crate) switch: Picos,
    pub(crate) interrupt: Picos,
    pub(crate) wake: Picos,
    pub(crate) wakeup: Picos,
    pub(crate) slice: Picos,
    pub(crate) spin: Picos,
    /// How often a task that is not pinned is moved; 0 for never.
    pub(crate) rehome: Picos,
    /// Whether the kernel itself sends: then nothing takes the CPU from a task that is in the data plane.
    pub(crate) kernel: bool,
    /// Whether a task that waits for a lock sleeps: the real-time kernel's locks.
    pub(crate) sleeping: bool,
}

impl OsCosts {
    pub(crate) fn new(os: &machine::Os) -> Self {
        let machine::Os { clock, switch, interrupt, wake, wakeup, slice, spin } = *os;
        let [clock, switch, interrupt, wake, wakeup, slice, spin] =
            [clock, switch, interrupt, wake, wakeup, slice, spin].map(picos);
        Self {
            clock,
            switch,
            interrupt,
            wake,
            wakeup,
            slice: slice.max(1),
            spin,
            rehome: 0,
            kernel: false,
            sleeping: false,
        }
    }
}

/// A task's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Waits for a CPU.
    Ready,
    /// Has a CPU; its next event can be postponed.
    Running,
    /// Has a CPU and an access in flight.
    InFlight,
    /// Has a CPU and spins until a line is written.
    Parked,
    /// Waits for a line to be written, without a CPU.
    Yielded,
    Sleeping,
    Done,
}

/// A task, as the operating system sees it. The fields that each event needs come first, in two cache lines of the host.
#[repr(C, align(64))]
pub(crate) struct Thread {
    /// Sequence number of the event that it waits for; 0 for none. `due_at` is the time of that event.
    pub(crate) due: u64,
    pub(crate) due_at: Picos,
    /// Its clock, while it has neither an event nor a turn.
    pub(crate) clock: Picos,
    pub(crate) yielder: *const Yielder<(), ()>,
    /// Its current or last CPU.
    pub(crate) cpu: u32,
    pub(crate) state: State,
    pub(crate) phase: Phase,
    /// Its last wait ended by the deadline.
    pub(crate) expired: bool,
    /// It is unwinding because its world ends.
    pub(crate) unwinds: bool,
    /// It does an interrupt's work: it runs before all tasks that are not urgent, and takes the CPU from them.
    pub(crate) urgent: bool,
    /// It is a softirq: it runs on the CPU where it is woken.
    pub(crate) raised: bool,
    pub(crate) random: u64,
    /// Work left to do when it lost its CPU.
    rest: Picos,
    /// Its time in this phase since the phase began.
    pub(crate) spent: Spent,
    pub(crate) stores: Stores,
    /// Its time in earlier phases.
    past: Ledger,
    pub(crate) loads: Loads,
    /// The data paths that it is in. Boxed, because its address must not change.
    pub(crate) inside: Box<Inside>,
    pub(crate) busy: Picos,
    pub(crate) spinning: Picos,
    pub(crate) pinned: Option<u32>,
    pub(crate) name: String,
}

impl Thread {
    pub(crate) fn new(
        name: String,
        pinned: Option<u32>,
        cpu: u32,
        seed: u64,
        stores: Stores,
        loads: Loads,
    ) -> Self {
        Self {
            name,
            pinned,
            cpu,
            state: State::Sleeping,
            due: 0,
            due_at: 0,
            clock: 0,
            rest: 0,
            expired: false,
            unwinds: false,
            random: seed,
            stores,
            loads,
            inside: Box::default(),
            yielder: std::ptr::null(),
            busy: 0,
            spinning: 0,
            urgent: false,
            raised: false,
            phase: Phase::Private,
            spent: Spent::default(),
            past: Ledger::default(),
        }
    }

    /// Returns the task's time by phase.
    pub(crate) fn ledger(&self) -> Ledger {
        let mut ledger = self.past;
        ledger.at(self.phase).add(&self.spent);
        ledger
    }

    /// Begins another phase.
    #[inline]
    pub(crate) fn begin(&mut self, phase: Phase) {
        let spent = std::mem::take(&mut self.spent);
        self.past.at(self.phase).add(&spent);
        self.phase = phase;
    }
}

/// Taking and giving up CPUs.
impl Engine {
    /// Takes the CPU from its task and starts the next one.
    fn leave(&mut self, cpu: u32, now: Picos) {
        self.settle(cpu, now);
        self.set_resched(cpu, false);
        let c = &mut self.cpus[cpu as usize];
        let task = std::mem::replace(&mut c.current, NONE);
        c.pending = false;
        self.idle += 1;
        self.dispatch(cpu, now);
        // The idle task is one, too: Linux counts the switch to it. An interrupt runs on top of it.
        let c = &self.cpus[cpu as usize];
        let rests = c.current == NONE && c.mode == Mode::Idle;
        self.switches += u64::from(rests && !self.tasks[task as usize].urgent);
    }

    /// Starts the next task on a CPU that has none.
    fn dispatch(&mut self, cpu: u32, now: Picos) {
        let next = self.cpus[cpu as usize].ready.pop_front().or_else(|| self.pull(cpu));
        if let Some(task) = next {
            self.waits(task, false);
            // A task that resumes after an interrupt costs no switch, and an interrupt needs no scheduler.
            let thread = &self.tasks[task as usize];
            let cost = match thread.urgent {
                true if thread.raised => 0,
                true => self.os.interrupt,
                false if self.cpus[cpu as usize].last == task => 0,
                false => self.os.switch,
            };
            return self.start(task, cpu, now, now + cost);
        }
        // The tasks that yielded it check and yield in turn.
        let spins = self.cpus[cpu as usize].yielded > 0 && !self.os.sleeping;
        self.set_mode(cpu, if spins { Mode::Spinning } else { Mode::Idle }, now);
    }

    /// Counts a task that begins to wait for a CPU, or ends to.
    fn waits(&mut self, task: u32, waits: bool) {
        if self.tasks[task as usize].pinned.is_none() {
            self.roaming = if waits { self.roaming + 1 } else { self.roaming - 1 };
        }
    }

    /// Takes a task that waits for another CPU and is not pinned, from the longest queue; returns it.
    fn pull(&mut self, cpu: u32) -> Option<u32> {
        if self.roaming == 0 {
            return None;
        }
        let tasks = &self.tasks;
        // A task that was interrupted still owns its CPU.
        let free = |c: &Cpu| {
            c.ready.iter().position(|&task| tasks[task as usize].pinned.is_none() && c.last != task)
        };
        let queues = self.cpus.iter_mut().enumerate().filter(|(_, c)| free(c).is_some());
        let (_, longest) = queues.max_by_key(|(i, c)| (c.ready.len(), usize::MAX - i))?;
        let at = free(longest)?;
        let task = longest.ready.remove(at)?;
        self.migrations += u64::from(self.tasks[task as usize].cpu != cpu);
        Some(task)
    }

    /// Gives the CPU to the task, from `at` on.
    fn start(&mut self, task: u32, cpu: u32, now: Picos, at: Picos) {
        // An interrupt is no switch to another task, and neither is resuming after it.
        if !self.tasks[task as usize].urgent {
            let c = &mut self.cpus[cpu as usize];
            self.switches += u64::from(c.last != task);
            c.last = task;
        }
        self.idle -= 1;
        let idle = self.cpus[cpu as usize].mode == Mode::Idle;
        // A wake-up is not work; a switch is.
        self.set_mode(cpu, Mode::Busy, if idle { at.max(now) } else { now });
        let c = &mut self.cpus[cpu as usize];
        c.charged = c.used;
        c.current = task;
        c.slice_end = at + self.os.slice;
        let slice_end = c.slice_end;
        let crowded = !c.ready.is_empty();
        let thread = &mut self.tasks[task as usize];
        let from = at.max(thread.clock) + std::mem::take(&mut thread.rest);
        (thread.cpu, thread.state, thread.due_at) = (cpu, State::Running, from);
        let due = self.put(from, Target::Task(task));
        self.tasks[task as usize].due = due;
        if crowded {
            self.arm(cpu, slice_end);
        }
    }

    /// Makes the task ready: starts it `latency` after now if its CPU is free, else queues it there.
    fn ready(&mut self, task: u32, now: Picos, latency: Picos) {
        let cpu = self.place(task);
        let had = self.tasks[task as usize].cpu;
        self.migrations += u64::from(cpu != had);
        self.tasks[task as usize].cpu = cpu;
        if self.cpus[cpu as usize].current == NONE {
            return self.start(task, cpu, now, now + latency);
        }
        self.tasks[task as usize].state = State::Ready;
        let tasks = &self.tasks;
        let c = &mut self.cpus[cpu as usize];
        if tasks[task as usize].urgent {
            // Behind other urgent tasks and before all others.
            let at = c.ready.iter().position(|&task| !tasks[task as usize].urgent).unwrap_or(c.ready.len());
            c.ready.insert(at, task);
            if !tasks[c.current as usize].urgent {
                c.slice_end = now;
            }
        } else {
            c.ready.push_back(task);
        }
        self.waits(task, true);
        self.wanted(cpu, now);
    }
}

/// Waiting and sleeping.
impl Engine {
    /// Makes the running task wait for a line.
    pub(crate) fn start_waiting(&mut self, deadline: Option<Picos>) {
        let (task, cpu, now) = (self.current, self.cpu, self.now);
        let due = deadline.map_or(0, |at| self.put(at, Target::Task(task)));
        let me = self.me();
        (me.state, me.clock, me.due, me.expired) = (State::Parked, now, due, false);
        if self.os.sleeping {
            self.me().state = State::Yielded;
            self.cpus[cpu as usize].yielded += 1;
            return self.leave(cpu, now);
        }
        self.set_mode(cpu, Mode::Spinning, now);
        if !self.cpus[cpu as usize].ready.is_empty() {
            self.wanted(cpu, now);
        }
    }

    /// Resumes a task whose line was written.
    pub(crate) fn stop_waiting(&mut self, task: u32, now: Picos) {
        let thread = &mut self.tasks[task as usize];
        if thread.state == State::Yielded {
            return self.rejoin(task, now);
        }
        thread.state = State::Running;
        // The task loads the value again when its PAUSE is over.
        let waited = now.saturating_sub(thread.clock);
        let (cpu, at) = (thread.cpu, thread.clock + waited.next_multiple_of(self.pause));
        thread.due_at = at;
        let due = self.put(at, Target::Task(task));
        self.tasks[task as usize].due = due;
        self.set_mode(cpu, Mode::Busy, at);
    }

    /// Makes a task ready that yielded its CPU while it waited.
    pub(crate) fn rejoin(&mut self, task: u32, now: Picos) {
        let thread = &mut self.tasks[task as usize];
        thread.due = 0;
        let cpu = thread.cpu as usize;
        self.cpus[cpu].yielded -= 1;
        let latency = if self.os.sleeping { self.os.wakeup } else { self.os.switch };
        self.ready(task, now, latency);
        let c = &self.cpus[cpu];
        if c.current == NONE && c.yielded == 0 {
            self.set_mode(cpu as u32, Mode::Idle, now);
        }
    }

    /// Makes the running task sleep.
    pub(crate) fn start_sleep(&mut self, deadline: Option<Picos>) {
        let (task, cpu, now) = (self.current, self.cpu, self.now);
        let due = deadline.map_or(0, |at| self.put(at, Target::Task(task)));
        let me = self.me();
        (me.state, me.clock, me.due, me.expired) = (State::Sleeping, now, due, false);
        if self.cpus[cpu as usize].last == task {
            self.cpus[cpu as usize].last = NONE;
        }
        self.leave(cpu, now);
    }

    /// Wakes a sleeper from the running task. A softirq stays on the CPU that raised it until another CPU raises it.
    pub(crate) fn wake_from_here(&mut self, task: u32) {
        let (cpu, now) = (self.cpu, self.now);
        let thread = &mut self.tasks[task as usize];
        if thread.raised && thread.state == State::Sleeping {
            (thread.pinned, thread.cpu) = (Some(cpu), cpu);
        }
        self.wake_up(task, now);
    }

    /// Wakes a task if it sleeps.
    pub(crate) fn wake_up(&mut self, task: u32, now: Picos) {
        if self.tasks[task as usize].state == State::Sleeping {
            let thread = &mut self.tasks[task as usize];
            thread.due = 0;
            // An interrupt needs no scheduler.
            let latency = if thread.urgent { self.os.interrupt } else { self.os.wakeup };
            self.ready(task, now, latency);
        }
    }

    pub(crate) fn end_task(&mut self) {
        let (cpu, now) = (self.cpu, self.now);
        self.me().state = State::Done;
        self.leave(cpu, now);
    }
}
