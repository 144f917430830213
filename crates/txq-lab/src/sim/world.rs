//! A machine with its tasks: creates them, runs them and ends them.

use std::mem;
use std::panic::{self, AssertUnwindSafe};

use corosensei::stack::Stack;
use corosensei::{Coroutine, Yielder};

use crate::sim::ahead::Ahead;
use crate::sim::arch;
use crate::sim::engine::{Ended, Engine, Entered, engine, finish, random};
use crate::sim::footprint::Footprint;
use crate::sim::ledger::Ledger;
use crate::sim::lines::{self, LineUse};
use crate::sim::loads::Loads;
use crate::sim::machine::{Machine, Picos};
use crate::sim::moves::Known;
use crate::sim::os::{CpuUse, State, Thread};
use crate::sim::prices::{PriceList, Prices};
use crate::sim::queue::{Event, Target};
use crate::sim::sequence;
use crate::sim::stack::TaskStack;
use crate::sim::stores::Stores;

/// Limits on the tasks' ending after the world's time is over: the number of events ([`ENDING`]) and the time ([`LONGEST_END`]).
const ENDING: u64 = 20_000_000;
const LONGEST_END: Picos = 200_000_000_000;

type Coro = Coroutine<(), (), (), TaskStack>;

/// A task to spawn: its name, CPU and start time.
#[derive(Debug, Clone, Default)]
pub struct Task {
    /// Its name in reports.
    pub name: String,
    /// The CPU that it is pinned to; `None`: any CPU.
    pub cpu: Option<u32>,
    /// The CPU where it starts if it is not pinned; `None`: a random CPU.
    pub at: Option<u32>,
    /// The time when it starts.
    pub start: Picos,
    /// Whether it does an interrupt's work: it takes its CPU from every task that is not urgent.
    pub urgent: bool,
    /// Whether it runs on the CPU of the task that wakes it, as a softirq does, once that CPU has no urgent task.
    pub raised: bool,
}

/// How much CPU time a task used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskUse {
    /// Its name.
    pub name: String,
    /// Time that it worked.
    pub busy: Picos,
    /// Time that it waited for another task to write a line.
    pub spinning: Picos,
}

/// The result of running a world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Hash of all accesses: their times, lines and tasks. Equal for equal worlds on every machine.
    pub hash: u64,
    /// Number of accesses to lines.
    pub accesses: u64,
    /// When the warm-up was over. The fields below count from then on.
    pub from: Picos,
    /// When the run ended.
    pub now: Picos,
    /// How long each CPU was busy, spinning and idle.
    pub cpus: Vec<CpuUse>,
    /// How long each task worked and spun, in the order in which they were spawned.
    pub tasks: Vec<TaskUse>,
    /// Number of context switches: to a task, and from one to none.
    pub switches: u64,
    /// Number of times that a task got another CPU than before.
    pub migrations: u64,
    /// Tasks that did not end: each waits for an event that never comes. The resources that they hold are leaked.
    pub stuck: Vec<String>,
}

impl Outcome {
    /// Returns the sum over all CPUs.
    pub fn total(&self) -> CpuUse {
        self.cpus.iter().fold(CpuUse::default(), |sum, c| CpuUse {
            busy: sum.busy + c.busy,
            spinning: sum.spinning + c.spinning,
            idle: sum.idle + c.idle,
        })
    }
}

/// A machine with its tasks, before and while it runs.
pub struct World {
    engine: Box<Engine>,
    tasks: Vec<Option<Coro>>,
    warm_up: Picos,
}

impl World {
    /// Creates a machine without tasks. `seed` seeds every pseudorandom number.
    pub fn new(machine: &Machine, seed: u64) -> Self {
        arch::begin(seed);
        lines::forget();
        // Those of a world that never ran.
        drop(sequence::take());
        let prices = PriceList::new(&Prices::default());
        Self { engine: Box::new(Engine::new(machine, prices, seed)), tasks: Vec::new(), warm_up: 0 }
    }

    /// Sets the prices of plain code.
    pub fn prices(&mut self, prices: &Prices) {
        self.engine.prices = PriceList::new(prices);
    }

    /// Sets how many lines the data plane's plain state has.
    pub fn footprint(&mut self, footprint: Footprint) {
        self.engine.footprint = footprint;
    }

    /// Sets the state of the qdiscs, and adds the time of their code to the prices.
    pub(crate) fn known(&mut self, known: Option<Known>) {
        self.engine.known = known;
        if let Some(Known { times, plain, scale, .. }) = known {
            self.engine.prices.add(times, plain, scale);
        }
    }

