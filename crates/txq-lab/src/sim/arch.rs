//! The data plane's view of the machine: [`Sim`], an [`Arch`] whose accesses the engine orders and charges for.
//!
//! Outside of a task accesses cost nothing and the clock stands, except that [`relax`](Arch::relax) advances it: the caller
//! builds a device before the world runs, and inspects it afterwards. [`World::new`](crate::sim::World::new) sets that clock to 0
//! and seeds the random numbers, so create the world before the objects that run in it.
//!
//! Values are sequentially consistent: orderings are ignored, and weak exchanges fail only when the value differs.

use std::cell::{Cell, UnsafeCell};
use std::fmt::Display;
use std::sync::atomic::{self as atomics, Ordering, Ordering::SeqCst};

use txq_core::arch::{Arch, CellApi, CpuId, Event, Inside, Memory, Nanos, Native, Work};

use crate::sim::cache::Kind;
use crate::sim::engine::{self, Engine, engine, from_nanos};
use crate::sim::ledger::Phase;
use crate::sim::lines;
use crate::sim::machine::Picos;
use crate::sim::sequence;

mod atomic;
mod plain;

pub(crate) use atomic::{AtomicU32, AtomicU64, Ptr};
use atomic::{access, line};
pub(crate) use plain::{read_packet, write_packet};

thread_local! {
    /// The clock outside of tasks.
    static CLOCK: Cell<Nanos> = const { Cell::new(0) };
    /// The CPU outside of tasks.
    static CPU: Cell<CpuId> = const { Cell::new(0) };
    /// Whether spinlocks are ticket locks, in tasks and outside.
    static TICKET_LOCKS: Cell<bool> = const { Cell::new(false) };
    /// State of the random numbers outside of tasks.
    static RANDOM: Cell<u64> = const { Cell::new(0) };
    /// The data paths that the thread is in, outside of tasks.
    static INSIDE: Inside = const { Inside::new() };
}

/// Resets this thread's clock to 0 and its random numbers to `seed`, for a new world.
pub(crate) fn begin(seed: u64) {
    CLOCK.set(0);
    RANDOM.set(seed);
    TICKET_LOCKS.set(false);
}

/// Sets whether the spinlocks of this thread's world are ticket locks.
pub(crate) fn ticket_locks(tickets: bool) {
    TICKET_LOCKS.set(tickets);
}

/// Calls `f` outside of tasks as if on `cpu`; returns its result.
pub(crate) fn on_cpu<R>(cpu: CpuId, f: impl FnOnce() -> R) -> R {
    let before = CPU.replace(cpu);
    let r = f();
    CPU.set(before);
    r
}

/// Sets this thread's clock to the end of a world.
pub(crate) fn end(now: Picos) {
    CLOCK.set(now / 1000);
}

/// Time that `relax` waits; natively it is a short sleep.
const RELAX: Nanos = 50_000;

/// The simulated machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sim;

/// Charges the calling task: `f` gets its engine, to which no reference exists. Does nothing outside of tasks.
#[inline]
fn charge(f: impl FnOnce(*mut Engine)) {
    let e = engine();
    if !e.is_null() {
        f(e);
    }
}

/// Charges a load of memory whose users take turns. The task waits for a link: its value is the next load's address.
#[inline]
fn load(key: u64, link: bool) {
    // SAFETY: the engine whose task calls.
    charge(|e| unsafe { if link { engine::load_link(e, key) } else { engine::load_cell(e, key) } });
}

/// Charges a store to such memory.
#[inline]
fn store(key: u64) {
    // SAFETY: the engine whose task calls.
    charge(|e| unsafe { engine::store(e, key) });
}

/// Memory of the simulated machine that one task at a time may access. An access is charged to the line where it begins.
#[derive(Debug)]
#[repr(transparent)]
pub struct SimCell<T>(UnsafeCell<T>);

impl<T> SimCell<T> {
    /// Returns whether the cell holds a pointer.
    #[inline]
    fn is_link() -> bool {
        size_of::<T>() == size_of::<usize>() && std::any::type_name::<T>().starts_with('*')
    }
}

impl<T> CellApi<T> for SimCell<T> {
    fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }
    #[inline]
    fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        load(line(self), Self::is_link());
        f(self.0.get())
    }
    #[inline]
    fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        store(line(self));
        f(self.0.get())
    }
}

