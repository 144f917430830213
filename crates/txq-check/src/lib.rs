//! The data plane under model checkers.
//!
//! [`Loom`] runs every interleaving of a small program, up to a bound on preemptions, under C11's memory model: a
//! missing `Release` fails here even though x86 would forgive it. [`Shuttle`] runs random and priority-based (PCT)
//! schedules of a larger one, sequentially consistent. Both are [`Arch`]s, so what is checked is the code that is
//! shipped; and both are a [`Model`], so that one scenario is written once and run under each at its own size. The
//! tests have a file for each protocol; `mutants.toml` lists the lines that they guard, and the `mutants` program
//! breaks each and sees a test fail.

mod facade;
mod loom;
mod shuttle;

pub use loom::Loom;
pub use shuttle::Shuttle;

use txq::arch::{Arch, CpuId};

/// A model checker.
pub trait Model: Arch {
    /// Runs `scenario` again and again, each time with another interleaving of its threads, and panics if one fails.
    fn check(scenario: impl Fn() + Send + Sync + 'static);

    /// A thread of the scenario, on a CPU of its own number. The closure returned joins it.
    fn spawn<T: Send + 'static>(
        cpu: CpuId,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> impl FnOnce() -> T + Send + 'static;
}

/// The variable that says how many schedules a search under shuttle tries of each kind.
pub const SCHEDULES: &str = "TXQ_CHECK_SCHEDULES";

/// Whether to search further than every run of the tests can afford: `TXQ_CHECK_DEEP=1`.
pub fn deep() -> bool {
    std::env::var_os("TXQ_CHECK_DEEP").is_some_and(|v| v == "1")
}
