//! The rings that the program and the kernel share: their cursors, on memory that the kernel maps.
//!
//! A ring has two cursors. The producer writes slots, then its cursor; the consumer reads slots, then writes its own. Both
//! cursors count up and wrap at 2^32; a slot's index is the cursor modulo the ring's size. Each side keeps a copy of the other
//! side's cursor, and reads the shared one only if the copy says that the ring is full or empty. It writes its own cursor once
//! a batch ([`Producer::publish`], [`Consumer::publish`]).
//!
//! The types know nothing of the kernel, so tests play its side on ordinary memory.
//!
//! # No ring has two threads of the program at one side
//!
//! | ring | the program's side | made once by | used by |
//! |---|---|---|---|
//! | fill, rx | [`Producer`], [`Consumer`] | `Receiver::new` | the thread that has the receiver, by `&mut` |
//! | tx | [`Producer`] | `Tx::new` | the holder of the tx lock, or the owner of the only queue that feeds the txq, by `&mut` |
//! | completion | [`Consumer`] | `Done::new` | the holder of the completion lock, by `&mut` |
//!
//! The other side is the kernel's. Neither type can be cloned, and every method that touches a slot takes `&mut self` or reads what
//! that side alone has written. A change of thread goes through the lock, which orders the accesses. Copies of a [`Ring`] read its
//! cursors only, from any thread: those are atomics, and a stale one says "full", "empty" or "pending" too long, until the next load.
//! So the one concurrency in a ring is that with the kernel, which `values_cross_between_threads_in_order` plays under Miri. What
//! threads of the program do share without a lock is the table of the buffers' uses (`umem.rs`), by compare and swap.
//!
//! The kernel's cursors are not trusted with memory: whatever they say, an index stays within the ring, and no side gets more
//! slots than the ring has.

use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, fence};

/// Set by the kernel in a ring's flags: it sleeps until it is woken (`XDP_RING_NEED_WAKEUP`).
const NEED_WAKEUP: u32 = 1;

/// Where a ring lies.
#[derive(Debug)]
pub(super) struct Ring<T> {
    /// The next slot to fill. Written by the producer (Release: the slots' content), read by the consumer (Acquire).
    producer: NonNull<AtomicU32>,
    /// The next slot to empty. Written by the consumer (Release: its reads of the slots), read by the producer (Acquire).
    consumer: NonNull<AtomicU32>,
    /// Written by the kernel, read by the program. Relaxed behind a full fence: see [`Ring::needs_wakeup`].
    flags: NonNull<AtomicU32>,
    slots: NonNull<T>,
    /// Number of slots, a power of two.
    size: u32,
}

impl<T> Clone for Ring<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ring<T> {}

// SAFETY: the cursors and flags are atomics; the contract of `Producer::new` and `Consumer::new` gives each slot to one side.
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Describes a ring of `size` slots.
    ///
    /// # Safety
    /// All four pointers are aligned and valid, `slots` for `size` values, for as long as this ring, a copy of it, or a
    /// producer or consumer on it is used.
    ///
    /// # Panics
    /// When `size` is not a power of two.
    pub(super) unsafe fn new(
        producer: NonNull<AtomicU32>,
        consumer: NonNull<AtomicU32>,
        flags: NonNull<AtomicU32>,
        slots: NonNull<T>,
        size: u32,
    ) -> Self {
        assert!(size.is_power_of_two(), "a ring of {size} slots: use a power of two");
        Self { producer, consumer, flags, slots, size }
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: valid by the contract of `new`.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: valid by the contract of `new`.
        unsafe { self.consumer.as_ref() }
    }

    fn slot(&self, at: u32) -> NonNull<T> {
        // SAFETY: the index is less than `size`, for which `slots` is valid.
        unsafe { self.slots.add((at & (self.size - 1)) as usize) }
    }

    /// Returns the producer's published cursor.
    pub(super) fn produced(&self) -> u32 {
        self.producer().load(Acquire)
    }

    /// Returns the consumer's published cursor.
    pub(super) fn consumed(&self) -> u32 {
        self.consumer().load(Acquire)
    }

    /// Returns whether slots are filled that the consumer has not emptied.
    pub(super) fn has_pending(&self) -> bool {
        self.consumed() != self.produced()
    }

    /// Returns whether the kernel sleeps until it is woken. The caller has published slots before.
    pub(super) fn needs_wakeup(&self) -> bool {
        // Orders the store of the producer's cursor before the load of the flags: the kernel sets the flag and then reads
        // the cursor, so one of both sees the other's store.
        fence(SeqCst);
        // SAFETY: valid by the contract of `new`.
        unsafe { self.flags.as_ref() }.load(Relaxed) & NEED_WAKEUP != 0
    }
}