    /// Excludes the time before `until` from the counts of CPUs and tasks.
    pub fn warm_up(&mut self, until: Picos) {
        self.warm_up = until;
    }

    /// Moves each task that is not pinned to another CPU at random times, about once in `interval`.
    pub fn rehome(&mut self, interval: Picos) {
        self.engine.os.rehome = interval;
    }

    /// Sets whether the kernel itself sends. If so, nothing, not even an interrupt, takes the CPU from a task in the data
    /// plane (`local_bh_disable`), and locks are fair. Otherwise tasks are threads of a program, and may be preempted anywhere;
    /// so the queue of a lock may be passed while its first waiter has no CPU.
    pub fn kernel(&mut self, kernel: bool) {
        self.engine.os.kernel = kernel;
    }

    /// Sets whether a task that waits for a lock, or for any other word, sleeps until the word is written: the real-time
    /// kernel's locks.
    pub fn sleeping_locks(&mut self, sleeping: bool) {
        self.engine.os.sleeping = sleeping;
    }

    /// Sets whether spinlocks are ticket locks, as Linux' were before 4.2. Call it before the locks are created.
    pub fn ticket_locks(&mut self, tickets: bool) {
        arch::ticket_locks(tickets);
    }

    /// Returns the number of CPUs.
    pub fn cpus(&self) -> u32 {
        self.engine.lines.topology().cpus()
    }

    /// Adds a task that runs `f`.
    ///
    /// # Panics
    /// When the task's CPU does not exist, or there is no memory for its stack.
    pub fn spawn(&mut self, task: Task, f: impl FnOnce() + 'static) {
        let cpus = self.cpus();
        if let Some(cpu) = task.cpu.or(task.at).filter(|&cpu| cpu >= cpus) {
            panic!("task \"{}\" shall be on CPU {cpu}: the machine has CPUs 0 to {}", task.name, cpus - 1);
        }
        let eng = &mut *self.engine;
        let id = eng.tasks.len() as u32;
        let seed = random(&mut eng.random);
        let cpu = task.cpu.or(task.at).unwrap_or((seed % u64::from(cpus)) as u32);
        eng.lines.add_task();
        let (stores, loads) = (Stores::new(eng.stores), Loads::new(eng.loads, eng.window));
        let mut thread = Thread::new(task.name, task.cpu, cpu, seed, stores, loads);
        thread.urgent = task.urgent;
        thread.raised = task.raised;
        thread.due = eng.put(task.start, Target::Task(id));
        eng.tasks.push(thread);
        eng.ahead.push(Ahead::default());
        eng.plan_move(id, task.start);
        let stack = TaskStack::take();
        lines::name_stack(stack.limit().get(), stack.base().get());
        self.tasks.push(Some(Coroutine::with_stack(stack, move |yielder, ()| body(yielder, f))));
    }

    /// Runs until `until`, or until no task has anything left to do; returns the times and counts of CPUs and tasks. Then it
    /// ends the tasks that still run: each continues until it calls a function of [`sim`](crate::sim::sim) or waits for an
    /// [`Event`](txq_core::arch::Event), and is unwound there.
    ///
    /// # Panics
    /// With the payload of a task's panic.
    pub fn run(mut self, until: Picos) -> Outcome {
        self.engine.sequences.set(sequence::take());
        let e: *mut Engine = &raw mut *self.engine;
        let entered = Entered::new(e);
        let from = self.warm_up.min(until);
        if from > 0 {
            // SAFETY: no task runs, so nothing else has a reference.
            unsafe { (*e).counting = false };
            self.go(e, from, u64::MAX);
            // SAFETY: as above.
            let eng = unsafe { &mut *e };
            eng.forget_uses(from);
            eng.counting = true;
        }
        let more = self.go(e, until, u64::MAX);
        // SAFETY: as above.
        let eng = unsafe { &mut *e };
        let now = if more { until } else { eng.now.max(from) };
        let mut outcome = Outcome {
            hash: eng.hash,
            accesses: eng.accesses,
            from,
            now,
            cpus: eng.uses(now),
            tasks: eng.tasks.iter().map(task_use).collect(),
            switches: eng.switches,
            migrations: eng.migrations,
            stuck: Vec::new(),
        };
        if eng.panic.is_none() {
            (eng.ending, eng.counting) = (true, false);
            for task in 0..eng.tasks.len() as u32 {
                eng.wake_up(task, now);
            }
            self.go(e, now + LONGEST_END, ENDING);
        }
        drop(entered);
        arch::end(now);
        // SAFETY: as above.
        let eng = unsafe { &mut *e };
        for (task, thread) in self.tasks.iter_mut().zip(&eng.tasks) {
            if let Some(coro) = task.take_if(|coro| coro.started()) {
                // Other tasks may point into this stack, so it must stay.
                outcome.stuck.push(thread.name.clone());
                mem::forget(coro);
            }
        }
        if let Some(payload) = eng.panic.take() {
            panic::resume_unwind(payload);
        }
        outcome
    }

