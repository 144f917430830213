//! shuttle as an `Arch`: more threads and longer programs than loom can finish, in random and in PCT schedules.
//!
//! Every atomic is sequentially consistent here, so shuttle finds lost wake-ups and broken hand-overs, never a weak
//! ordering.

use ::shuttle::scheduler::{PctScheduler, RandomScheduler};
use ::shuttle::thread::yield_now as pause;
use txq_core::arch::{Arch, NativeCell};

use crate::Model;
use crate::clock;
use crate::facade::facade;

facade!(shuttle);

/// The machine that shuttle models.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shuttle;

// SAFETY: atomics and fence are shuttle's, stronger than std's; the cell is std's.
unsafe impl Arch for Shuttle {
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;
    type AtomicPtr<T: 'static> = Ptr<T>;
    type Cell<T> = NativeCell<T>;
    type Event = Sleep;

    fn fence(order: Ordering) {
        ::shuttle::sync::atomic::fence(order);
    }
    fn cpu() -> CpuId {
        CPU.with(|cpu| cpu.get())
    }
    fn now() -> Nanos {
        clock::now()
    }
    /// Other threads may run meanwhile, or have no CPU: the accesses that follow decide.
    fn sleep(time: Nanos) {
        clock::pass(time);
    }
    fn relax() {
        pause();
    }

    fn yield_cpu() {
        pause();
    }
}

/// Size of a thread's stack, in bytes: devices fit on it.
const STACK: usize = 128 << 10;
/// Depth of the bugs that PCT finds: the number of scheduling points that must fall right.
const PCT_DEPTH: usize = 3;

impl Model for Shuttle {
    /// Runs 250 random and 250 PCT schedules, or as many as `TXQ_CHECK_SCHEDULES` says; 20,000 of each in a deep search. The
    /// seed is fixed, except in a deep search.
    fn check_boxed(scenario: Box<dyn Fn() + Send + Sync>) {
        let asked = std::env::var(crate::SCHEDULES).ok().and_then(|n| n.parse().ok());
        let schedules = if crate::deep() { 20_000 } else { asked.unwrap_or(250) };
        let scenario: std::sync::Arc<dyn Fn() + Send + Sync> = scenario.into();
        let mut config = ::shuttle::Config::new();
        config.stack_size = STACK;
        let (random, pct) = if crate::deep() {
            (RandomScheduler::new(schedules), PctScheduler::new(PCT_DEPTH, schedules))
        } else {
            (
                RandomScheduler::new_from_seed(1, schedules),
                PctScheduler::new_from_seed(1, PCT_DEPTH, schedules),
            )
        };
        let again = scenario.clone();
        ::shuttle::Runner::new(random, config.clone()).run(move || {
            clock::begin();
            again();
        });
        ::shuttle::Runner::new(pct, config).run(move || {
            clock::begin();
            scenario();
        });
    }

    fn spawn_boxed(cpu: CpuId, f: Box<dyn FnOnce() + Send>) -> Box<dyn FnOnce() + Send> {
        let thread = ::shuttle::thread::spawn(move || {
            CPU.with(|c| c.set(cpu));
            f();
        });
        Box::new(|| thread.join().expect("a thread that panics ends the model"))
    }
}
