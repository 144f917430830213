//! The data paths that a thread is in, so that a call which would wait for its own caller is recognised.
//!
//! A driver, a qdisc, a filter or a completion is code of the program's own, called by a thread that owns a queue. If that code
//! sends through the same device or asks for its counters, it may wait for the queue that its own thread owns. The thread
//! therefore notes each device whose data path it enters. It costs two stores on entry and one on return, on the
//! thread's own memory, once for each call of xmit or turn of a worker.

use std::cell::Cell;
use std::marker::PhantomData;

use super::Arch;

/// Data paths noted; a thread that is in more is taken to be in all.
const DEPTH: usize = 16;

/// The data paths that a thread is in, the outermost first. Each thread has one ([`Arch::inside`]) and nobody else sees it.
#[derive(Debug)]
pub struct Inside {
    depth: Cell<u32>,
    /// A bit for each data path whose queue is not owned: its driver is being called, and the discipline has released it.
    lent: Cell<u32>,
    /// The devices, by address.
    devices: [Cell<usize>; DEPTH],
}

impl Inside {
    /// Of a thread that is in none.
    pub const fn new() -> Self {
        Self { depth: Cell::new(0), lent: Cell::new(0), devices: [const { Cell::new(0) }; DEPTH] }
    }

    /// How many they are: more than one where drivers send through other devices.
    #[inline]
    pub(crate) fn depth(&self) -> u32 {
        self.depth.get()
    }

    /// Whether one of them is this device's.
    pub(crate) fn is_in<T>(&self, device: *const T) -> bool {
        self.any(|_, entry| entry == device.addr())
    }

    /// Whether one of them is this device's, and the queue is owned: by a qdisc's call, or by the caller's own discipline. The
    /// innermost entry is the caller's, and does not count.
    pub(crate) fn owns<T>(&self, device: *const T) -> bool {
        let depth = self.depth.get();
        self.depth.set(depth.saturating_sub(1));
        let lent = self.lent.get();
        let owns = self.any(|path, entry| entry == device.addr() && lent & 1 << path == 0);
        self.depth.set(depth);
        owns
    }

    fn any(&self, is: impl Fn(usize, usize) -> bool) -> bool {
        let depth = self.depth.get() as usize;
        depth > DEPTH || self.devices[..depth].iter().enumerate().any(|(path, entry)| is(path, entry.get()))
    }

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

/// The calling thread is in a device's data path, until this is dropped, by a panic too.
pub(crate) struct Entered<A: Arch> {
    before: u32,
    arch: PhantomData<A>,
}

impl<A: Arch> Entered<A> {
    /// Enters the data path of `device`.
    #[inline]
    pub(crate) fn new<T>(device: *const T) -> Self {
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

/// The innermost data path's queue is released while the driver is called, until this is dropped, by a panic too.
pub(crate) struct Lent<A: Arch> {
    before: u32,
    arch: PhantomData<A>,
}

impl<A: Arch> Lent<A> {
    #[inline]
    pub(crate) fn new() -> Self {
        // Data paths that are too deep to be noted count as owned, whatever bit this sets.
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
        let lent = Lent::<Native>::new();
        let inner = Entered::<Native>::new(b);
        assert!(is_in(a) && !owns(a), "its queue is released");
        drop((inner, lent));
        let inner = Entered::<Native>::new(b);
        assert!(owns(a), "and taken again");
        let deep: Vec<_> = (0..DEPTH).map(|_| Entered::<Native>::new(b)).collect();
        assert!(is_in(std::ptr::null::<u64>()), "who is in more than can be noted may be anywhere");
        deep.into_iter().rev().for_each(drop);
        drop((inner, outer));
        assert!(!is_in(a) && Native::inside(|inside| inside.depth()) == 0);
    }
}
