//! `Arch`: what the data plane may do that another CPU can see.
//!
//! Every type on a packet's way is generic over an [`Arch`], which supplies atomics, cells, waiting, the CPU's number
//! and the clock. The default, [`Native`], maps each call to the standard library and compiles to the same instructions
//! as code written against it. Model checkers and the simulator supply others, so the code that sends packets is the
//! code that is checked, without a `cfg` and in the same build.
//!
//! Rules for code under an `Arch`: memory that two threads can reach lies in an atomic or in a [`CellApi`]; a spin is
//! an [`Atomic::wait_until`], never a bare loop; nothing asks for the real time, the thread or the CPU but through
//! here. Code that only one owner runs (a qdisc's algorithm) is plain Rust.

pub(crate) mod inside;
mod native;

pub use inside::Inside;
pub(crate) use native::fetch_to_write;
pub use native::{Native, NativeCell, NativeEvent};

use std::fmt::Display;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering;

/// Nanoseconds on the clock of the `Arch`; natively `CLOCK_MONOTONIC`, the clock of departure times (`SO_TXTIME`'s
/// default, the kernel's `ktime_get_ns`).
pub type Nanos = u64;

/// The number of a CPU as the scheduler counts them.
pub type CpuId = u32;

/// The machine that the data plane runs on: real, modelled or simulated.
///
/// # Safety
/// Unsafe code trusts an `Arch` with the exclusion of threads from each other. The implementor guarantees:
/// - `AtomicU32`, `AtomicU64` and `AtomicPtr` behave as std's of the same name: every value returned is one that was
///   stored there, a read-modify-write reads the last one, and the ordering passed to a call holds. `wait_until` and its
///   kind return only a value that they loaded with the ordering passed, and that satisfied the predicate. `AtomicPtr`
///   keeps a pointer's provenance.
/// - `fence` is at least [`std::sync::atomic::fence`] of that ordering.
/// - A `Cell` holds the value that it was made with: `with` and `with_mut` call the closure once, with a valid pointer to
///   that value, and nothing else accesses it.
///
/// Nothing is asked of the other items: a wrong clock, CPU, thread or random number makes no access unsound.
pub unsafe trait Arch: Sized + Send + Sync + 'static {
    /// A 32-bit atomic.
    type AtomicU32: Atomic<u32>;
    /// A 64-bit atomic.
    type AtomicU64: Atomic<u64>;
    /// An atomic pointer.
    type AtomicPtr<T: 'static>: AtomicPtr<T>;
    /// Memory that one thread at a time may touch, by a protocol that the owner of the cell states.
    type Cell<T>: CellApi<T>;
    /// A thread's sleep.
    type Event: Event;

    /// A fence, for the few places that need a store ordered before a later load.
    fn fence(order: Ordering);
    /// The CPU that runs the caller; a hint, for the thread may move at any time.
    fn cpu() -> CpuId;
    /// The time.
    fn now() -> Nanos;
    /// One turn of a loop that waits for something no single atomic tells, outside the data path: natively a short sleep.
    fn relax();
    /// Gives the caller's CPU to another thread that is ready to run on it, if there is one (`sched_yield`).
    fn yield_cpu() {
        Self::relax();
    }
    /// Times that a sender waits for room in one call before it drops; after the first few it sleeps
    /// ([`relax`](Arch::relax)), natively for a slice of the scheduler in all, about 4 ms. Models wait once, so that they
    /// see drops too.
    const WAITS_FOR_ROOM: u32 = 44;
    /// How long one sender has a queue to itself where that sends more than handing over to one another
    /// (`enqueue/lease.rs`), in nanoseconds; 0 for no leases.
    const LEASE: Nanos = 0;
    /// Reaps in a row that must have left nothing in the device before a lone sender leaves completions to its next calls.
    const PROMPT: u32 = 64;
    /// What tells the calling thread from every other, never 0; 0 where threads are not told apart.
    fn thread() -> u64 {
        0
    }
    /// Calls `f` with the data paths that the calling thread is in. Where threads are not told apart, nobody is ever in one.
    fn inside<R>(f: impl FnOnce(&Inside) -> R) -> R {
        f(&Inside::new())
    }
    /// A number that nobody can guess, to choose a secret with; in a simulation one that the seed makes.
    fn random() -> u64 {
        RandomState::new().hash_one(0)
    }
    /// Work of `ns` nanoseconds that touches no shared memory. Only a simulator spends it.
    fn work(_ns: u64) {}
    /// Plain work of the data plane, for which only a simulator knows a price.
    ///
    /// This and the next two take closures, so that natively nothing is worked out for them. What is worked out before a
    /// call of nothing leaves a trace: a length that is read for it is kept in a register until it is read again.
    #[inline(always)]
    fn spend(_what: impl FnOnce() -> Work) {}
    /// Plain memory that the caller is about to read and write, and that another CPU may have written last. Only a simulator
    /// has its lines moved.
    #[inline(always)]
    fn touch<'m, T: ?Sized + 'm>(_at: impl FnOnce() -> &'m T, _what: Memory) {}
    /// A qdisc is about to put packets, the frames, to their flows: what it keeps of a flow is memory of that kind, and so is
    /// what it reads of who sent the packet.
    #[inline(always)]
    fn classify<'p, T: ?Sized + 'p, F: Iterator<Item = &'p [u8]>>(
        _qdisc_and_frames: impl FnOnce() -> (&'p T, F),
    ) {
    }
    /// Says what lies somewhere, for a simulator's report of what each cache line costs. Of two that overlap the smaller one
    /// counts. A part is named once, where it has come to stay, and never on a packet's way.
    #[inline(always)]
    fn name<T: ?Sized>(_at: &T, _what: impl Display) {}
}

