//! Buffers on their way home: no longer packets, not yet in a stock or inbox.

use std::mem;
use std::ptr::{self, NonNull};

use crate::arch::{Arch, CellApi};
use crate::packet::{Packet, PacketList};
use crate::pool::home::Home;
use crate::pool::slot::Slot;
use crate::pool::store::Store;

/// The most homes that [`Sorted`] collects for at a time.
const OPEN: usize = 4;

/// Free buffers, linked by their `next`, oldest first. The holder must give them away: dropping a run leaks its buffers.
pub(crate) struct Run<A: Arch> {
    head: *mut Slot<A>,
    /// Valid while `len > 0`; the last buffer's `next` is not valid.
    tail: *mut Slot<A>,
    len: u32,
}

impl<A: Arch> Run<A> {
    pub(super) const fn new() -> Self {
        Self { head: ptr::null_mut(), tail: ptr::null_mut(), len: 0 }
    }

    /// Returns the run of the buffers linked from `first` up to a null.
    ///
    /// # Safety
    /// The caller owns the buffers and gives them to the run.
    pub(super) unsafe fn of(mut first: *mut Slot<A>) -> Self {
        let mut run = Self::new();
        while let Some(slot) = NonNull::new(first) {
            // SAFETY: the caller's promise.
            first = unsafe { slot.as_ref().next.with(|n| *n) };
            run.push(slot);
        }
        run
    }

    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Adds a buffer, which the caller gives up.
    #[inline]
    pub(super) fn push(&mut self, slot: NonNull<Slot<A>>) {
        self.append(Run { head: slot.as_ptr(), tail: slot.as_ptr(), len: 1 });
    }

    /// Adds a run at the end.
    #[inline]
    pub(super) fn append(&mut self, run: Run<A>) {
        if self.len == 0 {
            self.head = run.head;
        } else {
            self.link_to(run.head);
        }
        self.tail = run.tail;
        self.len += run.len;
    }

    /// Takes off and returns the first `n` buffers, or all if there are fewer. `n` must not be 0.
    pub(super) fn split(&mut self, n: u32) -> Run<A> {
        if self.len <= n {
            return mem::replace(self, Run::new());
        }
        let (head, mut tail) = (self.head, self.head);
        for _ in 0..n {
            // SAFETY: the run owns its buffers, and there are more than `n`: each of these has a valid `next`.
            let next = unsafe { (*self.head).next.with(|n| *n) };
            tail = self.head;
            self.head = next;
        }
        self.len -= n;
        Run { head, tail, len: n }
    }

    /// Gives each buffer to `f`, in order.
    #[inline]
    pub(super) fn for_each(self, mut f: impl FnMut(NonNull<Slot<A>>)) {
        let mut slot = self.head;
        for left in (0..self.len).rev() {
            // SAFETY: the run owns its buffers, each but the last with a valid `next`, which is read before the buffer is
            // given away.
            let (this, next) = unsafe {
                let this = NonNull::new_unchecked(slot);
                (this, if left > 0 { this.as_ref().next.with(|n| *n) } else { slot })
            };
            f(this);
            slot = next;
        }
    }

    /// The first buffer.
    #[inline]
    pub(super) fn head(&self) -> *mut Slot<A> {
        self.head
    }

    /// Points the last buffer's `next` to `slot`. The run must not be empty.
    #[inline]
    pub(super) fn link_to(&mut self, slot: *mut Slot<A>) {
        debug_assert!(self.len > 0);
        // SAFETY: the run owns its buffers, and `tail` is one of them.
        unsafe { (*self.tail).next.with_mut(|n| *n = slot) };
    }

    /// Empties the run, after its buffers were given away.
    #[inline]
    pub(super) fn forget(&mut self) {
        self.len = 0;
    }

    /// Gives up the buffers; returns the first one, which links the others by `next` up to a null. The run must not be
    /// empty.
    #[inline]
    pub(super) fn take(&mut self) -> *mut Slot<A> {
        self.link_to(ptr::null_mut());
        self.forget();
        self.head
    }
}

