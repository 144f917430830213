//! The data plane under model checkers.
//!
//! [`Loom`] runs every interleaving of a small program, up to a bound on preemptions, under C11's memory model: a missing
//! `Release` fails here even though x86 would forgive it. [`Shuttle`] runs random and priority-based (PCT) schedules of a
//! larger program, sequentially consistent. Both are [`Arch`]s, so they check the code that ships; and both are a [`Model`],
//! so that one scenario is written once and run under each at its own size. Each protocol has a test file; `mutants.toml`
//! lists the lines that the tests guard, and the `mutants` program breaks each line and expects a test to fail.

mod facade;
mod instances;
mod loom;
mod shuttle;

pub use instances::INSTANCES;
pub use loom::Loom;
pub use shuttle::Shuttle;

use txq_core::arch::{Arch, CpuId};

/// A model checker.
pub trait Model: Arch {
    /// Runs `scenario` repeatedly, each time with another interleaving of its threads, and panics if one fails.
    fn check(scenario: impl Fn() + Send + Sync + 'static);

    /// Starts a thread of the scenario on CPU `cpu`; returns a closure that joins it.
    fn spawn<T: Send + 'static>(
        cpu: CpuId,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> impl FnOnce() -> T + Send + 'static;
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
