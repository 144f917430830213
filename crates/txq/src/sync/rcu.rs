//! A value that many threads read at every packet and somebody replaces now and then: the kernel's RCU pointer, with
//! quiescent states instead of grace periods.
//!
//! Each [`Reader`] holds one version and says which by its number. A read is a plain access to that version: no lock,
//! no counter, not even a load that another CPU writes. When it suits the reader ([`Reader::is_stale`], one load of a
//! line that only a replacement dirties), it moves on to the current version. The writer frees a version once every
//! reader's number is greater.
//!
//! Why the step is safe: a reader that says `g` keeps every version from `g` on alive, for the writer frees only
//! numbers below the least one said. So the version that the reader loads, `h >= g`, is alive before the reader says `h`.
//!
//! Ordering: publishing releases the new version, `update` acquires it. Saying `h` releases the reader's last access to
//! older versions, the writer acquires it before it frees them. `txq-check` breaks each and sees the model fail.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic, AtomicPtr};
use crate::sync::spinlock::SpinLock;

struct Version<T> {
    number: u64,
    value: T,
}

/// What the writers share.
struct Control<A: Arch, T: 'static> {
    /// Replaced versions that a reader may still hold, oldest first.
    old: Vec<*mut Version<T>>,
    /// What each reader says: the number of its version.
    readers: Vec<Arc<CachePadded<A::AtomicU64>>>,
    newest: u64,
}

// SAFETY: the pointers in `old` own their versions, as boxes would.
unsafe impl<A: Arch, T: Send> Send for Control<A, T> {}

/// The replaceable value, on lines of its own.
#[repr(align(128))]
pub struct Rcu<A: Arch, T: 'static> {
    current: A::AtomicPtr<Version<T>>,
    control: SpinLock<A, Control<A, T>>,
}

// SAFETY: readers on several threads share `&T`, and a version made on one thread may be dropped on another.
unsafe impl<A: Arch, T: Send + Sync> Send for Rcu<A, T> {}
// SAFETY: as above.
unsafe impl<A: Arch, T: Send + Sync> Sync for Rcu<A, T> {}

impl<A: Arch, T: Send + Sync + 'static> Rcu<A, T> {
    /// A first version.
    pub fn new(value: T) -> Self {
        let first = Box::into_raw(Box::new(Version { number: 1, value }));
        let control = Control { old: Vec::new(), readers: Vec::new(), newest: 1 };
        Self { current: A::AtomicPtr::new(first), control: SpinLock::new(control) }
    }

    /// Replaces the value. Readers see it when they update; versions that none holds any more are freed.
    pub fn publish(&self, value: T) {
        self.control.with(|held| {
            let control = held.data();
            control.newest += 1;
            let new = Box::into_raw(Box::new(Version { number: control.newest, value }));
            // Release: the new version, to readers. The old one, which may be freed here, was acquired with the lock.
            let old = self.current.swap(new, Release);
            control.old.push(old);
            control.free_unread();
        });
    }

    /// Versions that are kept: the current one, and those that a reader still holds.
    pub fn versions(&self) -> usize {
        self.control.with(|held| {
            held.data().free_unread();
            held.data().old.len() + 1
        })
    }

    /// A new reader, at the current version.
    pub fn reader(self: &Arc<Self>) -> Reader<A, T> {
        self.control.with(|held| {
            // Under the lock nobody publishes, so the current version cannot be freed before the number is said.
            let version = self.current.load(Acquire);
            // SAFETY: see above; the current version is alive.
            let number = unsafe { (*version).number };
            let says = Arc::new(CachePadded::new(A::AtomicU64::new(number)));
            held.data().readers.push(says.clone());
            Reader { rcu: self.clone(), says, version }
        })
    }
}

