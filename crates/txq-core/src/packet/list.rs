//! Lists of packets: the unit that the stages of the transmit path hand on, instead of single packets.

use std::fmt;
use std::ptr::{self, NonNull};

use crate::arch::{Arch, CellApi, Nanos, Native};
use crate::drop::DropReason;
use crate::packet::Packet;
use crate::pool::home::Home;
use crate::pool::retired::retire;
use crate::pool::slot::{Body, Chain, Slot};
use crate::pool::store::Store;

/// A first-in first-out list, linked through the packets, with its sums of packets, bytes and segments. Appending a list to
/// a list takes constant time. Dropping a list returns every buffer to its home.
pub struct PacketList<A: Arch = Native> {
    head: *mut Slot<A>,
    /// Valid while `len > 0`. The last packet's `next` is not valid: the next append writes it.
    tail: *mut Slot<A>,
    bytes: u64,
    segs: u64,
    /// The home of all packets, if they have one home and no flow counts them; else null. Valid while `len > 0`. A remote
    /// free of such a list reads no packet, so the packets' cache lines stay with the home's CPU.
    home: *const Home<A>,
    len: u32,
    stamped: bool,
}

// SAFETY: a list owns its packets, and a packet is `Send`.
unsafe impl<A: Arch> Send for PacketList<A> {}
// SAFETY: `&PacketList` only reads.
unsafe impl<A: Arch> Sync for PacketList<A> {}

impl<A: Arch> PacketList<A> {
    /// Returns an empty list.
    #[inline]
    pub const fn new() -> Self {
        Self {
            head: ptr::null_mut(),
            tail: ptr::null_mut(),
            bytes: 0,
            segs: 0,
            home: ptr::null(),
            len: 0,
            stamped: false,
        }
    }

    /// Returns the number of packets; a GSO packet counts as one.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the list has no packets.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes of all packets.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of packets, each GSO packet counted as its segments.
    #[inline]
    pub fn segs(&self) -> u64 {
        self.segs
    }

    /// Whether the latency of a packet is sampled. May stay true after that packet has left the list.
    #[doc(hidden)]
    #[inline]
    pub fn stamped(&self) -> bool {
        self.stamped
    }

    /// Appends a packet.
    #[inline]
    pub fn push_back(&mut self, packet: Packet<A>) {
        let (len, segs, stamp, home) = packet.body(|b| {
            let counted = b.flags & Body::<A>::COUNTED != 0;
            (b.len, b.gso_segs, b.stamp, if counted { ptr::null() } else { b.home })
        });
        self.bytes += u64::from(len);
        self.segs += u64::from(segs);
        self.stamped |= stamp != 0;
        self.join(home);
        self.link(packet.into_slot());
    }

    /// Updates the list's home for packets of `home` that are about to be added.
    #[inline]
    fn join(&mut self, home: *const Home<A>) {
        if self.len == 0 {
            self.home = home;
        } else if !ptr::eq(self.home, home) {
            self.home = ptr::null();
        }
    }

    /// Appends a packet fresh from the pool without reading it. The caller then adds it to the sums with
    /// [`add_fresh`](PacketList::add_fresh).
    #[inline]
    pub(crate) fn push_fresh(&mut self, packet: Packet<A>, home: *const Home<A>) {
        self.join(home);
        self.link(packet.into_slot());
    }

    /// Adds `n` packets of `len` bytes, appended by `push_fresh`, to the sums.
    #[inline]
    pub(crate) fn add_fresh(&mut self, n: usize, len: usize) {
        self.bytes += (n * len) as u64;
        self.segs += n as u64;
    }

    /// Puts a packet in front, as a driver does with a packet that it took and cannot send yet.
    pub fn push_front(&mut self, packet: Packet<A>) {
        let mut list = Self::new();
        list.push_back(packet);
        self.prepend(&mut list);
    }

    /// Links a packet behind the last one.
    #[inline]
    fn link(&mut self, slot: NonNull<Slot<A>>) {
        let slot = slot.as_ptr();
        if self.len == 0 {
            self.head = slot;
        } else {
            // SAFETY: the list owns its packets, and while it is not empty `tail` is one of them.
            unsafe { (*self.tail).next.with_mut(|n| *n = slot) };
        }
        self.tail = slot;
        self.len += 1;
    }

    /// Takes the first packet, or returns `None` if the list is empty.
    #[inline]
    pub fn pop_front(&mut self) -> Option<Packet<A>> {
        if self.len == 0 {
            return None;
        }
        // SAFETY: a list that is not empty has a head, which it owns and now gives away.
        let packet = unsafe { Packet::from_slot(NonNull::new_unchecked(self.head)) };
        let (len, segs) = packet.body(|b| (b.len, b.gso_segs));
        self.bytes -= u64::from(len);
        self.segs -= u64::from(segs);
        self.len -= 1;
        if self.len > 0 {
            // SAFETY: a packet that is not the last has a valid `next`.
            self.head = unsafe { (*self.head).next.with(|n| *n) };
        } else {
            self.stamped = false;
        }
        Some(packet)
    }

