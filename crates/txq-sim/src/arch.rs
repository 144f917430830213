//! The data plane's view of the machine: [`Sim`], an [`Arch`] whose accesses the engine orders and charges for.
//!
//! Outside of a task, as when a device is built before the world runs and looked at afterwards, accesses cost nothing and
//! the clock stands, but that a [`relax`](Arch::relax) advances it. [`World::new`](crate::World::new) sets it to 0, and what
//! looks random to its seed: make the world first and then what shall run in it.
//!
//! Values are sequentially consistent: orderings are ignored, and weak exchanges fail only when the value is another.

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{self as atomics, Ordering, Ordering::SeqCst};

use txq::arch::{Access, Arch, CellApi, CpuId, Event, Nanos, Work};

use crate::cache::{Kind, OBJECT};
use crate::engine::{self, Engine, engine, from_nanos};
use crate::ledger::Phase;
use crate::machine::Picos;

mod atomic;

pub(crate) use atomic::{AtomicU32, AtomicU64, Ptr};
use atomic::{access, line};

thread_local! {
    /// The clock where no task runs.
    static CLOCK: Cell<Nanos> = const { Cell::new(0) };
    /// The CPU where no task runs.
    static CPU: Cell<CpuId> = const { Cell::new(0) };
    /// Where numbers come from that look random, where no task runs.
    static RANDOM: Cell<u64> = const { Cell::new(0) };
    /// Driver calls that the thread is inside of where no task runs.
    static IN_DRIVER: Cell<u32> = const { Cell::new(0) };
}

/// A world begins on this thread, at time 0.
pub(crate) fn begin(seed: u64) {
    CLOCK.set(0);
    RANDOM.set(seed);
}

/// Calls `f`, in which no task runs, as if that were on a CPU.
pub(crate) fn on_cpu<R>(cpu: CpuId, f: impl FnOnce() -> R) -> R {
    let before = CPU.replace(cpu);
    let r = f();
    CPU.set(before);
    r
}

/// A world has ended.
pub(crate) fn end(now: Picos) {
    CLOCK.set(now / 1000);
}

/// What `relax` waits for: natively a short sleep.
const RELAX: Nanos = 50_000;
/// Lines of an object that a touch stands for at most: of a large one not all are used at a time.
const TOUCHED: usize = 2;

/// The machine that is simulated.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sim;

/// An access to memory whose users take turns.
#[inline]
fn cell(key: u64, kind: Kind) {
    let e = engine();
    if !e.is_null() {
        // SAFETY: the engine whose task calls.
        unsafe { engine::access_cell(e, key, kind) };
    }
}

/// Memory of the simulated machine that one task at a time may touch. An access is to the line that it begins in.
#[derive(Debug)]
#[repr(transparent)]
pub struct SimCell<T>(UnsafeCell<T>);

impl<T> CellApi<T> for SimCell<T> {
    fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }
    #[inline]
    fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        cell(line(self), Kind::Load);
        f(self.0.get())
    }
    #[inline]
    fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        cell(line(self), Kind::Store);
        f(self.0.get())
    }
}

/// A sleep of the simulated machine, with a line of its own.
#[derive(Debug)]
#[repr(align(64))]
pub struct Sleep {
    token: atomics::AtomicBool,
    /// The task that sleeps, and one more; 0 for none.
    sleeper: atomics::AtomicU32,
}

impl Event for Sleep {
    fn new() -> Self {
        Self { token: atomics::AtomicBool::new(false), sleeper: atomics::AtomicU32::new(0) }
    }

    fn notify(&self) {
        access(line(self), Kind::Rmw, || self.token.store(true, SeqCst));
        let (e, sleeper) = (engine(), self.sleeper.swap(0, SeqCst));
        if sleeper != 0 && !e.is_null() {
            // SAFETY: the engine whose task calls; its tasks are the ones that sleep here while it runs.
            unsafe {
                let eng = &mut *e;
                let now = eng.now;
                eng.wake_up(sleeper - 1, now);
                // An interrupt is the device's work.
                if !eng.tasks[sleeper as usize - 1].urgent {
                    eng.spend(eng.os.wake);
                }
            }
        }
    }