/// Ends the packets of a list, and calls `f` with each run of successive packets of one home. Writes to no packet, so the
/// cache lines can stay with the CPU of their home until their next use.
#[inline]
pub(crate) fn retire<A: Arch>(list: &mut PacketList<A>, mut f: impl FnMut(*const Home<A>, Run<A>)) {
    let (mut slot, tail, mut left, home) = list.take_slots();
    // SAFETY: the list has given up its packets, `left` of them from `slot` on.
    let retire = |slot| unsafe { Packet::from_slot(NonNull::new_unchecked(slot)) }.retire();
    // SAFETY: as above.
    let home_of = |slot: *mut Slot<A>| unsafe { (*slot).body.with(|b| (*b).home) };
    if left > 0 && !home.is_null() {
        let run = Run { head: slot, tail, len: left };
        // Only the checks of debug builds read the packets.
        while cfg!(debug_assertions) && left > 0 {
            retire(slot);
            left -= 1;
            if left > 0 {
                // SAFETY: as above; a packet that is not the last has a valid `next`.
                slot = unsafe { (*slot).next.with(|n| *n) };
            }
        }
        return f(home, run);
    }
    while left > 0 {
        let home = home_of(slot);
        let mut run = Run { head: slot, tail: slot, len: 0 };
        loop {
            retire(slot);
            run.tail = slot;
            run.len += 1;
            left -= 1;
            if left == 0 {
                break;
            }
            // SAFETY: as above; a packet that is not the last has a valid `next`.
            slot = unsafe { (*slot).next.with(|n| *n) };
            if !ptr::eq(home_of(slot), home) {
                break;
            }
        }
        f(home, run);
    }
}

/// A collection of packets of one home that were freed elsewhere.
pub(super) struct Retired<A: Arch> {
    home: *const Home<A>,
    /// Packets whose buffers the freeing thread keeps: only their credit goes home.
    kept: u32,
    run: Run<A>,
}

impl<A: Arch> Retired<A> {
    /// Returns an empty collection, not yet bound to a home.
    const fn new() -> Self {
        Self { home: ptr::null(), kept: 0, run: Run::new() }
    }

    /// Whether packets of `home` may be added.
    #[inline]
    fn is_for(&self, home: *const Home<A>) -> bool {
        ptr::eq(self.home, home)
    }

    /// Binds the collection to `home`. It must be empty.
    #[inline]
    fn restart(&mut self, home: *const Home<A>) {
        self.home = home;
    }

    /// Adds buffers of the home.
    #[inline]
    pub(super) fn append(&mut self, run: Run<A>) {
        self.run.append(run);
    }

    /// Counts `n` packets of the home whose buffers the caller keeps, if the home is of `store`'s pool; returns whether it
    /// is.
    #[inline]
    pub(super) fn keep(&mut self, n: u32, store: &Store<A>) -> bool {
        // SAFETY: packets of the home are alive, and so is the home.
        let same = ptr::eq(unsafe { &*(*self.home).store }, store);
        self.kept += if same { n } else { 0 };
        same
    }

    /// Sends home the credit and the buffers collected: one addition for the credit and one compare-and-swap for the memory,
    /// for any number of packets.
    #[inline]
    fn send_home(&mut self, node: impl FnOnce(&Store<A>) -> usize) {
        if self.kept > 0 {
            // SAFETY: homes live as long as their pool, which the thread that keeps the buffers keeps alive.
            unsafe { (*self.home).credit(self.kept) };
            self.kept = 0;
        }
        if self.run.len() > 0 {
            // SAFETY: a buffer's home lives as long as its pool, and the pool at least until the buffer is home.
            unsafe { (*self.home).take_back(&mut self.run, node) };
        }
    }
}

/// Collects freed packets by home, for up to [`OPEN`] homes at a time.
pub(super) struct Sorted<A: Arch> {
    open: [Retired<A>; OPEN],
    last: usize,
    node: usize,
}

impl<A: Arch> Sorted<A> {
    /// Returns empty collections for a thread on `node`.
    #[inline]
    pub(super) fn new(node: usize) -> Self {
        Self { open: [const { Retired::new() }; OPEN], last: 0, node }
    }

    /// Returns the collection for packets of `home`.
    #[inline]
    pub(super) fn of(&mut self, home: *const Home<A>) -> &mut Retired<A> {
        if !self.open[self.last].is_for(home) {
            self.find(home);
        }
        &mut self.open[self.last]
    }

    /// Selects the collection of `home`. If `home` has none, sends home what the next one in turn holds, and binds that one
    /// to `home`.
    fn find(&mut self, home: *const Home<A>) {
        let found = self.open.iter().position(|retired| retired.is_for(home));
        self.last = found.unwrap_or_else(|| {
            let turn = (self.last + 1) % OPEN;
            self.open[turn].send_home(|store| self.node.min(store.nodes() - 1));
            self.open[turn].restart(home);
            turn
        });
    }

    /// Sends home what all collections hold.
    #[inline]
    pub(super) fn send_home(mut self) {
        for retired in &mut self.open {
            retired.send_home(|store| self.node.min(store.nodes() - 1));
        }
    }
}
