//! Debug state of each buffer: whether it is allocated, and by which sender. Release builds keep no state and pay nothing.
//!
//! The state is a std atomic under every `Arch`, so that it adds no interleavings to a model.

#[cfg(debug_assertions)]
mod imp {
    use std::ptr;
    use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

    use crate::arch::Arch;
    use crate::pool::home::Home;

    /// A buffer's index, and its state: null while it is free, else the home of the sender that allocated it. The thread
    /// that allocates or frees the buffer swaps the state; any thread may read it. Relaxed: it orders nothing.
    pub(crate) struct Check<A: Arch>(u32, AtomicPtr<Home<A>>);

    impl<A: Arch> Check<A> {
        pub(crate) fn new(index: u32) -> Self {
            Self(index, AtomicPtr::new(ptr::null_mut()))
        }

        /// Records that the buffer leaves the pool.
        pub(crate) fn out(&self, home: *const Home<A>) {
            let was = self.1.swap(home.cast_mut(), Relaxed);
            assert!(was.is_null(), "a buffer was handed out twice: the pool's lists are corrupt");
        }

        /// Records that the buffer is freed. `home` is the one in its descriptor.
        pub(crate) fn back(&self, home: *const Home<A>) {
            if self.1.swap(ptr::null_mut(), Relaxed).is_null() {
                // SAFETY: a descriptor's home is one of its pool, which lives as long as its buffers.
                let (index, name) =
                    (self.0, unsafe { home.as_ref() }.map_or_else(|| "nobody".into(), Home::name));
                panic!("double free of buffer {index}, last allocated by sender \"{name}\"");
            }
        }

        /// Returns the home of the sender that allocated the buffer, or `None` while it is free.
        pub(crate) fn holder(&self) -> Option<&Home<A>> {
            // SAFETY: as in `back`.
            unsafe { self.1.load(Relaxed).as_ref() }
        }
    }
}

#[cfg(not(debug_assertions))]
mod imp {
    use std::marker::PhantomData;

    use crate::arch::Arch;
    use crate::pool::home::Home;

    pub(crate) struct Check<A: Arch>(PhantomData<A>);

    impl<A: Arch> Check<A> {
        #[inline]
        pub(crate) fn new(_: u32) -> Self {
            Self(PhantomData)
        }
        #[inline]
        pub(crate) fn out(&self, _: *const Home<A>) {}
        #[inline]
        pub(crate) fn holder(&self) -> Option<&Home<A>> {
            None
        }
    }
}

pub(crate) use imp::Check;