    /// Runs until `until`, or until no task has anything left to do. The world then stands still, and the caller can inspect
    /// the objects that its tasks use. It also returns when a task panics; [`run`](World::run) then raises that panic.
    pub fn advance(&mut self, until: Picos) {
        self.engine.sequences.set(sequence::take());
        let e: *mut Engine = &raw mut *self.engine;
        let _entered = Entered::new(e);
        self.go(e, until, u64::MAX);
        arch::end(until);
    }

    /// Returns what each CPU did until `now`, where the world stands.
    pub fn uses(&mut self, now: Picos) -> Vec<CpuUse> {
        self.engine.uses(now)
    }

    /// Returns the number of context switches, as `vmstat` counts them (cs): to a task, and from one to none.
    pub fn switches(&self) -> u64 {
        self.engine.switches
    }

    /// Returns the number of tasks that have a CPU or wait for one (`vmstat`'s r). Interrupts and softirqs are no tasks.
    pub fn runnable(&self) -> usize {
        let runs = |t: &&Thread| !t.urgent && !matches!(t.state, State::Sleeping | State::Done);
        self.engine.tasks.iter().filter(runs).count()
    }

    /// Returns the time of each task by kind, with the task's name.
    pub fn ledgers(&self) -> Vec<(&str, Ledger)> {
        self.engine.tasks.iter().map(|t| (t.name.as_str(), t.ledger())).collect()
    }

    /// Makes the data plane name its parts from now on, for [`watch_lines`](World::watch_lines). Call it before building the
    /// device.
    pub(crate) fn name_lines(&mut self) {
        lines::ask();
    }

    /// Counts the cost of each cache line from `from` on. Call it before anything runs. It takes host time, but no virtual
    /// time.
    pub(crate) fn watch_lines(&mut self, from: Picos) {
        self.engine.watch_lines(from);
    }

    /// Returns the cost of cache lines until `now`, by the object on them, the most expensive ones first. Empty unless
    /// [`watch_lines`](World::watch_lines) was called.
    pub(crate) fn line_uses(&self, now: Picos) -> Vec<LineUse> {
        self.engine.line_uses(now)
    }

    /// Processes events until `until`; returns whether later ones remain.
    fn go(&mut self, e: *mut Engine, until: Picos, mut events: u64) -> bool {
        // SAFETY: no task runs, so nothing else has a reference.
        unsafe { (*e).put(until, Target::Stop) };
        loop {
            // SAFETY: no task runs, so nothing else has a reference; it ends before one does.
            let eng = unsafe { &mut *e };
            let event = eng.take().expect("the end is still to come");
            if event.target == Target::Stop {
                return !eng.queue.is_empty();
            }
            eng.now = event.at;
            if let Some(task) = eng.fire(event) {
                self.resume(e, event, task);
                // SAFETY: as above.
                if unsafe { (*e).panic.is_some() } {
                    return false;
                }
            }
            events -= 1;
            if events == 0 {
                return true;
            }
        }
    }

    fn resume(&mut self, e: *mut Engine, event: Event, task: u32) {
        // SAFETY: as in `go`.
        unsafe { (*e).turn(task, event.at) };
        let place = &mut self.tasks[task as usize];
        let coro = place.as_mut().expect("only a task that is not done has events");
        if coro.resume(()).as_return().is_some() {
            place.take().expect("it was there").into_stack().put();
        }
    }
}

fn task_use(thread: &Thread) -> TaskUse {
    TaskUse { name: thread.name.clone(), busy: thread.busy, spinning: thread.spinning }
}

/// The body of a task's coroutine: runs `f`, and records its panic or ends the task.
fn body(yielder: &Yielder<(), ()>, f: impl FnOnce()) {
    let e = engine();
    // SAFETY: the engine whose task this is; the reference ends at once.
    unsafe { (*e).me().yielder = yielder };
    let end = panic::catch_unwind(AssertUnwindSafe(f));
    // SAFETY: as above.
    unsafe {
        match end {
            Err(payload) if !payload.is::<Ended>() => (*e).panic = Some(payload),
            _ => finish(e),
        }
    }
}

impl World {
    /// Returns the number of tasks that are not done.
    pub fn alive(&self) -> usize {
        self.engine.tasks.iter().filter(|t| t.state != State::Done).count()
    }
}
