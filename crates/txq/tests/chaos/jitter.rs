//! A machine whose threads stop at the wrong moments: each access to shared state may take as long as if the thread had lost
//! its CPU there. So rare interleavings of many threads become common.

use std::cell::Cell;
use std::sync::atomic::{self, Ordering};
use std::thread;
use std::time::Duration;

use txq_core::arch::inside::Inside;
use txq_core::arch::{Arch, Atomic, AtomicPtr, CpuId, Nanos, Native, NativeCell, NativeEvent};

/// Accesses between two stops, on average.
const EVERY: u64 = 500;
/// How long a stop takes, in microseconds.
const STOPS: [u64; 6] = [1, 5, 20, 100, 400, 2000];

thread_local! {
    /// The state of a thread's generator (xorshift64, Marsaglia, 2003).
    static STATE: Cell<u64> = const { Cell::new(0) };
}

/// Stops the thread now and then.
fn stop() {
    // A thread that ends drops what it owns after its generator.
    let _ = STATE.try_with(|state| {
        let mut x = state.get();
        if x == 0 {
            x = Native::random() | 1;
        }
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        state.set(x);
        if x.is_multiple_of(EVERY) {
            thread::sleep(Duration::from_micros(STOPS[(x >> 32) as usize % STOPS.len()]));
        }
    });
}

/// The machine.
pub(crate) struct Jitter;

/// An atomic of std, before each access of which the thread may stop.
pub(crate) struct Stopping<T>(T);

// SAFETY: atomics, fence and cell are std's.
unsafe impl Arch for Jitter {
    type AtomicU32 = Stopping<atomic::AtomicU32>;
    type AtomicU64 = Stopping<atomic::AtomicU64>;
    type AtomicPtr<T: 'static> = Stopping<atomic::AtomicPtr<T>>;
    type Cell<T> = NativeCell<T>;
    type Event = NativeEvent;

    fn fence(order: Ordering) {
        stop();
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
    fn yield_cpu() {
        Native::yield_cpu();
    }
    fn thread() -> u64 {
        Native::thread()
    }
    fn inside<R>(f: impl FnOnce(&Inside) -> R) -> R {
        Native::inside(f)
    }
    fn passes() -> u32 {
        Native::passes()
    }
}

/// Implements the methods that integers and pointers share.
macro_rules! accesses {
    ($value:ty) => {
        fn new(value: $value) -> Self {
            Self(value.into())
        }
        fn load(&self, order: Ordering) -> $value {
            stop();
            self.0.load(order)
        }
        fn store(&self, value: $value, order: Ordering) {
            stop();
            self.0.store(value, order);
        }
        fn swap(&self, value: $value, order: Ordering) -> $value {
            stop();
            self.0.swap(value, order)
        }
        fn compare_exchange(
            &self,
            current: $value,
            new: $value,
            success: Ordering,
            failure: Ordering,
        ) -> Result<$value, $value> {
            stop();
            self.0.compare_exchange(current, new, success, failure)
        }
        fn compare_exchange_weak(
            &self,
            current: $value,
            new: $value,
            success: Ordering,
            failure: Ordering,
        ) -> Result<$value, $value> {
            stop();
            self.0.compare_exchange_weak(current, new, success, failure)
        }
        fn wait_until(&self, order: Ordering, ok: impl FnMut($value) -> bool) -> $value {
            stop();
            self.0.wait_until(order, ok)
        }
        fn spin_until(&self, order: Ordering, ok: impl FnMut($value) -> bool) -> Option<$value> {
            stop();
            self.0.spin_until(order, ok)
        }
    };
}

macro_rules! integer {
    ($atomic:ty, $value:ty) => {
        impl Atomic<$value> for Stopping<$atomic> {
            accesses!($value);

            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                stop();
                self.0.fetch_add(value, order)
            }
            fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                stop();
                self.0.fetch_or(value, order)
            }
            fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                stop();
                self.0.fetch_and(value, order)
            }
        }
    };
}

integer!(atomic::AtomicU32, u32);
integer!(atomic::AtomicU64, u64);

impl<T: 'static> AtomicPtr<T> for Stopping<atomic::AtomicPtr<T>> {
    accesses!(*mut T);
}
