//! `Arch`: the operations of the data plane that another CPU can observe.
//!
//! Every type on a packet's way is generic over an [`Arch`], which supplies atomics, cells, waiting, the CPU's number and
//! the clock. The default, [`Native`], maps each call to the standard library and compiles to the same instructions as code
//! written against it. Model checkers and the simulator supply other implementations. So they check the very code that sends
//! packets, without a `cfg` and in the same build.
//!
//! Rules for code under an `Arch`: memory that two threads can reach lies in an atomic or in a [`CellApi`]; a spin is an
//! [`Atomic::wait_until`], never a bare loop; code reads the time, the thread and the CPU only through the `Arch`. Code that
//! only one owner runs (a qdisc's algorithm) is plain Rust.

#[doc(hidden)]
pub mod inside;
mod native;
#[doc(hidden)]
pub mod token;

pub use inside::Inside;
#[doc(hidden)]
pub use native::fetch_to_write;
pub use native::{Native, NativeCell, NativeEvent};

use std::fmt::Display;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering;

/// Nanoseconds on the clock of the `Arch`: natively `CLOCK_MONOTONIC`, which departure times use, too (`SO_TXTIME`'s
/// default, the kernel's `ktime_get_ns`). On a system other than Linux, nanoseconds since the process first read the clock.
/// The types that programs see have `Instant` of txq-sched instead, and [`Duration`](std::time::Duration).
pub type Nanos = u64;

/// The number of a CPU, as the system's scheduler counts them. Natively always 0 on a system other than Linux.
pub type CpuId = u32;

/// The machine that the data plane runs on: real, modelled or simulated.
///
/// # Safety
/// Unsafe code relies on an `Arch` for mutual exclusion. The implementor guarantees:
/// - `AtomicU32`, `AtomicU64` and `AtomicPtr` behave as std's of the same name: every value returned was stored there, a
///   read-modify-write reads the last value, and the ordering passed to a call holds. `wait_until`, `wait_to_write` and
///   `spin_until` return only a value that they loaded with the ordering passed, and that satisfied the predicate.
///   `AtomicPtr` keeps a pointer's provenance.
/// - `fence` is at least [`std::sync::atomic::fence`] of that ordering.
/// - A `Cell` holds the value that it was created with: `with` and `with_mut` call the closure once, with a valid pointer to
///   that value, and nothing else accesses that value.
///
/// Soundness does not depend on the other items: a wrong clock, CPU, thread or random number makes no access unsound.
pub unsafe trait Arch: Sized + Send + Sync + 'static {
    /// A 32-bit atomic.
    type AtomicU32: Atomic<u32>;
    /// A 64-bit atomic.
    type AtomicU64: Atomic<u64>;
    /// An atomic pointer.
    type AtomicPtr<T: 'static>: AtomicPtr<T>;
    /// Memory that one thread at a time may touch, under a protocol that the cell's owner documents.
    type Cell<T>: CellApi<T>;
    /// An event that a thread sleeps on.
    type Event: Event;

    /// A fence, for the few places that need a store ordered before a later load.
    fn fence(order: Ordering);
    /// Returns the CPU that runs the caller. A hint: the thread may migrate at any time.
    fn cpu() -> CpuId;
    /// Returns the time.
    fn now() -> Nanos;
    /// Sleeps for about `time`. Models advance their clock by as much or more.
    fn sleep(time: Nanos);
    /// Sleeps for a moment, for loops outside the data path whose condition is not the value of one atomic.
    fn relax() {
        Self::sleep(50_000);
    }
    /// Yields the caller's CPU to another runnable thread, if there is one (`sched_yield`).
    fn yield_cpu() {
        Self::relax();
    }
    /// Returns a number that no other thread has, never 0; or 0 where the `Arch` does not distinguish threads.
    fn thread() -> u64 {
        0
    }
    /// Calls `f` with the data paths that the calling thread is in: none where the `Arch` does not distinguish threads.
    fn inside<R>(f: impl FnOnce(&Inside) -> R) -> R {
        f(&Inside::new())
    }
    /// Returns whether spinlocks are ticket locks, as Linux' were from 2.6.25 to 4.1: for the simulation of old kernels. Must not
    /// change while a lock exists.
    #[inline]
    fn ticket_locks() -> bool {
        false
    }
    /// Returns how many threads may take a spinlock out of turn while the first of its waiters does not run. 0: it stays fair,
    /// as a kernel's, whose waiters keep their CPUs. Must not change while a lock exists.
    #[inline]
    fn passes() -> u32 {
        0
    }
    /// Returns an unpredictable number, from which secrets are made; in a simulation a number derived from the seed.
    fn random() -> u64 {
        RandomState::new().hash_one(0)
    }
    /// Accounts for work of `ns` nanoseconds that touches no shared memory. Only a simulator implements it.
    fn work(_ns: u64) {}
    /// Accounts for plain work of the data plane. Only a simulator implements it, and charges a price.
    ///
    /// This method and the next three take closures, so that native code computes no argument for them. Computing an argument
    /// of an empty call is not free: a length that is read for it occupies a register until its next use.
    #[inline(always)]
    fn spend(_what: impl FnOnce() -> Work) {}
    /// Announces that the caller reads and writes this plain memory next, which another CPU may have written last. Only a
    /// simulator implements it, and moves the cache lines.
    #[inline(always)]
    fn touch<'m, T: ?Sized + 'm>(_at: impl FnOnce() -> &'m T, _what: Memory) {}
    /// Announces that a qdisc is about to assign packets, given by their frames, to flows: it reads and writes its state of
    /// each flow, and reads state of the sender. Only a simulator implements it.
    #[inline(always)]
    fn classify<'p, T: ?Sized + 'p, F: Iterator<Item = &'p [u8]>>(
        _qdisc_and_frames: impl FnOnce() -> (&'p T, F),
    ) {
    }
    /// Announces that a qdisc has dequeued packets, given by their frames: it read and wrote its state of each flow. Only a
    /// simulator implements it.
    #[inline(always)]
    fn dequeued<'p, T: ?Sized + 'p, F: Iterator<Item = &'p [u8]>>(
        _qdisc_and_frames: impl FnOnce() -> (&'p T, F),
    ) {
    }
    /// Names an object's memory, for a simulator's report of the cost of each cache line. Where two names overlap, the one
    /// of the smaller object counts. Call it once for an object, at its final address, and never on the transmit path.
    #[inline(always)]
    fn name<T: ?Sized>(_at: &T, _what: impl Display) {}
    /// Announces an array that threads access in the order of its elements. Only a simulator implements it, and prefetches the
    /// array's lines. Call it once for an array that begins a line, at its final address, and never on the transmit path.
    #[inline(always)]
    fn array<T>(_at: &[T]) {}
}

