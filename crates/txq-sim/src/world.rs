//! A machine with its tasks: how they are made, run, and ended.

use std::cell::RefCell;
use std::mem;
use std::panic::{self, AssertUnwindSafe};

use corosensei::stack::{DefaultStack, Stack};
use corosensei::{Coroutine, Yielder};

use crate::ahead::Ahead;
use crate::arch;
use crate::engine::{Ended, Engine, Entered, engine, finish, random};
use crate::footprint::Footprint;
use crate::ledger::Ledger;
use crate::lines::{self, LineUse};
use crate::machine::{Machine, Picos};
use crate::os::{CpuUse, State, Thread};
use crate::prices::{PriceList, Prices};
use crate::queue::{Event, Target};
use crate::stores::Stores;

/// Bytes of a task's stack; memory only where it is used.
const STACK: usize = 256 * 1024;
/// What tasks have to come to an end when their world's time is over: events, and time.
const ENDING: u64 = 20_000_000;
const END: Picos = 200_000_000_000;

thread_local! {
    /// Stacks of tasks that are gone.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

type Coro = Coroutine<(), (), (), DefaultStack>;

/// A task that is to be.
#[derive(Debug, Clone, Default)]
pub struct Task {
    /// What it is called in reports.
    pub name: String,
    /// The CPU that it stays on; `None` for wherever there is room.
    pub cpu: Option<u32>,
    /// Where it begins, if it is not pinned; anywhere, if nothing is said.
    pub at: Option<u32>,
    /// When it begins.
    pub start: Picos,
    /// Whether it is an interrupt's work: it takes its CPU from every task that is not.
    pub urgent: bool,
    /// Whether it runs on the CPU of who wakes it, as a softirq does, once that has nothing urgent to do.
    pub raised: bool,
}

/// What a task had of the CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskUse {
    /// Its name.
    pub name: String,
    /// How long it worked.
    pub busy: Picos,
    /// How long it waited for a line to be written.
    pub spinning: Picos,
}

/// What has come of a world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Of all accesses: their times, lines and tasks. Equal for equal worlds, always and everywhere.
    pub hash: u64,
    /// Accesses to lines.
    pub accesses: u64,
    /// When its warm-up was over. What follows counts from then on.
    pub from: Picos,
    /// When it ended.
    pub now: Picos,
    /// What each CPU did.
    pub cpus: Vec<CpuUse>,
    /// What each task had of them, in the order in which they were made.
    pub tasks: Vec<TaskUse>,
    /// Times that a task got a CPU.
    pub switches: u64,
    /// Times that it was another CPU than before.
    pub migrations: u64,
    /// Tasks that could not be ended: they wait for what nobody will do. What they hold is never given back.
    pub stuck: Vec<String>,
}

impl Outcome {
    /// What all CPUs together did.
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
    /// A machine without tasks. `seed` is where all that looks random comes from.
    pub fn new(machine: &Machine, seed: u64) -> Self {
        arch::begin(seed);
        lines::forget();
        let prices = PriceList::new(&Prices::default());
        Self { engine: Box::new(Engine::new(machine, prices, seed)), tasks: Vec::new(), warm_up: 0 }
    }

    /// What plain code costs.
    pub fn prices(&mut self, prices: &Prices) {
        self.engine.prices = PriceList::new(prices);
    }

    /// How many lines the data plane's plain state has.
    pub fn footprint(&mut self, footprint: Footprint) {
        self.engine.footprint = footprint;
    }

    /// What CPUs and tasks do before a time does not count.
    pub fn warm_up(&mut self, until: Picos) {
        self.warm_up = until;
    }

    /// Has tasks that are not pinned moved to another CPU now and then: each about once in `interval`.
    pub fn rehome(&mut self, interval: Picos) {
        self.engine.os.rehome = interval;
    }

    /// Whether it is the kernel itself that sends: nobody, not even an interrupt, takes the CPU from a task that is in the data
    /// plane (`local_bh_disable`). Else tasks are threads of a program, and may lose it anywhere.
    pub fn kernel(&mut self, kernel: bool) {
        self.engine.os.kernel = kernel;
    }

    /// Whether who waits for a lock, or for any other word, sleeps until it is written: the real-time kernel's locks.
    pub fn sleeping_locks(&mut self, sleeping: bool) {
        self.engine.os.sleeping = sleeping;
    }

