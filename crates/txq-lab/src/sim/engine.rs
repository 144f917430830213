//! The engine: tasks that take turns by their virtual clocks, so that all accesses happen in the order of virtual time.
//!
//! A task is a coroutine with a clock of its own. Plain work only advances that clock. Before an access, the task yields its
//! turn to every task with an earlier event ([`sync`]). Then it requests the line and learns when the access completes; if
//! other events come before that, it yields its turn once more. So the value of an atomic is read or written when the access
//! is complete and no event is earlier: the order of effects is the order of time. A task that owns its lines and is the
//! earliest continues without any switch.
//!
//! There is one exception, for memory whose users take turns by a protocol (cells, plain memory): while such a line is
//! private to one CPU, accesses to it concern no other task, and the task keeps its turn.
//!
//! Everything here runs on one OS thread. The engine is reached by a raw pointer. No reference to it lives while a task
//! yields its turn, because the next task creates its own.

use std::any::Any;
use std::cell::Cell;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use corosensei::Yielder;

use crate::sim::ahead::Ahead;
use crate::sim::cache::{Lines, NONE};
use crate::sim::core_speed::{CoreSpeed, UNIT};
use crate::sim::footprint::Footprint;
use crate::sim::lines::Watch;
use crate::sim::machine::{Machine, Picos, picos};
use crate::sim::moves::{Known, Recent};
use crate::sim::os::{Cpu, OsCosts, State, Thread};
use crate::sim::prices::PriceList;
use crate::sim::queue::{Event, Queue, Target};
use crate::sim::sequence::Sequences;
use crate::sim::times::AddressHasher;

mod access;
mod fire;

pub(crate) use access::{
    access, load_cell, load_link, move_lines, read, read_now, release, store, update, write, written,
};

thread_local! {
    /// The engine whose task runs on this thread; null when none does.
    static ENGINE: Cell<*mut Engine> = const { Cell::new(std::ptr::null_mut()) };
}

/// Returns the engine whose task calls; null when no task does.
#[inline]
pub(crate) fn engine() -> *mut Engine {
    ENGINE.get()
}

/// Makes an engine the one of this thread's tasks while it lives.
pub(crate) struct Entered;

impl Entered {
    pub(crate) fn new(engine: *mut Engine) -> Self {
        assert!(ENGINE.get().is_null(), "a task of one world cannot run another");
        ENGINE.set(engine);
        Self
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        ENGINE.set(std::ptr::null_mut());
    }
}

/// The panic payload that ends a task when its world's time is over.
pub(crate) struct Ended;

pub(crate) struct Engine {
    /// The clock of the running task.
    pub(crate) now: Picos,
    /// The running task need not check for other events until its clock reaches this time.
    pub(crate) horizon: Picos,
    /// The running task.
    pub(crate) current: u32,
    /// The running task's CPU.
    pub(crate) cpu: u32,
    /// The line of the last access.
    line: u32,
    pub(crate) hash: u64,
    pub(crate) accesses: u64,
    pub(crate) switches: u64,
    pub(crate) migrations: u64,
    pub(crate) queue: Queue,
    /// Taken from the queue by the task that yielded its turn; the next event to process.
    next: Option<Event>,
    pub(crate) lines: Lines,
    pub(crate) tasks: Vec<Thread>,
    /// For each task that does not run: the host memory it will need.
    pub(crate) ahead: Vec<Ahead>,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) os: OsCosts,
    pub(crate) prices: PriceList,
    /// Number of lines that a core can wait for while it continues (its store buffer).
    pub(crate) stores: u32,
    /// Number of lines that a core can load at a time, and the work that it can do ahead of a load.
    pub(crate) loads: u32,
    pub(crate) window: Picos,
    /// The time between two hits that do not wait for each other.
    pub(crate) gap: Picos,
    /// The time after which a waiter loads the value again, at least 1.
    pub(crate) pause: Picos,
    /// How fast cores work.
    pub(crate) pace: CoreSpeed,
    /// Factor on the time of the running task's work, in parts of [`UNIT`], as it was when the task got its turn.
    pub(crate) slowness: Picos,
    pub(crate) sequences: Sequences,
    pub(crate) footprint: Footprint,
    /// The qdiscs' state, if it is known.
    pub(crate) known: Option<Known>,
    /// What the last calls of each qdisc accessed, by the key of its first line.
    pub(crate) recent: HashMap<u64, Recent, BuildHasherDefault<AddressHasher>>,
    /// Number of CPUs whose tasks must give them up.
    pub(crate) rescheds: u32,
    /// Number of CPUs without a task.
    pub(crate) idle: u32,
    /// Number of tasks that wait for a CPU and are not pinned.
    pub(crate) roaming: u32,
    pub(crate) random: u64,
    /// Whether the time now counts: false during the warm-up and the ending.
    pub(crate) counting: bool,
    /// Whether the time is over: tasks end where they can.
    pub(crate) ending: bool,
    /// The payload of a task's panic.
    pub(crate) panic: Option<Box<dyn Any + Send>>,
    pub(crate) watch: Option<Box<Watch>>,
}

