//! loom as an `Arch`: every interleaving, and every value that C11 allows a load to return.
//!
//! loom's limits bound the tests: five threads, of which the first only starts the scenario; seven remembered stores per
//! atomic, `SeqCst` accesses treated as `AcqRel` (`fence(SeqCst)` is modelled), and stores to one atomic take effect in the
//! order of execution. It needs no `cfg`: the data plane names no atomic except through its `Arch`.

use std::sync::Arc;

use txq_core::arch::{Arch, CellApi};

use crate::Model;
use crate::clock;
use crate::facade::facade;

facade!(loom);

/// Number of failed checks by a thread after which its execution is followed to its end, but not branched any further.
const PAUSES: u32 = 2;
/// Size of a thread's stack, in words.
const STACK: usize = 16 << 10;

::loom::thread_local! {
    static PAUSED: std::cell::Cell<u32> = std::cell::Cell::new(0);
}

/// Lets other threads run. Two threads that wait for a third can take turns for ever, and loom would explore each number of
/// turns, although a thread that checks once more without success has done nothing that others can observe.
fn pause() {
    let paused = PAUSED.with(|p| p.replace(p.get() + 1));
    if paused >= PAUSES {
        ::loom::skip_branch();
    }
    ::loom::thread::yield_now();
}

/// The machine that loom models.
#[derive(Debug, Clone, Copy, Default)]
pub struct Loom;

/// `UnsafeCell` that checks its accesses: an access that is not ordered after the last write is a failure.
#[derive(Debug)]
pub struct Cell<T>(::loom::cell::UnsafeCell<T>);

impl<T> CellApi<T> for Cell<T> {
    fn new(value: T) -> Self {
        Self(::loom::cell::UnsafeCell::new(value))
    }
    fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        self.0.with(f)
    }
    fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        self.0.with_mut(f)
    }
    fn access_ends(&self) {
        self.0.with_mut(|_| ());
    }
}

// SAFETY: atomics, fence and cell are loom's, which model std's.
unsafe impl Arch for Loom {
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;
    type AtomicPtr<T: 'static> = Ptr<T>;
    type Cell<T> = Cell<T>;
    type Event = Sleep;

    fn fence(order: Ordering) {
        ::loom::sync::atomic::fence(order);
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

impl Loom {
    /// As [`check`](Model::check), for a scenario whose interleavings with two preemptions take longer than every run of the
    /// tests can afford: those with one preemption, and with two where [`is_thorough`](crate::is_thorough), as the mutants are.
    pub fn check_long(scenario: impl Fn() + Send + Sync + 'static) {
        match crate::is_thorough() {
            true => Loom::check(scenario),
            false => Loom::check_to(1, scenario),
        }
    }

    /// Runs all interleavings with at most `preemptions`, for a scenario that takes too long to explore further.
    pub fn check_to(preemptions: usize, scenario: impl Fn() + Send + Sync + 'static) {
        explore(preemptions, Box::new(scenario));
    }
}

/// [`Loom::check_to`] of a boxed scenario.
fn explore(preemptions: usize, scenario: Box<dyn Fn() + Send + Sync>) {
    let mut model = ::loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 10_000;
    let scenario: Arc<dyn Fn() + Send + Sync> = scenario.into();
    model.check(move || {
        clock::begin();
        let scenario = scenario.clone();
        thread(Box::new(move || scenario())).join().expect("a thread that panics ends the model");
    });
}

/// Starts a thread with a stack that a device fits on; that of loom's first thread is 32 KiB.
fn thread(f: Box<dyn FnOnce() + Send>) -> ::loom::thread::JoinHandle<()> {
    ::loom::thread::Builder::new().stack_size(STACK).spawn(f).expect("loom starts a thread")
}

impl Model for Loom {
    /// Runs all interleavings with at most two preemptions, or three in a deep search. Bugs that need more are rare
    /// (Musuvathi and Qadeer, PLDI 2007).
    fn check_boxed(scenario: Box<dyn Fn() + Send + Sync>) {
        explore(if crate::deep() { 3 } else { 2 }, scenario);
    }

    fn spawn_boxed(cpu: CpuId, f: Box<dyn FnOnce() + Send>) -> Box<dyn FnOnce() + Send> {
        let thread = thread(Box::new(move || {
            CPU.with(|c| c.set(cpu));
            f();
        }));
        Box::new(|| thread.join().expect("a thread that panics ends the model"))
    }
}
