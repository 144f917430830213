//! Atomics: an access is ordered and charged first, and then performed on one of std's atomics.

use std::sync::atomic::{self, Ordering, Ordering::SeqCst};

use txq_core::arch::{Atomic, AtomicPtr};

use super::charge;
use crate::sim::cache::Kind;
use crate::sim::engine::{self, engine};

/// Returns the line number of an address.
pub(super) fn line<T: ?Sized>(at: *const T) -> u64 {
    at.addr() as u64 >> 6
}

/// Charges an access to an atomic, then performs `f`, its effect; returns what `f` returns.
#[inline]
pub(super) fn access<R>(key: u64, kind: Kind, f: impl FnOnce() -> R) -> R {
    let e = engine();
    if e.is_null() {
        return f();
    }
    // SAFETY: the engine whose task calls; `f` is an atomic's own operation and does not come back here.
    unsafe {
        engine::access(e, key, kind);
        let r = f();
        if kind != Kind::Load {
            engine::written(e);
        }
        r
    }
}

/// Performs a load `f` of an atomic that the task will write: the line is fetched for writing.
#[inline]
fn load_to_write<R>(key: u64, f: impl FnOnce() -> R) -> R {
    // SAFETY: as in `access`.
    charge(|e| unsafe { engine::access(e, key, Kind::Write) });
    f()
}

/// Performs a store; the task continues at once unless the order is `SeqCst`.
#[inline]
fn store(key: u64, order: Ordering, f: impl FnOnce()) {
    let e = engine();
    if e.is_null() || order == SeqCst {
        return access(key, Kind::Write, f);
    }
    // SAFETY: as in `access`.
    unsafe {
        if order == Ordering::Relaxed {
            engine::store(e, key);
        } else {
            engine::release(e, key);
        }
        f();
        engine::written(e);
    }
}

/// Performs a compare-and-exchange `f`, which writes nothing when the value differs.
#[inline]
fn exchange<T>(key: u64, f: impl FnOnce() -> Result<T, T>) -> Result<T, T> {
    let e = engine();
    if e.is_null() {
        return f();
    }
    // SAFETY: as in `access`.
    unsafe {
        engine::access(e, key, Kind::Rmw);
        let result = f();
        if result.is_ok() {
            engine::written(e);
        }
        result
    }
}

/// Waits until `load`, which loads and tests the value, returns `Some`; returns that, or `None` when a spin's deadline has
/// passed.
fn wait<T>(spin: bool, mut load: impl FnMut() -> Option<T>) -> Option<T> {
    let e = engine();
    let mut deadline = None;
    loop {
        if let Some(value) = load() {
            return Some(value);
        }
        if e.is_null() {
            assert!(spin, "nobody else runs who could end this wait");
            return None;
        }
        // SAFETY: the engine whose task calls; no reference to it is alive over the park.
        unsafe {
            if spin && deadline.is_none() {
                deadline = Some((*e).now + (*e).os.spin);
            }
            if engine::park(e, deadline) {
                return None;
            }
        }
    }
}