impl Engine {
    pub(crate) fn new(machine: &Machine, prices: PriceList, seed: u64) -> Self {
        let lines = Lines::new(machine);
        let cpus = lines.topology().cpus();
        Self {
            now: 0,
            horizon: 0,
            current: NONE,
            cpu: 0,
            line: NONE,
            hash: 0xCBF2_9CE4_8422_2325,
            accesses: 0,
            switches: 0,
            migrations: 0,
            queue: Queue::default(),
            next: None,
            tasks: Vec::new(),
            ahead: Vec::new(),
            cpus: (0..cpus).map(|_| Cpu::new()).collect(),
            os: OsCosts::new(&machine.os),
            prices,
            stores: machine.line.stores,
            gap: picos(if machine.access.hit_gap > 0.0 {
                machine.access.hit_gap
            } else {
                machine.access.hit
            }),
            loads: machine.line.loads,
            window: picos(machine.core.window),
            pause: picos(machine.core.pause).max(1),
            pace: CoreSpeed::new(&machine.core, lines.topology()),
            slowness: UNIT,
            lines,
            sequences: Sequences::new(cpus, machine.line.ahead),
            footprint: Footprint::default(),
            known: None,
            recent: HashMap::default(),
            rescheds: 0,
            idle: cpus,
            roaming: 0,
            random: seed,
            counting: true,
            ending: false,
            panic: None,
            watch: None,
        }
    }

    /// Adds an event; returns its sequence number. Lowers the horizon, so the running task stops at `at` at the latest.
    pub(crate) fn put(&mut self, at: Picos, target: Target) -> u64 {
        self.horizon = self.horizon.min(at);
        self.queue.put(at, target)
    }

    /// Takes the next event.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Event> {
        self.next.take().or_else(|| self.queue.take())
    }

    /// Counts a complete access and adds it to the hash.
    #[inline]
    fn note(&mut self, line: u32) {
        self.line = line;
        self.accesses += 1;
        let what = self.now ^ u64::from(self.lines.number(line)) << 44 ^ u64::from(self.current) << 24;
        self.hash = (self.hash.rotate_left(5) ^ what).wrapping_mul(0x517C_C1B7_2722_0A95);
    }

    pub(crate) fn me(&mut self) -> &mut Thread {
        &mut self.tasks[self.current as usize]
    }
}

/// Yields the turn; returns when the task has it again.
///
/// # Safety
/// `e` is the engine whose task calls, and no reference to it is alive.
unsafe fn switch(e: *mut Engine) {
    // SAFETY: as the caller promises; the reference ends with the statement. The yielder is that of the coroutine that
    // calls, which lives as long as that does.
    unsafe {
        let yielder: *const Yielder<(), ()> = (*e).me().yielder;
        let top = 0_u8;
        let current = (*e).current as usize;
        (&mut (*e).ahead)[current].top = (&raw const top).addr();
        (*yielder).suspend(());
    }
}

/// Yields the turn until `at`, which is not before the first event.
///
/// # Safety
/// As [`switch`].
unsafe fn switch_until(e: *mut Engine, at: Picos, state: State) {
    // SAFETY: the reference ends before the switch.
    let eng = unsafe { &mut *e };
    let task = eng.current;
    let (event, seq) = eng.queue.replace_first(at, Target::Task(task));
    eng.next = Some(event);
    let me = eng.me();
    (me.due, me.due_at, me.state) = (seq, at, state);
    // SAFETY: as the caller promises.
    unsafe { switch(e) };
}

