//! The data paths that a thread is in, to detect a call that would wait for its own caller.
//!
//! A driver, a qdisc, a filter or a completion may be the program's own code, called by a thread that owns a queue. If that
//! code sends through the same device or reads its counters, it may wait for the queue that its own thread owns. The thread
//! therefore records each device whose data path it enters. That costs two stores on entry and one on return, to the
//! thread's own memory, per call of xmit or turn of a worker.

use std::cell::Cell;
use std::marker::PhantomData;

use super::Arch;

/// The most data paths recorded; a thread that is in more counts as in every device's.
const MAX_INSIDE: usize = 16;

/// The data paths that a thread is in, the outermost first. Each thread has its own ([`Arch::inside`]); no other thread
/// accesses it.
#[derive(Debug)]
pub struct Inside {
    depth: Cell<u32>,
    /// A bit for each data path whose queue is released while its driver is called.
    lent: Cell<u32>,
    /// The devices' addresses.
    devices: [Cell<usize>; MAX_INSIDE],
}

impl Inside {
    /// Returns the record of a thread that is in no data path.
    pub const fn new() -> Self {
        Self { depth: Cell::new(0), lent: Cell::new(0), devices: [const { Cell::new(0) }; MAX_INSIDE] }
    }

    /// Returns the number of data paths that the thread is in: more than one where drivers send through other devices.
    #[inline]
    pub fn depth(&self) -> u32 {
        self.depth.get()
    }

    /// Whether the thread is in the data path of this device.
    pub fn is_in<T>(&self, device: *const T) -> bool {
        self.any(|_, entry| entry == device.addr())
    }

    /// Whether the thread is in the data path of this device and owns its queue: in a call of its qdisc, or by the
    /// discipline that called. The innermost entry is the caller's own, and does not count.
    pub fn owns<T>(&self, device: *const T) -> bool {
        let depth = self.depth.get();
        self.depth.set(depth.saturating_sub(1));
        let lent = self.lent.get();
        let owns = self.any(|path, entry| entry == device.addr() && lent & 1 << path == 0);
        self.depth.set(depth);
        owns
    }

    /// Whether `is` holds for one data path, given its position and its device's address; true beyond [`MAX_INSIDE`].
    fn any(&self, is: impl Fn(usize, usize) -> bool) -> bool {
        let depth = self.depth.get() as usize;
        depth > MAX_INSIDE
            || self.devices[..depth].iter().enumerate().any(|(path, entry)| is(path, entry.get()))
    }

    /// The entry at `depth`, if it is recorded.
    #[inline]
    fn at(&self, depth: u32) -> Option<&Cell<usize>> {
        self.devices.get(depth as usize)
    }
}

impl Default for Inside {
    fn default() -> Self {
        Self::new()
    }
}

/// Guard: the calling thread is in a device's data path until this is dropped, also by a panic.
pub struct Entered<A: Arch> {
    before: u32,
    arch: PhantomData<A>,
}

impl<A: Arch> Entered<A> {
    /// Enters the data path of `device`.
    #[inline]
    pub fn new<T>(device: *const T) -> Self {
        let before = A::inside(|inside| {
            let depth = inside.depth.get();
            if let Some(entry) = inside.at(depth) {
                entry.set(device.addr());
            }
            inside.depth.replace(depth + 1)
        });
        Self { before, arch: PhantomData }
    }
}

impl<A: Arch> Drop for Entered<A> {
    #[inline]
    fn drop(&mut self) {
        A::inside(|inside| inside.depth.set(self.before));
    }
}

/// Guard: the innermost data path's queue is released for a call of the driver until this is dropped, also by a panic.
pub struct Lent<A: Arch> {
    before: u32,
    arch: PhantomData<A>,
}

impl<A: Arch> Lent<A> {
    /// Marks the innermost data path's queue as released.
    #[inline]
    pub fn begin() -> Self {
        // Data paths too deep to be recorded count as owned, for any bit that this sets.
        let before = A::inside(|inside| {
            let innermost = inside.depth().wrapping_sub(1);
            inside.lent.replace(inside.lent.get() | 1_u32.wrapping_shl(innermost))
        });
        Self { before, arch: PhantomData }
    }
}

impl<A: Arch> Drop for Lent<A> {
    #[inline]
    fn drop(&mut self) {
        A::inside(|inside| inside.lent.set(self.before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Native;

    #[test]
    fn a_thread_knows_where_it_is() {
        let (a, b) = (Box::new(1_u64), Box::new(2_u64));
        let (a, b): (*const u64, *const u64) = (&raw const *a, &raw const *b);
        let is_in = |device| Native::inside(|inside| inside.is_in(device));
        let owns = |device| Native::inside(|inside| inside.owns(device));
        assert!(!is_in(a));
        let outer = Entered::<Native>::new(a);
        assert!(is_in(a) && !is_in(b) && !owns(a), "the innermost is the caller's own");
        let inner = Entered::<Native>::new(b);
        assert!(is_in(b) && owns(a));
        drop(inner);
        let lent = Lent::<Native>::begin();
        let inner = Entered::<Native>::new(b);
        assert!(is_in(a) && !owns(a), "its queue is released");
        drop((inner, lent));
        let inner = Entered::<Native>::new(b);
        assert!(owns(a), "and taken again");
        let deep: Vec<_> = (0..MAX_INSIDE).map(|_| Entered::<Native>::new(b)).collect();
        assert!(is_in(std::ptr::null::<u64>()), "who is in more than can be noted may be anywhere");
        deep.into_iter().rev().for_each(drop);
        drop((inner, outer));
        assert!(!is_in(a) && Native::inside(|inside| inside.depth()) == 0);
    }
}