/// A step of the data plane in plain code. The numbers count packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Buffers are allocated from a sender's own stock.
    Alloc(usize),
    /// Buffers are freed.
    Free(usize),
    /// A call of xmit.
    Xmit,
    /// A worker visits a queue to run it.
    Run,
    /// Packets go into the qdisc.
    Enqueue(usize),
    /// The qdisc has dropped packets, its own or those of the call, since they went in.
    Drop(usize),
    /// Packets come out of the qdisc.
    Dequeue(usize),
    /// A call of the driver with packets.
    Drive(usize),
    /// Completed packets are taken from the driver.
    Reap(usize),
}

/// A kind of plain memory whose cache lines move from CPU to CPU with the lock, or the ownership, that protects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// A queue's state without its qdisc.
    Queue,
    /// A qdisc's state that enqueue uses.
    Enqueue,
    /// A qdisc's state that an enqueue uses to drop as many packets.
    Drop(usize),
    /// A qdisc's state that dequeue uses.
    Dequeue,
    /// A driver's side of a ring.
    Driver,
}

/// An atomic integer, with the methods and orderings of `std::sync::atomic`.
pub trait Atomic<T: Copy>: Send + Sync + 'static {
    /// An atomic that holds `value`.
    fn new(value: T) -> Self;
    /// Reads.
    fn load(&self, order: Ordering) -> T;
    /// Reads a value that the caller is about to write. Prefetches the cache line for writing, so that the write need not
    /// fetch it again (x86's PREFETCHW, Arm's PRFM PST). Wrong where many threads only read: they would take the line from
    /// each other.
    #[inline]
    fn load_to_write(&self, order: Ordering) -> T {
        self.load(order)
    }
    /// Writes.
    fn store(&self, value: T, order: Ordering);
    /// Writes; returns the old value.
    fn swap(&self, value: T, order: Ordering) -> T;
    /// Writes `new` if the value is `current`; returns the old value, as an error if it is another.
    fn compare_exchange(&self, current: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T>;
    /// As [`compare_exchange`](Atomic::compare_exchange), but may fail spuriously.
    fn compare_exchange_weak(&self, current: T, new: T, success: Ordering, failure: Ordering)
    -> Result<T, T>;
    /// Adds, wrapping; returns the old value.
    fn fetch_add(&self, value: T, order: Ordering) -> T;
    /// Sets the bits of `value`; returns the old value.
    fn fetch_or(&self, value: T, order: Ordering) -> T;
    /// Clears all bits but those of `value`; returns the old value.
    fn fetch_and(&self, value: T, order: Ordering) -> T;
    /// Waits until the value, loaded with `order`, satisfies `ok`; returns it. The thread waited for may be preempted:
    /// natively this spins for about a microsecond and then yields its CPU in each turn.
    fn wait_until(&self, order: Ordering, ok: impl FnMut(T) -> bool) -> T;
    /// As [`wait_until`](Atomic::wait_until), for a waiter that writes next: loads as
    /// [`load_to_write`](Atomic::load_to_write).
    #[inline]
    fn wait_to_write(&self, order: Ordering, ok: impl FnMut(T) -> bool) -> T {
        self.wait_until(order, ok)
    }
    /// As [`wait_until`](Atomic::wait_until), but returns `None` where that would yield its CPU. For a wait that is short
    /// while the other thread runs, and that the caller can give up otherwise.
    fn spin_until(&self, order: Ordering, ok: impl FnMut(T) -> bool) -> Option<T>;
    /// As [`spin_until`](Atomic::spin_until), for a waiter that writes next.
    #[inline]
    fn spin_to_write(&self, order: Ordering, ok: impl FnMut(T) -> bool) -> Option<T> {
        self.spin_until(order, ok)
    }
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
    /// Writes; returns the old value.
    fn swap(&self, ptr: *mut T, order: Ordering) -> *mut T;
    /// Writes `new` if the value is `current`; returns the old value, as an error if it is another.
    fn compare_exchange(
        &self,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T>;
    /// As [`compare_exchange`](AtomicPtr::compare_exchange), but may fail spuriously.
    fn compare_exchange_weak(
        &self,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T>;
    /// As [`Atomic::wait_until`].
    fn wait_until(&self, order: Ordering, ok: impl FnMut(*mut T) -> bool) -> *mut T;
    /// As [`Atomic::spin_until`]. The default loads once, for an `Arch` that does not spin.
    #[inline]
    fn spin_until(&self, order: Ordering, mut ok: impl FnMut(*mut T) -> bool) -> Option<*mut T> {
        Some(self.load(order)).filter(|ptr| ok(*ptr))
    }
}

/// A cell whose accesses a model checker can observe.
///
/// The checker sees an access at the call of `with` or `with_mut`, for the closure's duration. A reference may leave the
/// closure if the borrow of a guard bounds it (a held lock, the owner of a queue, a ring's consumer): the compiler ends the
/// reference before the guard releases the value. The checker does not see how long the reference is used. If anything but
/// the guard's last store ends the ownership, the owner calls [`access_ends`](CellApi::access_ends) before it.
pub trait CellApi<T> {
    /// A cell that holds `value`.
    fn new(value: T) -> Self;
    /// Calls `f` with a pointer to read the value through.
    fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R;
    /// Calls `f` with a pointer to write the value through.
    fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R;
    /// Marks the end of an access through a reference that left [`with_mut`](CellApi::with_mut), before the store that
    /// releases the value. Loom checks that the next access is ordered after this. Costs nothing elsewhere.
    #[inline(always)]
    fn access_ends(&self) {}
}

/// A sleep with a token: a notification before the sleep ends the sleep at once, so no wake is lost (as `eventfd` or
/// `std::thread::park`). One thread waits, any thread notifies.
pub trait Event: Send + Sync + 'static {
    /// Returns an event without a token.
    fn new() -> Self;
    /// Sets the token and wakes the sleeper.
    fn notify(&self);
    /// Sleeps until the token is set, or until `deadline` on the clock of the `Arch`. Clears the token.
    fn wait(&self, deadline: Option<Nanos>);
}
