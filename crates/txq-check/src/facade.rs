//! The part of an `Arch` that loom and shuttle share: both mirror std's names.
//!
//! A sleep with a deadline in the future ends only by a notification. So the checker reports a lost wake-up as a deadlock, where
//! real time would hide it as a delay.

/// Defines the atomics, the pointer, the event and the thread's CPU number of a checker, by the name of its crate. A wait
/// calls the `pause` of the module that uses the macro.
macro_rules! facade {
    ($checker:ident) => {
        use std::sync::atomic::Ordering;

        use txq_core::arch::{Atomic, AtomicPtr, CpuId, Event, Nanos};

        ::$checker::thread_local! {
            static CPU: std::cell::Cell<CpuId> = std::cell::Cell::new(0);
        }

        macro_rules! atomic {
            ($name:ident, $int:ty) => {
                /// The checker's atomic under `txq`'s interface.
                #[derive(Debug)]
                pub struct $name(::$checker::sync::atomic::$name);

                impl Atomic<$int> for $name {
                    fn new(value: $int) -> Self {
                        Self(::$checker::sync::atomic::$name::new(value))
                    }
                    fn load(&self, order: Ordering) -> $int {
                        self.0.load(order)
                    }
                    fn store(&self, value: $int, order: Ordering) {
                        self.0.store(value, order);
                    }
                    fn swap(&self, value: $int, order: Ordering) -> $int {
                        self.0.swap(value, order)
                    }
                    fn compare_exchange(
                        &self,
                        current: $int,
                        new: $int,
                        success: Ordering,
                        failure: Ordering,
                    ) -> Result<$int, $int> {
                        self.0.compare_exchange(current, new, success, failure)
                    }
                    fn compare_exchange_weak(
                        &self,
                        current: $int,
                        new: $int,
                        success: Ordering,
                        failure: Ordering,
                    ) -> Result<$int, $int> {
                        self.0.compare_exchange_weak(current, new, success, failure)
                    }
                    fn fetch_add(&self, value: $int, order: Ordering) -> $int {
                        self.0.fetch_add(value, order)
                    }
                    fn fetch_or(&self, value: $int, order: Ordering) -> $int {
                        self.0.fetch_or(value, order)
                    }
                    fn fetch_and(&self, value: $int, order: Ordering) -> $int {
                        self.0.fetch_and(value, order)
                    }
                    fn wait_until(&self, order: Ordering, mut ok: impl FnMut($int) -> bool) -> $int {
                        loop {
                            let value = self.0.load(order);
                            if ok(value) {
                                return value;
                            }
                            pause();
                        }
                    }
                    // One load: a second one would double the interleavings and find nothing that a later try does not.
                    fn spin_until(&self, order: Ordering, mut ok: impl FnMut($int) -> bool) -> Option<$int> {
                        Some(self.0.load(order)).filter(|value| ok(*value))
                    }
                }
            };
        }

        atomic!(AtomicU32, u32);
        atomic!(AtomicU64, u64);

        /// The checker's atomic pointer under `txq`'s interface.
        #[derive(Debug)]
        pub struct Ptr<T>(::$checker::sync::atomic::AtomicPtr<T>);

        // SAFETY: an atomic pointer is a pointer that any thread may read and write; it gives no access to its target.
        unsafe impl<T> Send for Ptr<T> {}
        // SAFETY: as above.
        unsafe impl<T> Sync for Ptr<T> {}

        impl<T: 'static> AtomicPtr<T> for Ptr<T> {
            fn new(ptr: *mut T) -> Self {
                Self(::$checker::sync::atomic::AtomicPtr::new(ptr))
            }
            fn load(&self, order: Ordering) -> *mut T {
                self.0.load(order)
            }
            fn store(&self, ptr: *mut T, order: Ordering) {
                self.0.store(ptr, order);
            }
            fn swap(&self, ptr: *mut T, order: Ordering) -> *mut T {
                self.0.swap(ptr, order)
            }
            fn compare_exchange(
                &self,
                current: *mut T,
                new: *mut T,
                success: Ordering,
                failure: Ordering,
            ) -> Result<*mut T, *mut T> {
                self.0.compare_exchange(current, new, success, failure)
            }
            fn compare_exchange_weak(
                &self,
                current: *mut T,
                new: *mut T,
                success: Ordering,
                failure: Ordering,
            ) -> Result<*mut T, *mut T> {
                self.0.compare_exchange_weak(current, new, success, failure)
            }
            fn wait_until(&self, order: Ordering, mut ok: impl FnMut(*mut T) -> bool) -> *mut T {
                loop {
                    let value = self.0.load(order);
                    if ok(value) {
                        return value;
                    }
                    pause();
                }
            }
        }

        /// A token, under the checker's mutex and condition variable.
        #[derive(Debug)]
        pub struct Sleep {
            token: ::$checker::sync::Mutex<bool>,
            given: ::$checker::sync::Condvar,
        }

        impl Event for Sleep {
            fn new() -> Self {
                Self { token: ::$checker::sync::Mutex::new(false), given: ::$checker::sync::Condvar::new() }
            }

            fn notify(&self) {
                *self.token.lock().expect("a model that panics has ended") = true;
                self.given.notify_one();
            }

            fn wait(&self, deadline: Option<Nanos>) {
                let mut token = self.token.lock().expect("a model that panics has ended");
                while !*token && deadline.is_none_or(|at| at > crate::clock::now()) {
                    token = self.given.wait(token).expect("a model that panics has ended");
                }
                *token = false;
            }
        }
    };
}

pub(crate) use facade;
