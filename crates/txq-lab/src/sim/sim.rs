//! Functions for tasks beyond the [`Arch`](txq_core::arch::Arch) interface. All of them except [`on_cpu`] panic outside of tasks.

use crate::sim::engine::{Engine, end_here, engine, random as next_random, sleep, sync};
use crate::sim::ledger::Phase;
use crate::sim::machine::Picos;
use crate::sim::queue::Target;

/// How far [`work`] may move a task's clock ahead of the next event.
const WORK_AHEAD: Picos = 10_000_000;

fn here() -> *mut Engine {
    let e = engine();
    assert!(!e.is_null(), "only a task of a simulated world has a clock and a CPU of it");
    e
}

/// Calls `f` outside of a world as if on a CPU, and returns its result: to create a thread's handles before its task runs
/// there.
pub fn on_cpu<R>(cpu: u32, f: impl FnOnce() -> R) -> R {
    crate::sim::arch::on_cpu(cpu, f)
}

/// Works for `time` without touching shared memory. The world may end the task here when its time is over, so the task must
/// hold no lock; where it may hold one, use [`Arch::work`](txq_core::arch::Arch::work).
pub fn work(time: Picos) {
    let e = here();
    // SAFETY: the engine of the task that calls; no reference to it is alive.
    unsafe {
        end_here(e);
        (*e).begin(Phase::Private);
        if (*e).horizon == 0 {
            sync(e);
        }
        (*e).spend(time);
        // Private work concerns no other task, but a task that only works must not run away from the world.
        if (*e).now > (*e).horizon.saturating_add(WORK_AHEAD) {
            sync(e);
        }
    }
}

/// Enters the data plane; [`work`] leaves it. In a kernel nothing takes the CPU from the task in between.
pub fn enter() {
    // SAFETY: as in `work`.
    unsafe { (*here()).begin(Phase::Alloc) };
}

/// Returns the time of the task's clock.
pub fn now() -> Picos {
    // SAFETY: as in `work`.
    unsafe { (*here()).now }
}

/// Sleeps until `at`. The world may end the task here, as in [`work`].
pub fn sleep_until(at: Picos) {
    // SAFETY: as in `work`.
    unsafe { sleep(here(), Some(at)) }
}

/// Lets all tasks go first whose clocks are not ahead of the caller's.
pub fn yield_now() {
    // SAFETY: as in `work`.
    unsafe { sync(here()) }
}

/// Returns the task's CPU.
pub fn cpu() -> u32 {
    // SAFETY: as in `work`.
    unsafe { (*here()).cpu }
}

/// Returns a pseudorandom number. Each task has its own sequence, seeded by the world's seed and the task's number.
pub fn random() -> u64 {
    // SAFETY: as in `work`.
    unsafe { next_random(&mut (*here()).me().random) }
}

/// Wakes task number `task` at a time, if it sleeps then: a device's interrupt. It costs no task anything.
pub fn interrupt(task: u32, at: Picos) {
    // SAFETY: as in `work`.
    unsafe { (*here()).put(at, Target::Wake(task)) };
}

/// Returns the calling task's number, from 0 in the order of their creation.
pub fn task() -> u32 {
    // SAFETY: as in `work`.
    unsafe { (*here()).current }
}

/// Returns whether the time counts: the warm-up is over, and the world's time is not.
pub fn is_counting() -> bool {
    // SAFETY: as in `work`.
    unsafe { (*here()).counting }
}

/// Returns whether the world's time is over.
pub fn is_ending() -> bool {
    // SAFETY: as in `work`.
    unsafe { (*here()).ending }
}