/// The side that fills a ring.
#[derive(Debug)]
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// The next slot to fill.
    head: u32,
    /// The consumer's cursor as last read: never ahead of the real one.
    tail: u32,
}

impl<T: Copy> Producer<T> {
    /// Takes over the producing side, where the last producer has left it.
    ///
    /// # Safety
    /// There is no other producer on the ring, and its consumer reads only slots between the two cursors.
    pub(super) unsafe fn new(ring: Ring<T>) -> Self {
        Self { ring, head: ring.producer().load(Relaxed), tail: ring.consumed() }
    }

    /// Returns the ring.
    pub(super) fn ring(&self) -> &Ring<T> {
        &self.ring
    }

    /// Returns the cursor: the next slot to fill, published or not.
    pub(super) fn head(&self) -> u32 {
        self.head
    }

    /// Returns the number of free slots; at least `want`, if that many are free.
    pub(super) fn room(&mut self, want: u32) -> u32 {
        let room = |side: &Self| side.ring.size.saturating_sub(side.head.wrapping_sub(side.tail));
        if room(self) < want {
            self.tail = self.ring.consumed();
        }
        room(self)
    }

    /// Fills the next slot; the consumer sees the value after [`publish`](Producer::publish). Returns whether a slot was free.
    pub(super) fn push(&mut self, value: T) -> bool {
        if self.room(1) == 0 {
            return false;
        }
        // SAFETY: the slot is free, hence the producer's until `publish`.
        unsafe { self.ring.slot(self.head).write(value) };
        self.head = self.head.wrapping_add(1);
        true
    }

    /// Publishes all slots filled so far.
    pub(super) fn publish(&mut self) {
        self.ring.producer().store(self.head, Release);
    }

    /// Returns the value of a slot that this side has filled. The caller passes a cursor of the last `size` slots.
    pub(super) fn filled(&self, at: u32) -> T {
        // SAFETY: the slot was written by this side, and a consumer only reads.
        unsafe { self.ring.slot(at).read() }
    }
}

/// The side that empties a ring.
#[derive(Debug)]
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    /// The producer's cursor as last read: never ahead of the real one.
    head: u32,
    /// The next slot to empty.
    tail: u32,
}

impl<T: Copy> Consumer<T> {
    /// Takes over the consuming side, where the last consumer has left it.
    ///
    /// # Safety
    /// There is no other consumer on the ring, its producer writes only slots outside of the two cursors, and every bit
    /// pattern is a value of `T`.
    pub(super) unsafe fn new(ring: Ring<T>) -> Self {
        Self { ring, head: ring.produced(), tail: ring.consumer().load(Relaxed) }
    }

    /// Returns the next value without taking it; `None` if the ring is empty.
    pub(super) fn peek(&mut self) -> Option<T> {
        if self.head == self.tail {
            let head = self.ring.produced();
            if !(1..=self.ring.size).contains(&head.wrapping_sub(self.tail)) {
                return None;
            }
            self.head = head;
        }
        // SAFETY: the slot is filled, hence the consumer's until `publish`.
        Some(unsafe { self.ring.slot(self.tail).read() })
    }

    /// Takes the next value; `None` if the ring is empty. Its slot returns to the producer at
    /// [`publish`](Consumer::publish).
    pub(super) fn pop(&mut self) -> Option<T> {
        let value = self.peek()?;
        self.tail = self.tail.wrapping_add(1);
        Some(value)
    }

    /// Returns to the producer all slots emptied so far.
    pub(super) fn publish(&mut self) {
        self.ring.consumer().store(self.tail, Release);
    }
}

#[cfg(test)]
mod tests;