/// What the data plane does in plain code. The numbers are of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Buffers are taken from a sender's own stock.
    Alloc(usize),
    /// Buffers are freed.
    Free(usize),
    /// A call of xmit.
    Xmit,
    /// A worker goes to a queue, to run it.
    Run,
    /// Packets go into the qdisc.
    Enqueue(usize),
    /// Packets come out of the qdisc.
    Dequeue(usize),
    /// A call of the driver with packets.
    Drive(usize),
    /// Completed packets are taken from the driver.
    Reap(usize),
}

/// Plain memory that goes from CPU to CPU with the lock, or the turn, that it is used under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// What a queue is, its qdisc apart.
    Queue,
    /// A qdisc.
    Qdisc,
    /// A driver's side of a ring.
    Driver,
}

/// An atomic integer, with the methods and orderings of `std::sync::atomic`.
pub trait Atomic<T: Copy>: Send + Sync + 'static {
    /// An atomic that holds `value`.
    fn new(value: T) -> Self;
    /// Reads.
    fn load(&self, order: Ordering) -> T;
    /// Reads what the caller is about to write: the cache line comes to it for writing at once, and not a second time for
    /// the write (x86's PREFETCHW, Arm's PRFM PST). Where many only look, that takes the line from each other in vain.
    #[inline]
    fn load_to_write(&self, order: Ordering) -> T {
        self.load(order)
    }
    /// Writes.
    fn store(&self, value: T, order: Ordering);
    /// Writes and returns what was there.
    fn swap(&self, value: T, order: Ordering) -> T;
    /// Writes `new` where `current` is, or returns what is there instead.
    fn compare_exchange(&self, current: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T>;
    /// As [`compare_exchange`](Atomic::compare_exchange), and may fail for no reason.
    fn compare_exchange_weak(&self, current: T, new: T, success: Ordering, failure: Ordering)
    -> Result<T, T>;
    /// Adds, wrapping, and returns what was there.
    fn fetch_add(&self, value: T, order: Ordering) -> T;
    /// Sets bits and returns what was there.
    fn fetch_or(&self, value: T, order: Ordering) -> T;
    /// Keeps bits and returns what was there.
    fn fetch_and(&self, value: T, order: Ordering) -> T;
    /// Waits until the value, loaded with `order`, satisfies `ok`, and returns it. The wait is for another thread
    /// that may not be running: natively it spins for about a microsecond and then gives its CPU away at each turn.
    fn wait_until(&self, order: Ordering, ok: impl FnMut(T) -> bool) -> T;
    /// As [`wait_until`](Atomic::wait_until), for the one who waits to write ([`load_to_write`](Atomic::load_to_write)).
    #[inline]
    fn wait_to_write(&self, order: Ordering, ok: impl FnMut(T) -> bool) -> T {
        self.wait_until(order, ok)
    }
    /// As [`wait_until`](Atomic::wait_until), but gives up where that would give its CPU away. For a wait that is short
    /// while the other thread runs, and that need not be when it does not.
    fn spin_until(&self, order: Ordering, ok: impl FnMut(T) -> bool) -> Option<T>;
}