/// A sleep of the simulated machine, on a line of its own.
#[derive(Debug)]
#[repr(align(64))]
pub struct Sleep {
    /// Whether a notification is pending. `notify` sets it, and `wait` takes it; both are charged as a read-modify-write of
    /// the line.
    token: atomics::AtomicBool,
    /// The sleeping task's number plus one; 0 for none.
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
                eng.wake_from_here(sleeper - 1);
                // An interrupt is the device's work, not the task's.
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
        /// Clears `sleeper` when the task leaves, also by unwinding.
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
            // Another task may have set the token while others went first.
            if !self.token.load(SeqCst) {
                self.sleeper.store((*e).current + 1, SeqCst);
                let _asleep = Asleep(self);
                engine::sleep(e, deadline.map(from_nanos));
            }
        }
        take();
    }
}

/// Advances the clock of the calling task.
fn spend(time: impl FnOnce(&Engine) -> u64) {
    // SAFETY: the engine whose task calls; the references end here.
    charge(|e| unsafe {
        let time = time(&*e);
        (*e).spend(time);
    });
}

// SAFETY: all tasks run on one thread, one after the other, and each operation is done at once on plain memory.
unsafe impl Arch for Sim {
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;
    type AtomicPtr<T: 'static> = Ptr<T>;
    type Cell<T> = SimCell<T>;
    type Event = Sleep;

    fn fence(_: Ordering) {
        // SAFETY: the engine whose task calls; the reference ends here.
        charge(|e| unsafe { (*e).fence() });
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

    fn sleep(time: Nanos) {
        let e = engine();
        if e.is_null() {
            return CLOCK.set(CLOCK.get() + time);
        }
        // SAFETY: the engine whose task calls.
        unsafe { engine::sleep(e, Some((*e).now + from_nanos(time))) };
    }

    fn relax() {
        Self::sleep(RELAX);
    }

    fn yield_cpu() {
        let e = engine();
        if !e.is_null() {
            // SAFETY: the engine whose task calls.
            unsafe { engine::yield_cpu(e) };
        }
    }

    fn thread() -> u64 {
        let e = engine();
        // SAFETY: the engine whose task calls.
        if e.is_null() { u64::MAX } else { unsafe { u64::from((*e).current) + 1 } }
    }

    fn inside<R>(f: impl FnOnce(&Inside) -> R) -> R {
        let e = engine();
        if e.is_null() {
            return INSIDE.with(f);
        }
        // SAFETY: the cell is in a box of its own and lives as long as its task, which calls.
        let inside: *const Inside = unsafe { &raw const *(*e).me().inside };
        // SAFETY: as above; only this task uses it.
        f(unsafe { &*inside })
    }

    #[inline]
    fn ticket_locks() -> bool {
        TICKET_LOCKS.get()
    }

    /// A kernel's threads keep their CPUs while they wait, a program's do not.
    #[inline]
    fn passes() -> u32 {
        let e = engine();
        // SAFETY: the engine whose task calls.
        if e.is_null() || unsafe { (*e).os.kernel } { 0 } else { Native::passes() }
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
    fn spend(what: impl FnOnce() -> Work) {
        charge(|e| {
            let what = what();
            // SAFETY: the engine whose task calls; the reference ends here.
            let eng = unsafe { &mut *e };
            eng.begin(Phase::of(what));
            eng.spend(eng.prices.of(what));
        });
    }

    fn name<T: ?Sized>(at: &T, what: impl Display) {
        lines::name(at, what);
    }

    fn array<T>(at: &[T]) {
        sequence::array(at);
    }

    #[inline]
    fn touch<'m, T: ?Sized + 'm>(at: impl FnOnce() -> &'m T, what: Memory) {
        plain::touch(at, what);
    }

    #[inline]
    fn classify<'p, T: ?Sized + 'p, F: Iterator<Item = &'p [u8]>>(
        qdisc_and_frames: impl FnOnce() -> (&'p T, F),
    ) {
        plain::classify(qdisc_and_frames);
    }

    #[inline]
    fn dequeued<'p, T: ?Sized + 'p, F: Iterator<Item = &'p [u8]>>(
        qdisc_and_frames: impl FnOnce() -> (&'p T, F),
    ) {
        plain::dequeued(qdisc_and_frames);
    }
}

#[cfg(test)]
mod tests;
