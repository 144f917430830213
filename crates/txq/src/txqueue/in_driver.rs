//! A thread that is in a driver is known to be there (`Arch::in_driver`), also after a panic.

use crate::arch::Arch;

/// The calling thread, while it is in a driver.
pub(super) struct InDriver<A: Arch> {
    /// Other drivers that it is in already.
    before: u32,
    arch: std::marker::PhantomData<A>,
}

impl<A: Arch> InDriver<A> {
    /// Calls `f`, which calls the driver.
    #[inline]
    pub(super) fn enter<R>(f: impl FnOnce() -> R) -> R {
        let before = A::in_driver(|depth| depth.replace(depth.get() + 1));
        let _in_driver = Self { before, arch: std::marker::PhantomData };
        f()
    }
}

impl<A: Arch> Drop for InDriver<A> {
    #[inline]
    fn drop(&mut self) {
        A::in_driver(|depth| depth.set(self.before));
    }
}
