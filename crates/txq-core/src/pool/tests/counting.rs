//! `Native` with a count of each thread's atomic operations.

use std::cell::Cell;
use std::sync::atomic::{self, Ordering};

use crate::arch::{Arch, Atomic, AtomicPtr, CpuId, Nanos, Native, NativeCell, NativeEvent};

thread_local! {
    static OPERATIONS: Cell<usize> = const { Cell::new(0) };
}

/// Returns the number of atomic operations of this thread in `f`.
pub(super) fn operations<R>(f: impl FnOnce() -> R) -> (usize, R) {
    let before = OPERATIONS.get();
    let result = f();
    (OPERATIONS.get() - before, result)
}

pub(super) struct Counting;

pub(super) struct Counted<T>(T);

impl<T> Counted<T> {
    fn count(&self) -> &T {
        OPERATIONS.set(OPERATIONS.get() + 1);
        &self.0
    }
}

macro_rules! counted {
    ($std:ty, $value:ty, [$($generic:ident)?], $trait:ty, { $($rest:tt)* }) => {
        impl$(<$generic: 'static>)? $trait for Counted<$std> {
            fn new(value: $value) -> Self {
                Self(<$std>::new(value))
            }
            fn load(&self, order: Ordering) -> $value {
                self.count().load(order)
            }
            fn store(&self, value: $value, order: Ordering) {
                self.count().store(value, order);
            }
            fn swap(&self, value: $value, order: Ordering) -> $value {
                self.count().swap(value, order)
            }
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.count().compare_exchange(current, new, success, failure)
            }
            fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.count().compare_exchange_weak(current, new, success, failure)
            }
            fn wait_until(&self, order: Ordering, mut ok: impl FnMut($value) -> bool) -> $value {
                loop {
                    let value = self.load(order);
                    if ok(value) {
                        return value;
                    }
                    std::thread::yield_now();
                }
            }
            $($rest)*
        }
    };
}

macro_rules! integer {
    ($std:ty, $value:ty) => {
        counted!($std, $value, [], Atomic<$value>, {
            fn spin_until(&self, order: Ordering, mut ok: impl FnMut($value) -> bool) -> Option<$value> {
                Some(self.load(order)).filter(|value| ok(*value))
            }
            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.count().fetch_add(value, order)
            }
            fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                self.count().fetch_or(value, order)
            }
            fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                self.count().fetch_and(value, order)
            }
        });
    };
}

integer!(atomic::AtomicU32, u32);
integer!(atomic::AtomicU64, u64);
counted!(atomic::AtomicPtr<T>, *mut T, [T], AtomicPtr<T>, {});

// SAFETY: atomics are those of `Native`, counted; fence and cell are its own.
unsafe impl Arch for Counting {
    type AtomicU32 = Counted<atomic::AtomicU32>;
    type AtomicU64 = Counted<atomic::AtomicU64>;
    type AtomicPtr<T: 'static> = Counted<atomic::AtomicPtr<T>>;
    type Cell<T> = NativeCell<T>;
    type Event = NativeEvent;

    fn fence(order: Ordering) {
        Native::fence(order);
    }
    fn cpu() -> CpuId {
        Native::cpu()
    }
    fn now() -> Nanos {
        Native::now()
    }
    fn sleep(time: Nanos) {
        Native::sleep(time);
    }
}
