//! What a task can ask for beside what an [`Arch`](txq::arch::Arch) offers. All of it but [`on_cpu`] is for tasks only, and
//! panics elsewhere.

use crate::engine::{Engine, end_here, engine, random as next_random, sleep, sync};
use crate::ledger::Phase;
use crate::machine::Picos;
use crate::queue::Target;

/// How far a task's clock may be ahead of others' when it works.
const AHEAD: Picos = 10_000_000;

fn here() -> *mut Engine {
    let e = engine();
    assert!(!e.is_null(), "only a task of a simulated world has a clock and a CPU of it");
    e
}

/// Calls `f` outside of a world as if it ran on a CPU: what a thread's handles are made with, before the task that uses them
/// runs there.
pub fn on_cpu<R>(cpu: u32, f: impl FnOnce() -> R) -> R {
    crate::arch::on_cpu(cpu, f)
}

/// Works for a time on what nobody else sees. The task may be ended here when its world's time is over, so it holds no lock;
/// [`Arch::work`](txq::arch::Arch::work) is for where it may.
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
        // Nobody else is concerned; but a task that does nothing else is not to run away from the world.
        if (*e).now > (*e).horizon.saturating_add(AHEAD) {
            sync(e);
        }
    }
}

/// Enters the data plane, which [`work`] leaves again: in a kernel nobody takes the CPU from the task between.
pub fn enter() {
    // SAFETY: as in `work`.
    unsafe { (*here()).begin(Phase::Alloc) };
}

/// The time on the task's clock.
pub fn now() -> Picos {
    // SAFETY: as in `work`.
    unsafe { (*here()).now }
}

/// Sleeps until a time. As in [`work`], the task may be ended here.
pub fn sleep_until(at: Picos) {
    // SAFETY: as in `work`.
    unsafe { sleep(here(), Some(at)) }
}

/// Lets all tasks go first whose clocks are not ahead of the caller's.
pub fn yield_now() {
    // SAFETY: as in `work`.
    unsafe { sync(here()) }
}

/// The CPU that has the task.
pub fn cpu() -> u32 {
    // SAFETY: as in `work`.
    unsafe { (*here()).cpu }
}

/// A number that looks random. The task has a row of its own, which the world's seed and its own number make.
pub fn random() -> u64 {
    // SAFETY: as in `work`.
    unsafe { next_random(&mut (*here()).me().random) }
}

/// Has a task that sleeps, by its number, woken at a time: what a device's interrupt does. Nobody pays for it.
pub fn interrupt(task: u32, at: Picos) {
    // SAFETY: as in `work`.
    unsafe { (*here()).put(at, Target::Wake(task)) };
}

/// The number of the task that calls, from 0 on, in the order in which tasks were made.
pub fn task() -> u32 {
    // SAFETY: as in `work`.
    unsafe { (*here()).current }
}

/// Whether what happens counts: the warm-up is over, and the world's time is not.
pub fn is_counting() -> bool {
    // SAFETY: as in `work`.
    unsafe { (*here()).counting }
}

/// Whether the world's time is over.
pub fn is_ending() -> bool {
    // SAFETY: as in `work`.
    unsafe { (*here()).ending }
}
