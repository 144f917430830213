//! A value that many threads read at every packet and a writer replaces now and then: the kernel's RCU pointer, with
//! quiescent states instead of grace periods.
//!
//! Each [`Reader`] holds one version and publishes its number. A read is a plain access to that version: no lock, no
//! counter, no load of a word that another CPU writes. When it suits the reader ([`Reader::is_stale`], one load of a line
//! that only a replacement dirties), it moves on to the current version. The writer frees a version once every reader's
//! number is greater.
//!
//! Moving on is safe: a reader that publishes `g` keeps every version from `g` on alive, since the writer frees only
//! versions with numbers below the least published one. So the version that the reader loads, `h >= g`, is alive before the
//! reader publishes `h`.
//!
//! The writer takes a version off the list with the lock held and drops it after the lock is released. So `T::drop` may
//! panic, and may use the [`Rcu`] that held its version.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic, AtomicPtr};
use crate::sync::spinlock::SpinLock;

struct Version<T> {
    number: u64,
    value: T,
}

/// The writers' state, under the lock.
struct Control<A: Arch, T: 'static> {
    /// Replaced versions that a reader may still hold, oldest first.
    old: Vec<*mut Version<T>>,
    /// Each reader's published number ([`Reader::says`]), by the reader's serial number.
    readers: BTreeMap<u64, Arc<CachePadded<A::AtomicU64>>>,
    /// The number of readers created so far.
    made: u64,
    /// The number of the current version.
    newest: u64,
}

// SAFETY: the pointers in `old` own their versions, as boxes would.
unsafe impl<A: Arch, T: Send> Send for Control<A, T> {}

/// The replaceable value, on lines of its own.
#[repr(align(128))]
pub struct Rcu<A: Arch, T: 'static> {
    /// The current version. A writer swaps it with the lock held (Release: the new version); readers load it (Acquire when
    /// they move on; Relaxed to compare it).
    current: A::AtomicPtr<Version<T>>,
    control: SpinLock<A, Control<A, T>>,
}

// SAFETY: readers on several threads share `&T`, and a version made on one thread may be dropped on another.
unsafe impl<A: Arch, T: Send + Sync> Send for Rcu<A, T> {}
// SAFETY: as above.
unsafe impl<A: Arch, T: Send + Sync> Sync for Rcu<A, T> {}

impl<A: Arch, T: Send + Sync + 'static> Rcu<A, T> {
    /// Creates an `Rcu` with a first version.
    pub fn new(value: T) -> Self {
        let first = Box::into_raw(Box::new(Version { number: 1, value }));
        let control = Control { old: Vec::new(), readers: BTreeMap::new(), made: 0, newest: 1 };
        Self { current: A::AtomicPtr::new(first), control: SpinLock::new(control) }
    }

    /// Replaces the value and frees versions that no reader holds. Readers see the new value when they update.
    ///
    /// # Panics
    /// A `T::drop` panics. The value is replaced and all those versions are freed nevertheless.
    pub fn publish(&self, value: T) {
        let unread = self.control.with(|held| {
            let control = held.data();
            control.newest += 1;
            let new = Box::into_raw(Box::new(Version { number: control.newest, value }));
            // Release: the new version, to readers. The lock's acquire covers the old version, which may be freed here.
            let old = self.current.swap(new, Release);
            control.old.push(old);
            control.take_unread()
        });
        free(unread);
    }

    /// Frees versions that no reader holds; returns the number of versions left, the current one among them.
    pub fn versions(&self) -> usize {
        let (unread, kept) = self.control.with(|held| (held.data().take_unread(), held.data().old.len()));
        free(unread);
        kept + 1
    }

    /// Creates a reader at the current version.
    pub fn reader(self: &Arc<Self>) -> Reader<A, T> {
        self.control.with(|held| {
            // With the lock held no other thread publishes, so the current version is not freed before the reader is
            // entered.
            let version = self.current.load(Acquire);
            // SAFETY: see above; the current version is alive.
            let number = unsafe { (*version).number };
            let says = Arc::new(CachePadded::new(A::AtomicU64::new(number)));
            let control = held.data();
            let serial = control.made;
            control.made += 1;
            control.readers.insert(serial, says.clone());
            Reader { rcu: self.clone(), serial, says, version }
        })
    }
}

impl<A: Arch, T> Control<A, T> {
    /// Takes the versions that no reader holds off the list. The caller drops them after it has released the lock.
    fn take_unread(&mut self) -> Vec<Box<Version<T>>> {
        // Without loading each reader's number: readers end often, and versions are replaced seldom.
        if self.old.is_empty() {
            return Vec::new();
        }
        // Acquire: the readers' last accesses to older versions; pairs with the store in `Reader::update`.
        let least = self.readers.values().map(|r| r.load(Acquire)).min().unwrap_or(u64::MAX);
        // Numbers ascend, so the unread versions are the first.
        // SAFETY: versions in `old` are alive until they are taken off.
        let unread = self.old.partition_point(|&v| unsafe { (*v).number } < least);
        // SAFETY: no reader publishes the version's number or a smaller one, it is not current, and it leaves the list.
        self.old.drain(..unread).map(|v| unsafe { Box::from_raw(v) }).collect()
    }
}

/// Drops all of `versions`, and then resumes the first panic of a `T::drop`, unless the thread already panics.
fn free<T>(versions: Vec<Box<Version<T>>>) {
    let mut first: Option<Box<dyn Any + Send>> = None;
    for version in versions {
        // A panic leaves only the version itself half dropped, and no thread sees it again.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(version))) {
            first.get_or_insert(panic);
        }
    }
    if let Some(panic) = first.filter(|_| !thread::panicking()) {
        resume_unwind(panic);
    }
}

impl<A: Arch, T: 'static> Drop for Rcu<A, T> {
    fn drop(&mut self) {
        let current = self.current.load(Relaxed);
        let old = self.control.get_mut().old.drain(..);
        // SAFETY: each reader holds an `Arc` of this, so none is left, and each version is in `old` or is the current one.
        free(old.chain([current]).map(|v| unsafe { Box::from_raw(v) }).collect());
    }
}

/// One thread's view of an [`Rcu`].
pub struct Reader<A: Arch, T: Send + Sync + 'static> {
    rcu: Arc<Rcu<A, T>>,
    /// Its key among the readers.
    serial: u64,
    /// The number of `version`, or of an older one while the reader moves on. Written by the reader (Release: its last
    /// accesses to older versions), read by writers (Acquire) before they free versions with smaller numbers.
    says: Arc<CachePadded<A::AtomicU64>>,
    version: *const Version<T>,
}

// SAFETY: a reader is an `Arc<Rcu>` and a pointer into it that moves with it.
unsafe impl<A: Arch, T: Send + Sync> Send for Reader<A, T> {}

impl<A: Arch, T: Send + Sync + 'static> Reader<A, T> {
    /// Returns the version that this reader holds.
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
        // SAFETY: the version is alive, because this reader still publishes its number or an older one.
        let number = unsafe { (*version).number };
        // Release: orders this reader's accesses to the old version before the writer's free.
        self.says.store(number, Release);
    }
}

impl<A: Arch, T: Send + Sync + 'static> Drop for Reader<A, T> {
    fn drop(&mut self) {
        let unread = self.rcu.control.with(|held| {
            let control = held.data();
            control.readers.remove(&self.serial);
            control.take_unread()
        });
        free(unread);
    }
}

#[cfg(test)]
mod tests;