impl<A: Arch, T> Control<A, T> {
    fn free_unread(&mut self) {
        // Acquire: pairs with the release store in `Reader::update`.
        let least = self.readers.iter().map(|r| r.load(Acquire)).min().unwrap_or(u64::MAX);
        self.old.retain(|&v| {
            // SAFETY: versions in `old` are alive until freed here, once, when taken off the list.
            let unread = unsafe { (*v).number } < least;
            if unread {
                // SAFETY: no reader says this number or a smaller one, and it is not current.
                drop(unsafe { Box::from_raw(v) });
            }
            !unread
        });
    }
}

impl<A: Arch, T: 'static> Drop for Rcu<A, T> {
    fn drop(&mut self) {
        let current = self.current.load(Relaxed);
        for &v in self.control.get_mut().old.iter().chain(&[current]) {
            // SAFETY: readers hold an `Arc` of this, so there is none left, and each version is on one of the two.
            drop(unsafe { Box::from_raw(v) });
        }
    }
}

/// One thread's view of an [`Rcu`].
pub struct Reader<A: Arch, T: Send + Sync + 'static> {
    rcu: Arc<Rcu<A, T>>,
    says: Arc<CachePadded<A::AtomicU64>>,
    version: *const Version<T>,
}

// SAFETY: a reader is an `Arc<Rcu>` and a pointer into it that moves with it.
unsafe impl<A: Arch, T: Send + Sync> Send for Reader<A, T> {}

impl<A: Arch, T: Send + Sync + 'static> Reader<A, T> {
    /// The version this reader holds.
    #[inline]
    pub fn get(&self) -> &T {
        // SAFETY: `says` keeps the version alive until `update`, which takes `&mut self` and so ends this borrow.
        unsafe { &(*self.version).value }
    }

    /// Whether there is a newer version.
    #[inline]
    pub fn is_stale(&self) -> bool {
        !ptr::eq(self.rcu.current.load(Relaxed), self.version)
    }

    /// Moves on to the current version.
    pub fn update(&mut self) {
        let version = self.rcu.current.load(Acquire);
        self.version = version;
        // SAFETY: alive, because this reader still says an older number or the same.
        let number = unsafe { (*version).number };
        // Release: our accesses to the old version come before the writer's free.
        self.says.store(number, Release);
    }
}

impl<A: Arch, T: Send + Sync + 'static> Drop for Reader<A, T> {
    fn drop(&mut self) {
        let says = &self.says;
        self.rcu.control.with(|held| {
            let control = held.data();
            control.readers.retain(|r| !Arc::ptr_eq(r, says));
            control.free_unread();
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize};
    use std::thread;

    use super::*;
    use crate::arch::Native;

    static ALIVE: AtomicUsize = AtomicUsize::new(0);

    /// A value that is whole if both halves are equal.
    struct Halves(usize, Box<usize>);

    impl Halves {
        fn new(n: usize) -> Self {
            ALIVE.fetch_add(1, Relaxed);
            Self(n, Box::new(n))
        }
    }

    impl Drop for Halves {
        fn drop(&mut self) {
            ALIVE.fetch_sub(1, Relaxed);
        }
    }

    /// Readers move on, hold on, come and go while versions are published: each sees whole ones, and all are freed.
    #[test]
    fn readers_see_whole_versions_and_old_ones_are_freed() {
        let versions = if cfg!(miri) { 30 } else { 20_000 };
        let rcu = Arc::new(Rcu::<Native, _>::new(Halves::new(0)));
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut reader = rcu.reader();
                    let mut newest = 0;
                    while !done.load(Relaxed) {
                        if reader.is_stale() {
                            reader.update();
                        }
                        let Halves(left, right) = reader.get();
                        assert_eq!(left, &**right);
                        assert!(*left >= newest);
                        newest = *left;
                        if left % 7 == 0 {
                            reader = rcu.reader();
                        }
                        thread::yield_now();
                    }
                });
            }
            (1..=versions).for_each(|n| rcu.publish(Halves::new(n)));
            done.store(true, Relaxed);
        });
        assert_eq!(rcu.versions(), 1);
        assert_eq!(ALIVE.load(Relaxed), 1);
        drop(rcu);
        assert_eq!(ALIVE.load(Relaxed), 0);
    }
}