    /// Returns the first packet.
    #[inline]
    pub fn front(&self) -> Option<&Packet<A>> {
        if self.len == 0 {
            return None;
        }
        // SAFETY: a packet is nothing but a pointer to its descriptor, and `head` is one that the list owns; the
        // borrow of the list keeps it there.
        Some(unsafe { &*ptr::from_ref(&self.head).cast::<Packet<A>>() })
    }

    /// Returns the last packet.
    #[inline]
    pub fn back(&self) -> Option<&Packet<A>> {
        if self.len == 0 {
            return None;
        }
        // SAFETY: as in `front`; while the list is not empty, `tail` is one of its packets.
        Some(unsafe { &*ptr::from_ref(&self.tail).cast::<Packet<A>>() })
    }

    /// Marks the first packet for latency sampling, as handed in at `at`.
    #[doc(hidden)]
    pub fn stamp_front(&mut self, at: Nanos) {
        if self.len > 0 {
            // SAFETY: `head` is a packet that the list owns.
            unsafe { (*self.head).body.with_mut(|b| (*b).stamp = at) };
            self.stamped = true;
        }
    }

    /// Moves all packets of `other` to the end.
    #[inline]
    pub fn append(&mut self, other: &mut PacketList<A>) {
        if other.len == 0 {
            return;
        }
        self.join(other.home);
        if self.len == 0 {
            self.head = other.head;
        } else {
            // SAFETY: as in `link`; `other` gives its packets away.
            unsafe { (*self.tail).next.with_mut(|n| *n = other.head) };
        }
        self.tail = other.tail;
        self.bytes += other.bytes;
        self.len += other.len;
        self.segs += other.segs;
        self.stamped |= other.stamped;
        other.forget();
    }

    /// Moves all packets of `other` to the front.
    #[doc(hidden)]
    pub fn prepend(&mut self, other: &mut PacketList<A>) {
        other.append(self);
        self.append(other);
    }

    /// Moves the first `n` packets to the end of `to`, in constant time if these are all.
    #[inline]
    pub fn move_front(&mut self, n: usize, to: &mut PacketList<A>) {
        if n >= self.len() {
            to.append(self);
            return;
        }
        for _ in 0..n {
            to.push_back(self.pop_front().expect("n is less than len"));
        }
    }

    /// Moves packets from the front to the end of `to` while the budget of `packets` and `bytes` is above 0; the last one
    /// may exceed the bytes left. Takes constant time if all packets fit.
    #[doc(hidden)]
    #[inline]
    pub fn move_within(&mut self, packets: usize, bytes: u64, to: &mut PacketList<A>) {
        if bytes >= self.bytes {
            return self.move_front(packets, to);
        }
        let (mut packets, mut bytes) = (packets, bytes);
        while packets > 0 && bytes > 0 {
            let Some(packet) = self.pop_front() else { return };
            packets -= 1;
            bytes = bytes.saturating_sub(packet.len() as u64);
            to.push_back(packet);
        }
    }

    /// Records at each sampled packet's home the time from its stamp until `now`.
    #[doc(hidden)]
    pub fn note_times(&self, now: Nanos) {
        for packet in self.iter().filter(|packet| packet.stamp() != 0) {
            let time = now.saturating_sub(packet.stamp());
            // SAFETY: the home of a packet lives as long as the packet, which this list owns.
            packet.body(|b| unsafe { (*b.home).note_time(time) });
        }
    }

    /// Calls `f` with the home, the drop reason and the length of each run of successive packets that have both in common.
    pub(crate) fn for_each_drop(&self, mut f: impl FnMut(&Home<A>, DropReason, u32)) {
        let mut run: Option<(&Home<A>, DropReason, u32)> = None;
        for packet in self.iter() {
            // SAFETY: the home of a packet lives as long as the packet, which this list owns.
            let (home, reason) = packet.body(|b| (unsafe { &*b.home }, b.reason));
            run = Some(match run {
                Some((last, why, n)) if ptr::eq(last, home) && why == reason => (home, reason, n + 1),
                last => {
                    last.into_iter().for_each(|(home, reason, n)| f(home, reason, n));
                    (home, reason, 1)
                }
            });
        }
        run.into_iter().for_each(|(home, reason, n)| f(home, reason, n));
    }

    /// Calls `f` with each packet, in order; `f` may change it. The sums stay right.
    pub fn for_each_mut(&mut self, mut f: impl FnMut(&mut Packet<A>)) {
        for _ in 0..self.len {
            let mut packet = self.pop_front().expect("len packets");
            f(&mut packet);
            self.push_back(packet);
        }
    }

