//! The real machine: std's atomics, the system's clock and its number of the CPU (`crate::os`).

use std::cell::UnsafeCell;
use std::sync::atomic::{self, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::token::{Parking, Token};
use super::{Arch, Atomic, AtomicPtr, CellApi, CpuId, Inside, Nanos};
use crate::os;

thread_local! {
    /// The data paths that the thread is in. Its address is the thread's number ([`Arch::thread`]).
    static INSIDE: Inside = const { Inside::new() };
}

/// The machine that the program runs on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Native;

// SAFETY: atomics, fence and cell are std's.
unsafe impl Arch for Native {
    type AtomicU32 = atomic::AtomicU32;
    type AtomicU64 = atomic::AtomicU64;
    type AtomicPtr<T: 'static> = atomic::AtomicPtr<T>;
    type Cell<T> = NativeCell<T>;
    type Event = NativeEvent;

    #[inline]
    fn fence(order: Ordering) {
        atomic::fence(order);
    }

    #[inline]
    fn cpu() -> CpuId {
        os::cpu()
    }

    #[inline]
    fn now() -> Nanos {
        os::now()
    }

    #[inline]
    fn thread() -> u64 {
        INSIDE.with(|inside| std::ptr::from_ref(inside).addr() as u64)
    }

    #[inline]
    fn inside<R>(f: impl FnOnce(&Inside) -> R) -> R {
        INSIDE.with(f)
    }

    /// About a millisecond of short critical sections, a part of a scheduler's time slice.
    #[inline]
    fn passes() -> u32 {
        1 << 13
    }

    #[inline]
    fn sleep(time: Nanos) {
        std::thread::sleep(Duration::from_nanos(time));
    }

    #[inline]
    fn yield_cpu() {
        std::thread::yield_now();
    }
}

/// Turns of a spin before the waiter yields its CPU: about a microsecond, the length of a critical section while its holder
/// runs. A holder that takes longer is probably preempted, and on a loaded machine it needs this very CPU.
const SPINS_BEFORE_YIELD: u32 = 64;

/// Prefetches the cache line of an address for writing. A hint: it reads no memory, so any address is allowed.
#[inline(always)]
pub fn fetch_to_write<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: it changes no memory, no register and no flag. Where a processor has no such instruction it does nothing.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri))]
    let _ = at;
}