    /// How many CPUs there are.
    pub fn cpus(&self) -> u32 {
        self.engine.lines.topology().cpus()
    }

    /// A task more.
    ///
    /// # Panics
    /// When it shall be on a CPU that does not exist, or there is no memory for its stack.
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
        let mut thread = Thread::new(task.name, task.cpu, cpu, seed, Stores::new(eng.stores));
        thread.urgent = task.urgent;
        thread.raised = task.raised;
        thread.due = eng.put(task.start, Target::Task(id));
        eng.tasks.push(thread);
        eng.ahead.push(Ahead::default());
        eng.plan_move(id, task.start);
        let stack = STACKS.with_borrow_mut(Vec::pop).unwrap_or_else(|| {
            DefaultStack::new(STACK).unwrap_or_else(|e| panic!("no memory for a task's stack: {e}"))
        });
        lines::name_stack(stack.limit().get(), stack.base().get());
        self.tasks.push(Some(Coroutine::with_stack(stack, move |yielder, ()| body(yielder, f))));
    }

    /// Runs until a time, or until no task has anything to do any more. Then the tasks that still run are ended: each goes on
    /// to where it calls something of [`sim`](crate::sim) or waits for an [`Event`](txq::arch::Event), and is unwound there.
    ///
    /// # Panics
    /// With what a task panics with.
    pub fn run(mut self, until: Picos) -> Outcome {
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
            self.go(e, now + END, ENDING);
        }
        drop(entered);
        arch::end(now);
        // SAFETY: as above.
        let eng = unsafe { &mut *e };
        for (task, thread) in self.tasks.iter_mut().zip(&eng.tasks) {
            if let Some(coro) = task.take_if(|coro| coro.started()) {
                // Others may point to what is on its stack: it must stay.
                outcome.stuck.push(thread.name.clone());
                mem::forget(coro);
            }
        }
        if let Some(payload) = eng.panic.take() {
            panic::resume_unwind(payload);
        }
        outcome
    }

    /// Runs until a time, or until no task has anything to do any more. The world stands then, and what its tasks use can be
    /// looked at from outside.
    ///
    /// # Panics
    /// With what a task panics with, when the world is [run](World::run) to its end.
    pub fn advance(&mut self, until: Picos) {
        let e: *mut Engine = &raw mut *self.engine;
        let _entered = Entered::new(e);
        self.go(e, until, u64::MAX);
        arch::end(until);
    }

    /// What each CPU did until `now`, where the world stands.
    pub fn uses(&mut self, now: Picos) -> Vec<CpuUse> {
        self.engine.uses(now)
    }

    /// Times that a task got a CPU.
    pub fn switches(&self) -> u64 {
        self.engine.switches
    }

    /// Tasks that have a CPU or wait for one (`vmstat`'s r).
    pub fn runnable(&self) -> usize {
        self.engine.tasks.iter().filter(|t| !matches!(t.state, State::Sleeping | State::Done)).count()
    }

    /// Where the time of each task went, by its name.
    pub fn ledgers(&self) -> Vec<(&str, Ledger)> {
        self.engine.tasks.iter().map(|t| (t.name.as_str(), t.ledger)).collect()
    }

    /// Has the data plane name its parts from now on, for [`watch_lines`](World::watch_lines): before the device is made.
    pub(crate) fn name_lines(&mut self) {
        lines::ask();
    }

    /// Counts what each cache line costs from a time on: before anything runs. It takes time, but none of the world's.
    pub(crate) fn watch_lines(&mut self, from: Picos) {
        self.engine.watch_lines(from);
    }

    /// What cache lines cost until `now`, by what lies on them, the most expensive ones first. Empty if nobody
    /// [watched](World::watch_lines) them.
    pub(crate) fn line_uses(&self, now: Picos) -> Vec<LineUse> {
        self.engine.line_uses(now)
    }

    /// Has events happen until a time; tells whether there are some that are later.
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
            let stack = place.take().expect("it was there").into_stack();
            STACKS.with_borrow_mut(|stacks| stacks.push(stack));
        }
    }
}

fn task_use(thread: &Thread) -> TaskUse {
    TaskUse { name: thread.name.clone(), busy: thread.busy, spinning: thread.spinning }
}

/// A task's life.
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
    /// Tasks that are not done.
    pub fn alive(&self) -> usize {
        self.engine.tasks.iter().filter(|t| t.state != State::Done).count()
    }
}
