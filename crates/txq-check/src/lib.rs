//! The data plane under model checkers.
//!
//! [`Loom`] runs every interleaving of a small program, up to a bound on preemptions, under C11's memory model: a missing
//! `Release` fails here even though x86 would forgive it. [`Shuttle`] runs random and priority-based (PCT) schedules of a
//! larger program, sequentially consistent. Both are [`Arch`]s, so they check the code that ships; and both are a [`Model`],
//! so that one scenario is written once and run under each at its own size. Each protocol has a test file; `mutants.toml`
//! lists the lines that the tests guard, and the `mutants` program breaks each line and expects a test to fail.

mod clock;
mod facade;
mod instances;
mod loom;
mod shuttle;

pub use instances::INSTANCES;
pub use loom::Loom;
pub use shuttle::Shuttle;

use std::sync::{Arc, Mutex};

use txq_core::arch::{Arch, CpuId};

/// A model checker. A checker implements the methods that take boxes: its generic code, much of what a small test
/// program consists of, is then compiled once and not again for each closure.
pub trait Model: Arch {
    /// Runs `scenario` repeatedly, each time with another interleaving of its threads, and panics if one fails.
    fn check_boxed(scenario: Box<dyn Fn() + Send + Sync>);

    /// Starts a thread of the scenario on CPU `cpu`; returns a closure that joins it.
    fn spawn_boxed(cpu: CpuId, f: Box<dyn FnOnce() + Send>) -> Box<dyn FnOnce() + Send>;

    /// [`check_boxed`](Self::check_boxed) of a closure.
    fn check(scenario: impl Fn() + Send + Sync + 'static) {
        Self::check_boxed(Box::new(scenario));
    }

    /// [`spawn_boxed`](Self::spawn_boxed) of a closure; the closure that joins the thread returns what the thread did.
    fn spawn<T: Send + 'static>(
        cpu: CpuId,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> impl FnOnce() -> T + Send + 'static {
        // std's mutex, of which the checkers know nothing: the join orders the two accesses.
        let result = Arc::new(Mutex::new(None));
        let to = result.clone();
        let join = Self::spawn_boxed(
            cpu,
            Box::new(move || {
                let value = f();
                *to.lock().expect("nothing panics under the lock") = Some(value);
            }),
        );
        move || {
            join();
            let value = result.lock().expect("nothing panics under the lock").take();
            value.expect("the thread has ended")
        }
    }
}

/// The environment variable that sets how many schedules of each kind shuttle tries.
pub const SCHEDULES: &str = "TXQ_CHECK_SCHEDULES";

/// Returns whether to search further than every run of the tests can afford: `TXQ_CHECK_DEEP=1`.
pub fn deep() -> bool {
    std::env::var_os("TXQ_CHECK_DEEP").is_some_and(|v| v == "1")
}

/// Returns whether to run the models that only repeat for one discipline what another's shows: in a deep search, and where
/// [`SCHEDULES`] is set, as the mutants do.
pub fn is_thorough() -> bool {
    deep() || std::env::var_os(SCHEDULES).is_some()
}