/// Lets all tasks go first whose event is not later than this task's clock.
///
/// # Safety
/// As [`switch`].
#[inline]
pub(crate) unsafe fn sync(e: *mut Engine) {
    // SAFETY: as the caller promises.
    unsafe {
        if (*e).now >= (*e).horizon {
            sync_slow(e);
        }
    }
}

/// # Safety
/// As [`switch`].
unsafe fn sync_slow(e: *mut Engine) {
    loop {
        // SAFETY: the reference ends before each switch.
        let eng = unsafe { &mut *e };
        if eng.resched(eng.cpu) {
            if eng.give_cpu() {
                // SAFETY: as the caller promises.
                unsafe { switch(e) };
            } else {
                eng.set_horizon();
            }
        } else if eng.now >= eng.queue.first() {
            let now = eng.now;
            // This task is the first when it resumes: others of the same time come after it.
            // SAFETY: as the caller promises; a new reference, after the switch.
            let eng = unsafe {
                switch_until(e, now, State::Running);
                &mut *e
            };
            if !eng.resched(eng.cpu) {
                return;
            }
        } else {
            return eng.set_horizon();
        }
    }
}

/// Waits until another task writes to the line of the last access, or until the deadline if there is one. Returns whether
/// the deadline has passed.
///
/// # Safety
/// As [`switch`].
pub(crate) unsafe fn park(e: *mut Engine, deadline: Option<Picos>) -> bool {
    // SAFETY: the reference ends before the switch.
    let eng = unsafe { &mut *e };
    let (task, line) = (eng.current, eng.line);
    if deadline.is_some_and(|at| at <= eng.now) {
        return true;
    }
    let began = eng.now;
    eng.lines.wait(line, task);
    eng.start_waiting(deadline);
    // SAFETY: as the caller promises.
    unsafe { switch(e) };
    // SAFETY: a new reference, after the switch.
    let eng = unsafe { &mut *e };
    let time = eng.now - began;
    eng.me().spent.waits += time;
    if eng.watch.is_some() {
        eng.watch_wait(line, time);
    }
    eng.me().expired
}

/// Sleeps until woken, or until the deadline if there is one. Ends the task if its world's time is over.
///
/// # Safety
/// As [`switch`].
pub(crate) unsafe fn sleep(e: *mut Engine, deadline: Option<Picos>) {
    // SAFETY: the reference ends before each switch.
    unsafe {
        // Not before `sync`: the world's time may end while others go first.
        sync(e);
        end_here(e);
        if deadline.is_some_and(|at| at <= (*e).now) {
            return;
        }
        (*e).start_sleep(deadline);
        switch(e);
        end_here(e);
    }
}

/// Gives the CPU to a task that waits for it, and waits for it in turn. If there is none, only the call takes time.
///
/// # Safety
/// As [`switch`].
pub(crate) unsafe fn yield_cpu(e: *mut Engine) {
    /// A call of `sched_yield` that finds no other task takes 28 % of a switch on a virtual machine of an EPYC (Genoa).
    const CALL: Picos = 28;
    // SAFETY: the reference ends before the switch.
    unsafe {
        sync(e);
        let eng = &mut *e;
        eng.spend(eng.os.switch * CALL / 100);
        if eng.give_cpu() {
            switch(e);
        }
    }
}

/// Ends the task if its world's time is over and it is not ending yet. Its destructors run like any task's code.
///
/// # Safety
/// As [`switch`]; and the caller must be at a point where a task may end: it holds no lock and is in no driver.
pub(crate) unsafe fn end_here(e: *mut Engine) {
    // SAFETY: the reference ends before the unwinding begins.
    let eng = unsafe { &mut *e };
    if eng.ending && !std::mem::replace(&mut eng.me().unwinds, true) {
        std::panic::resume_unwind(Box::new(Ended));
    }
}

/// Ends the task, whose function has returned.
///
/// # Safety
/// As [`switch`]; the caller's coroutine returns next.
pub(crate) unsafe fn finish(e: *mut Engine) {
    // SAFETY: no reference is alive over the switch.
    unsafe {
        sync(e);
        (*e).end_task();
    }
}

/// Returns a pseudorandom number (SplitMix64).
pub(crate) fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

/// Converts nanoseconds to picoseconds, saturating.
pub(crate) fn from_nanos(ns: u64) -> Picos {
    ns.saturating_mul(1000)
}