macro_rules! wait_until {
    ($self:ident, $load:ident, $order:ident, $ok:ident) => {{
        let mut turns = 0;
        loop {
            let value = $self.$load($order);
            if $ok(value) {
                return value;
            }
            if turns < SPINS_BEFORE_YIELD {
                turns += 1;
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }};
}

macro_rules! spin_until {
    ($self:ident, $load:ident, $order:ident, $ok:ident) => {{
        for _ in 0..SPINS_BEFORE_YIELD {
            let value = $self.$load($order);
            if $ok(value) {
                return Some(value);
            }
            std::hint::spin_loop();
        }
        None
    }};
}

macro_rules! native_atomic {
    ($std:ty, $int:ty) => {
        impl Atomic<$int> for $std {
            #[inline]
            fn new(value: $int) -> Self {
                <$std>::new(value)
            }
            #[inline]
            fn load(&self, order: Ordering) -> $int {
                self.load(order)
            }
            #[inline]
            fn load_to_write(&self, order: Ordering) -> $int {
                fetch_to_write(self);
                self.load(order)
            }
            #[inline]
            fn store(&self, value: $int, order: Ordering) {
                self.store(value, order);
            }
            #[inline]
            fn swap(&self, value: $int, order: Ordering) -> $int {
                self.swap(value, order)
            }
            #[inline]
            fn compare_exchange(
                &self,
                current: $int,
                new: $int,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$int, $int> {
                self.compare_exchange(current, new, success, failure)
            }
            #[inline]
            fn compare_exchange_weak(
                &self,
                current: $int,
                new: $int,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$int, $int> {
                self.compare_exchange_weak(current, new, success, failure)
            }
            #[inline]
            fn fetch_add(&self, value: $int, order: Ordering) -> $int {
                self.fetch_add(value, order)
            }
            #[inline]
            fn fetch_or(&self, value: $int, order: Ordering) -> $int {
                self.fetch_or(value, order)
            }
            #[inline]
            fn fetch_and(&self, value: $int, order: Ordering) -> $int {
                self.fetch_and(value, order)
            }
            #[inline]
            fn wait_until(&self, order: Ordering, mut ok: impl FnMut($int) -> bool) -> $int {
                wait_until!(self, load, order, ok)
            }
            #[inline]
            fn wait_to_write(&self, order: Ordering, mut ok: impl FnMut($int) -> bool) -> $int {
                wait_until!(self, load_to_write, order, ok)
            }
            fn spin_until(&self, order: Ordering, mut ok: impl FnMut($int) -> bool) -> Option<$int> {
                spin_until!(self, load, order, ok)
            }
            fn spin_to_write(&self, order: Ordering, mut ok: impl FnMut($int) -> bool) -> Option<$int> {
                spin_until!(self, load_to_write, order, ok)
            }
        }
    };
}

native_atomic!(atomic::AtomicU32, u32);
native_atomic!(atomic::AtomicU64, u64);

impl<T: 'static> AtomicPtr<T> for atomic::AtomicPtr<T> {
    #[inline]
    fn new(ptr: *mut T) -> Self {
        atomic::AtomicPtr::new(ptr)
    }
    #[inline]
    fn load(&self, order: Ordering) -> *mut T {
        self.load(order)
    }
    #[inline]
    fn load_to_write(&self, order: Ordering) -> *mut T {
        fetch_to_write(self);
        self.load(order)
    }
    #[inline]
    fn store(&self, ptr: *mut T, order: Ordering) {
        self.store(ptr, order);
    }
    #[inline]
    fn swap(&self, ptr: *mut T, order: Ordering) -> *mut T {
        self.swap(ptr, order)
    }
    #[inline]
    fn compare_exchange(
        &self,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T> {
        self.compare_exchange(current, new, success, failure)
    }
    #[inline]
    fn compare_exchange_weak(
        &self,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T> {
        self.compare_exchange_weak(current, new, success, failure)
    }
    #[inline]
    fn wait_until(&self, order: Ordering, mut ok: impl FnMut(*mut T) -> bool) -> *mut T {
        wait_until!(self, load, order, ok)
    }
    fn spin_until(&self, order: Ordering, mut ok: impl FnMut(*mut T) -> bool) -> Option<*mut T> {
        spin_until!(self, load, order, ok)
    }
}

/// `UnsafeCell` behind the interface that model checkers observe.
#[derive(Debug)]
#[repr(transparent)]
pub struct NativeCell<T>(UnsafeCell<T>);

impl<T> CellApi<T> for NativeCell<T> {
    #[inline]
    fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }
    #[inline]
    fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }
    #[inline]
    fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// The event of [`Native`].
pub type NativeEvent = Token<Native, NativeParking>;

/// A place to sleep: std's mutex and condition variable, which are futexes on Linux.
#[derive(Debug, Default)]
pub struct NativeParking {
    lock: Mutex<()>,
    condvar: Condvar,
}

impl Parking for NativeParking {
    fn new() -> Self {
        Self::default()
    }

    fn park(&self, begin: impl FnOnce() -> bool, is_over: impl Fn() -> bool, deadline: Option<Nanos>) {
        let mut held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if !begin() {
            return;
        }
        while !is_over() {
            held = match deadline {
                None => self.condvar.wait(held).unwrap_or_else(PoisonError::into_inner),
                Some(at) => {
                    let now = Native::now();
                    if now >= at {
                        break;
                    }
                    let left = Duration::from_nanos(at - now);
                    self.condvar.wait_timeout(held, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn unpark(&self) {
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.condvar.notify_one();
    }
}