    /// Iterates over the packets, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Packet<A>> {
        let mut at = &self.head;
        (0..self.len).map(move |i| {
            if i > 0 {
                // SAFETY: the packet before is on the list and not its last, so its `next` is valid; the borrow of
                // the list keeps both where they are.
                at = unsafe { (**at).next.with(|n| &*n) };
            }
            // SAFETY: as in `front`.
            unsafe { &*ptr::from_ref(at).cast::<Packet<A>>() }
        })
    }

    /// Gives the packets up to an `LList`; returns the first one, whose descriptor holds the sums, or `None` if the list is
    /// empty. The last packet's `next` is null.
    #[doc(hidden)]
    pub fn take_chain(&mut self) -> Option<NonNull<Slot<A>>> {
        if self.len == 0 {
            return None;
        }
        let Self { tail, bytes, home, len, segs, stamped, .. } = *self;
        let chain = Chain::new(tail, bytes, len, segs, stamped, !home.is_null());
        // SAFETY: the list owns its packets, and now gives them to the caller.
        unsafe {
            (*self.tail).next.with_mut(|n| *n = ptr::null_mut());
            (*self.head).chain.with_mut(|c| *c = chain);
        }
        let head = NonNull::new(self.head);
        self.forget();
        head
    }

    /// Gives the packets up; returns the first, the last, their number, and the list's home or null. The packets are linked
    /// by `next`.
    #[inline]
    pub(crate) fn take_slots(&mut self) -> (*mut Slot<A>, *mut Slot<A>, u32, *const Home<A>) {
        let len = self.len;
        self.forget();
        (self.head, self.tail, len, self.home)
    }

    /// Whether all packets have this home and no flow counts them, so that freeing them needs only the buffers. False for an
    /// empty list.
    #[inline]
    pub(crate) fn is_of(&self, home: *const Home<A>) -> bool {
        self.len > 0 && ptr::eq(self.home, home)
    }

    /// Ends the packets of a list that [`is_of`](PacketList::is_of) one home: calls `f` with each buffer, in order, which the
    /// caller owns then.
    #[inline]
    pub(crate) fn take_each(&mut self, mut f: impl FnMut(NonNull<Slot<A>>)) {
        let (mut at, len) = (self.head, self.len);
        self.forget();
        for behind in (0..len).rev() {
            // SAFETY: `at` is the head, or the `next` of a packet in front of the last: a packet that the list owned and gives away.
            let slot = unsafe { NonNull::new_unchecked(at) };
            if behind > 0 {
                // SAFETY: a packet that is not the last has a valid `next`.
                at = unsafe { (*at).next.with(|n| *n) };
            }
            #[cfg(debug_assertions)]
            // SAFETY: the buffer was the list's.
            unsafe {
                let s = slot.as_ref();
                s.check.back(s.body.with(|b| (*b).home));
            }
            f(slot);
        }
    }

    /// Frees the list without a cache: sends each run of packets of one home there in one push.
    #[cold]
    fn send_home(&mut self) {
        // SAFETY: a buffer's home lives as long as its pool, and that at least until the buffer is home.
        retire(self, |home, mut run| unsafe { (*home).take_back(&mut run, Store::node_here) });
    }

    /// Empties the list, after its packets were given away.
    #[inline]
    fn forget(&mut self) {
        (self.len, self.segs, self.bytes, self.stamped) = (0, 0, 0, false);
    }

    /// Rebuilds the list that [`take_chain`](PacketList::take_chain) gave up.
    ///
    /// # Safety
    /// `take_chain` returned `head`, the caller uses it once, and the caller has acquired its content from the thread that
    /// gave it up.
    #[doc(hidden)]
    pub unsafe fn from_chain(head: NonNull<Slot<A>>) -> Self {
        // SAFETY: the caller's promise.
        unsafe { head.as_ref() }.chain.with(|c| {
            // SAFETY: as above.
            let c = unsafe { &*c };
            Self {
                head: head.as_ptr(),
                tail: c.tail,
                bytes: c.bytes,
                segs: c.segs(),
                home: match c.one_home() {
                    false => ptr::null(),
                    // SAFETY: as above.
                    true => unsafe { head.as_ref() }.body.with(|b| unsafe { (*b).home }),
                },
                len: c.len,
                stamped: c.stamped(),
            }
        })
    }
}

impl<A: Arch> Default for PacketList<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Arch> Extend<Packet<A>> for PacketList<A> {
    fn extend<I: IntoIterator<Item = Packet<A>>>(&mut self, packets: I) {
        packets.into_iter().for_each(|p| self.push_back(p));
    }
}

impl<A: Arch> FromIterator<Packet<A>> for PacketList<A> {
    fn from_iter<I: IntoIterator<Item = Packet<A>>>(packets: I) -> Self {
        let mut list = Self::new();
        list.extend(packets);
        list
    }
}

impl<A: Arch> Drop for PacketList<A> {
    #[inline]
    fn drop(&mut self) {
        // On the transmit path every list is empty when it is dropped.
        if self.len > 0 {
            self.send_home();
        }
    }
}

impl<A: Arch> fmt::Debug for PacketList<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketList").field("len", &self.len).field("bytes", &self.bytes).finish()
    }
}

#[cfg(test)]
mod tests;