/// An atomic pointer, with the methods and orderings of `std::sync::atomic::AtomicPtr`.
pub trait AtomicPtr<T>: Send + Sync {
    /// An atomic that holds `ptr`.
    fn new(ptr: *mut T) -> Self;
    /// Reads.
    fn load(&self, order: Ordering) -> *mut T;
    /// As [`Atomic::load_to_write`].
    #[inline]
    fn load_to_write(&self, order: Ordering) -> *mut T {
        self.load(order)
    }
    /// Writes.
    fn store(&self, ptr: *mut T, order: Ordering);
    /// Writes and returns what was there.
    fn swap(&self, ptr: *mut T, order: Ordering) -> *mut T;
    /// Writes `new` where `current` is, or returns what is there instead.
    fn compare_exchange(
        &self,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T>;
    /// As [`compare_exchange`](AtomicPtr::compare_exchange), and may fail for no reason.
    fn compare_exchange_weak(
        &self,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T>;
    /// As [`Atomic::wait_until`].
    fn wait_until(&self, order: Ordering, ok: impl FnMut(*mut T) -> bool) -> *mut T;
    /// As [`Atomic::spin_until`]. One look where an `Arch` does not spin.
    #[inline]
    fn spin_until(&self, order: Ordering, mut ok: impl FnMut(*mut T) -> bool) -> Option<*mut T> {
        Some(self.load(order)).filter(|ptr| ok(*ptr))
    }
}

/// A cell whose accesses a checker can watch.
///
/// The checker sees an access at the call of `with` or `with_mut`, for the closure's duration. A reference that leaves the
/// closure is sound where a guard's borrow bounds it (a held lock, the owner of a queue, a ring's consumer): the compiler ends
/// it before the guard gives the value up. The checker does not see how long it is used. An owner whose ownership ends by
/// anything but the last store of its guard says so with [`access_ends`](CellApi::access_ends).
pub trait CellApi<T> {
    /// A cell that holds `value`.
    fn new(value: T) -> Self;
    /// Reads through a pointer.
    fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R;
    /// Writes through a pointer.
    fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R;
    /// Marks the end of an access through a reference that left [`with_mut`](CellApi::with_mut), before the store that gives
    /// the value up. Checked under loom: the next access must be ordered after this. Costs nothing elsewhere.
    #[inline(always)]
    fn access_ends(&self) {}
}

/// A sleep with a token: a notification given before the sleep ends it at once, so none is lost (`eventfd`, or
/// `std::thread::park`). One thread waits, any thread notifies.
pub trait Event: Send + Sync + 'static {
    /// An event without a token.
    fn new() -> Self;
    /// Gives the token, and wakes the sleeper.
    fn notify(&self);
    /// Sleeps until there is a token, which it takes, or until `deadline` on the clock of the `Arch`.
    fn wait(&self, deadline: Option<Nanos>);
}