    fn wait(&self, deadline: Option<Nanos>) {
        let take = || access(line(self), Kind::Rmw, || self.token.swap(false, SeqCst));
        let e = engine();
        if take() {
            return;
        }
        if e.is_null() {
            let at = deadline.expect("nobody else runs who could end this sleep");
            return CLOCK.set(CLOCK.get().max(at));
        }
        /// Who has left does not sleep, be it by unwinding.
        struct Asleep<'s>(&'s Sleep);
        impl Drop for Asleep<'_> {
            fn drop(&mut self) {
                self.0.sleeper.store(0, SeqCst);
            }
        }
        // SAFETY: the engine whose task calls; no reference to it is alive over the sleep.
        unsafe {
            engine::end_here(e);
            engine::sync(e);
            // Somebody may have given it while others went first.
            if !self.token.load(SeqCst) {
                self.sleeper.store((*e).current + 1, SeqCst);
                let _asleep = Asleep(self);
                engine::sleep(e, deadline.map(from_nanos));
            }
        }
        take();
    }
}

/// Passes time on the clock of the task that calls.
fn spend(time: impl FnOnce(&Engine) -> u64) {
    let e = engine();
    if !e.is_null() {
        // SAFETY: the engine whose task calls; the reference ends here.
        unsafe {
            let time = time(&*e);
            (*e).spend(time);
        }
    }
}

impl Arch for Sim {
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;
    type AtomicPtr<T: 'static> = Ptr<T>;
    type Cell<T> = SimCell<T>;
    type Event = Sleep;

    fn fence(_: Ordering) {
        spend(|e| e.lines.hit(Kind::Rmw));
    }

    fn cpu() -> CpuId {
        let e = engine();
        // SAFETY: the engine whose task calls.
        if e.is_null() { CPU.get() } else { unsafe { (*e).cpu } }
    }

    fn now() -> Nanos {
        let e = engine();
        if e.is_null() {
            return CLOCK.get();
        }
        spend(|e| e.os.clock);
        // SAFETY: the engine whose task calls.
        unsafe { (*e).now / 1000 }
    }

    fn relax() {
        let e = engine();
        if e.is_null() {
            return CLOCK.set(CLOCK.get() + RELAX);
        }
        // SAFETY: the engine whose task calls.
        unsafe { engine::sleep(e, Some((*e).now + from_nanos(RELAX))) };
    }

    fn thread() -> u64 {
        let e = engine();
        // SAFETY: the engine whose task calls.
        if e.is_null() { u64::MAX } else { unsafe { u64::from((*e).current) + 1 } }
    }

    fn in_driver<R>(f: impl FnOnce(&Cell<u32>) -> R) -> R {
        let e = engine();
        if e.is_null() {
            return IN_DRIVER.with(f);
        }
        // SAFETY: the cell is in a box of its own and lives as long as its task, which calls.
        let depth: *const Cell<u32> = unsafe { &raw const *(*e).me().in_driver };
        // SAFETY: as above; only this task uses it.
        f(unsafe { &*depth })
    }

    fn random() -> u64 {
        let e = engine();
        if e.is_null() {
            let mut state = RANDOM.get();
            let random = engine::random(&mut state);
            RANDOM.set(state);
            return random;
        }
        // SAFETY: the engine whose task calls.
        unsafe { engine::random(&mut (*e).me().random) }
    }

    fn work(ns: u64) {
        spend(|_| from_nanos(ns));
    }

    #[inline]
    fn spend(what: Work) {
        let e = engine();
        if !e.is_null() {
            // SAFETY: the engine whose task calls; the reference ends here.
            unsafe {
                let eng = &mut *e;
                eng.begin(Phase::of(what));
                eng.spend(eng.prices.of(what));
            }
        }
    }

    #[inline]
    fn touch<T: ?Sized>(at: &T, how: Access) {
        if engine().is_null() {
            return;
        }
        let kind = if how == Access::Read { Kind::Load } else { Kind::Store };
        let from = std::ptr::from_ref(at).addr();
        for i in 0..size_of_val(at).div_ceil(64).min(TOUCHED) {
            let at = (from + 64 * i) as u64;
            // What does not begin with a line is counted as if it did: its lines are its own, whatever lies beside it.
            cell(if from.is_multiple_of(64) { at >> 6 } else { OBJECT | at }, kind);
        }
    }
}
