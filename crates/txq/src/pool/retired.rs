//! Buffers on their way home: no packets any more, not yet in anybody's stock.

use std::ptr::{self, NonNull};

use crate::arch::{Arch, CellApi};
use crate::pool::home::Home;
use crate::pool::slot::Slot;
use crate::pool::store::Store;

/// Homes that [`Sorted`] collects for before it sends to one.
const OPEN: usize = 4;

/// Free buffers, linked by their `next`, oldest first. It must be given away; dropping it loses them.
pub(crate) struct Run<A: Arch> {
    head: *mut Slot<A>,
    /// Valid while `len > 0`; its `next` is not.
    tail: *mut Slot<A>,
    len: u32,
}

impl<A: Arch> Run<A> {
    pub(crate) const fn new() -> Self {
        Self { head: ptr::null_mut(), tail: ptr::null_mut(), len: 0 }
    }

    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Adds a buffer that the caller gives up.
    #[inline]
    pub(super) fn push(&mut self, slot: NonNull<Slot<A>>) {
        let slot = slot.as_ptr();
        if self.len == 0 {
            self.head = slot;
        } else {
            // SAFETY: the run owns its buffers, and `tail` is one of them.
            let next = unsafe { &(*self.tail).next };
            // Buffers of one packet list mostly follow each other already. Not to write leaves their cache lines with
            // the CPU that they go home to.
            // SAFETY: as above.
            if next.with(|n| unsafe { *n }) != slot {
                // SAFETY: as above.
                next.with_mut(|n| unsafe { *n = slot });
            }
        }
        self.tail = slot;
        self.len += 1;
    }

    /// The first buffer.
    #[inline]
    pub(super) fn head(&self) -> *mut Slot<A> {
        self.head
    }

    /// Has the last buffer's `next` point to `slot`.
    #[inline]
    pub(super) fn link_to(&mut self, slot: *mut Slot<A>) {
        debug_assert!(self.len > 0);
        // SAFETY: as in `push`.
        unsafe { (*self.tail).next.with_mut(|n| *n = slot) };
    }

    /// Is empty from now on. The buffers were given away.
    #[inline]
    pub(super) fn forget(&mut self) {
        self.len = 0;
    }

    /// Gives up the buffers: the first one, from which the others hang, up to a null.
    #[inline]
    pub(super) fn take(&mut self) -> *mut Slot<A> {
        self.link_to(ptr::null_mut());
        self.forget();
        self.head
    }
}

/// Packets of one home that were freed elsewhere.
pub(crate) struct Retired<A: Arch> {
    home: *const Home<A>,
    /// Those whose buffers the freeing side keeps: only their credit goes home.
    kept: u32,
    run: Run<A>,
}

impl<A: Arch> Retired<A> {
    /// Of no home yet.
    pub(crate) const fn new() -> Self {
        Self { home: ptr::null(), kept: 0, run: Run::new() }
    }

    /// Whether packets of `home` may be added.
    #[inline]
    pub(crate) fn is_for(&self, home: *const Home<A>) -> bool {
        ptr::eq(self.home, home)
    }

    /// Begins anew for `home`. What there was has been sent.
    #[inline]
    pub(crate) fn restart(&mut self, home: *const Home<A>) {
        self.home = home;
    }

    /// Adds a buffer of the home, which the caller gives up.
    #[inline]
    pub(crate) fn push(&mut self, slot: NonNull<Slot<A>>) {
        self.run.push(slot);
    }

    /// Counts a packet of the home whose buffer the caller keeps, if it is of the pool that `store` belongs to.
    #[inline]
    pub(super) fn keep(&mut self, store: &Store<A>) -> bool {
        // SAFETY: packets of the home are alive, and so is the home.
        let same = ptr::eq(unsafe { &*(*self.home).store }, store);
        self.kept += u32::from(same);
        same
    }

    /// Sends home what there is: an addition for the credit, and a compare-and-swap for the memory, however many they are.
    #[inline]
    pub(crate) fn send_home(&mut self, node: impl FnOnce(&Store<A>) -> usize) {
        if self.kept > 0 {
            // SAFETY: homes live as long as their pool, which whoever keeps its buffers keeps alive.
            unsafe { (*self.home).credit(self.kept) };
            self.kept = 0;
        }
        if self.run.len() > 0 {
            // SAFETY: a buffer's home lives as long as its pool, and that at least until the buffer is home.
            unsafe { (*self.home).take_back(&mut self.run, node) };
        }
    }
}

/// Packets of several homes, sorted as they come.
pub(super) struct Sorted<A: Arch> {
    open: [Retired<A>; OPEN],
    last: usize,
    node: usize,
}

impl<A: Arch> Sorted<A> {
    /// For a thread on `node`.
    #[inline]
    pub(super) fn new(node: usize) -> Self {
        Self { open: [const { Retired::new() }; OPEN], last: 0, node }
    }

    /// Where packets of `home` are collected.
    #[inline]
    pub(super) fn of(&mut self, home: *const Home<A>) -> &mut Retired<A> {
        if !self.open[self.last].is_for(home) {
            self.find(home);
        }
        &mut self.open[self.last]
    }

    fn find(&mut self, home: *const Home<A>) {
        let found = self.open.iter().position(|retired| retired.is_for(home));
        self.last = found.unwrap_or_else(|| {
            let turn = (self.last + 1) % OPEN;
            self.open[turn].send_home(|store| self.node.min(store.nodes() - 1));
            self.open[turn].restart(home);
            turn
        });
    }

    /// Sends all home.
    #[inline]
    pub(super) fn send_home(mut self) {
        for retired in &mut self.open {
            retired.send_home(|store| self.node.min(store.nodes() - 1));
        }
    }
}