macro_rules! atomic {
    ($name:ident, $int:ty) => {
        /// An atomic of the simulated machine.
        #[derive(Debug)]
        #[repr(transparent)]
        pub struct $name(atomic::$name);

        impl $name {
            #[inline]
            fn exchange(&self, current: $int, new: $int) -> Result<$int, $int> {
                exchange(line(self), || self.0.compare_exchange(current, new, SeqCst, SeqCst))
            }
        }

        impl Atomic<$int> for $name {
            fn new(value: $int) -> Self {
                Self(atomic::$name::new(value))
            }
            #[inline]
            fn load(&self, _: Ordering) -> $int {
                access(line(self), Kind::Load, || self.0.load(SeqCst))
            }
            #[inline]
            fn load_to_write(&self, _: Ordering) -> $int {
                load_to_write(line(self), || self.0.load(SeqCst))
            }
            #[inline]
            fn store(&self, value: $int, order: Ordering) {
                store(line(self), order, || self.0.store(value, SeqCst));
            }
            #[inline]
            fn swap(&self, value: $int, _: Ordering) -> $int {
                access(line(self), Kind::Rmw, || self.0.swap(value, SeqCst))
            }
            #[inline]
            fn compare_exchange(
                &self,
                current: $int,
                new: $int,
                _: Ordering,
                _: Ordering,
            ) -> Result<$int, $int> {
                self.exchange(current, new)
            }
            #[inline]
            fn compare_exchange_weak(
                &self,
                current: $int,
                new: $int,
                _: Ordering,
                _: Ordering,
            ) -> Result<$int, $int> {
                self.exchange(current, new)
            }
            #[inline]
            fn fetch_add(&self, value: $int, _: Ordering) -> $int {
                access(line(self), Kind::Rmw, || self.0.fetch_add(value, SeqCst))
            }
            #[inline]
            fn fetch_or(&self, value: $int, _: Ordering) -> $int {
                access(line(self), Kind::Rmw, || self.0.fetch_or(value, SeqCst))
            }
            #[inline]
            fn fetch_and(&self, value: $int, _: Ordering) -> $int {
                access(line(self), Kind::Rmw, || self.0.fetch_and(value, SeqCst))
            }
            fn wait_until(&self, order: Ordering, mut ok: impl FnMut($int) -> bool) -> $int {
                let load = || Some(self.load(order)).filter(|value| ok(*value));
                wait(false, load).expect("it has no deadline")
            }
            fn wait_to_write(&self, order: Ordering, mut ok: impl FnMut($int) -> bool) -> $int {
                let load = || Some(self.load_to_write(order)).filter(|value| ok(*value));
                wait(false, load).expect("it has no deadline")
            }
            fn spin_until(&self, order: Ordering, mut ok: impl FnMut($int) -> bool) -> Option<$int> {
                wait(true, || Some(self.load(order)).filter(|value| ok(*value)))
            }
            fn spin_to_write(&self, order: Ordering, mut ok: impl FnMut($int) -> bool) -> Option<$int> {
                wait(true, || Some(self.load_to_write(order)).filter(|value| ok(*value)))
            }
        }
    };
}

atomic!(AtomicU32, u32);
atomic!(AtomicU64, u64);

/// An atomic pointer of the simulated machine.
#[derive(Debug)]
#[repr(transparent)]
pub struct Ptr<T>(atomic::AtomicPtr<T>);

impl<T> Ptr<T> {
    #[inline]
    fn exchange(&self, current: *mut T, new: *mut T) -> Result<*mut T, *mut T> {
        exchange(line(self), || self.0.compare_exchange(current, new, SeqCst, SeqCst))
    }
}

impl<T: 'static> AtomicPtr<T> for Ptr<T> {
    fn new(ptr: *mut T) -> Self {
        Self(atomic::AtomicPtr::new(ptr))
    }
    #[inline]
    fn load(&self, _: Ordering) -> *mut T {
        access(line(self), Kind::Load, || self.0.load(SeqCst))
    }
    #[inline]
    fn load_to_write(&self, _: Ordering) -> *mut T {
        load_to_write(line(self), || self.0.load(SeqCst))
    }
    #[inline]
    fn store(&self, ptr: *mut T, order: Ordering) {
        store(line(self), order, || self.0.store(ptr, SeqCst));
    }
    #[inline]
    fn swap(&self, ptr: *mut T, _: Ordering) -> *mut T {
        access(line(self), Kind::Rmw, || self.0.swap(ptr, SeqCst))
    }
    #[inline]
    fn compare_exchange(
        &self,
        current: *mut T,
        new: *mut T,
        _: Ordering,
        _: Ordering,
    ) -> Result<*mut T, *mut T> {
        self.exchange(current, new)
    }
    #[inline]
    fn compare_exchange_weak(
        &self,
        current: *mut T,
        new: *mut T,
        _: Ordering,
        _: Ordering,
    ) -> Result<*mut T, *mut T> {
        self.exchange(current, new)
    }
    fn wait_until(&self, order: Ordering, mut ok: impl FnMut(*mut T) -> bool) -> *mut T {
        wait(false, || Some(self.load(order)).filter(|ptr| ok(*ptr))).expect("it has no deadline")
    }
}
