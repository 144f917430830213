//! The ring of descriptors: its cursors in shared memory, and the wake of a side that sleeps.
//!
//! Two processes share a ring, and neither trusts the other. So a slot is four atomics, which the consumer loads once each; and each side
//! checks the other's cursor when it loads it: a cursor that no right peer can have is [`Broken`].
//!
//! A side that finds nothing to do sets its `waits`, checks once more, and sleeps on its socket. The other side reads `waits` after
//! each publication, and rings: it sends a byte. Both have a full fence between their store and their load, so one of the two sees
//! the other's store (store buffering): no wake is lost. `txq-check`'s `socket` explores this protocol.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use txq_core::arch::{Arch, Atomic, Native};

/// The words of a side, on lines of its own: in shared memory, 128 bytes.
#[repr(C, align(128))]
struct Side<A: Arch> {
    /// The next slot of this side; it wraps at 2^32. Written by this side (Release: its accesses to the slots), read by the other one
    /// (Acquire).
    cursor: A::AtomicU32,
    /// 1 while this side sleeps, or is about to; else 0. Set by this side, before a SeqCst fence and its load of the other's `cursor`;
    /// loaded and cleared by the other side, after its store of `cursor` and a SeqCst fence.
    waits: A::AtomicU32,
    /// The consumer's: how many descriptors it has rejected; wraps. Published by its `cursor`.
    rejected: A::AtomicU32,
}

/// The cursors, as they lie in shared memory from offset 128 on.
#[repr(C)]
pub struct Cursors<A: Arch = Native> {
    producer: Side<A>,
    consumer: Side<A>,
}

/// A slot: offset, length, priority and flags. The producer writes it before it publishes its cursor. A wrong producer may write at any
/// time, so each word is an atomic.
#[repr(C)]
pub struct Slot<A: Arch = Native>([A::AtomicU32; 4]);

/// What a slot says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The frame's first byte, from the beginning of the data on.
    pub offset: u32,
    /// The frame's length, in bytes.
    pub len: u32,
    /// The packet's priority.
    pub priority: u32,
    /// Must be 0.
    pub flags: u32,
}

/// The other side's cursor is one that it cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

impl<A: Arch> Side<A> {
    fn new() -> Self {
        Self { cursor: A::AtomicU32::new(0), waits: A::AtomicU32::new(0), rejected: A::AtomicU32::new(0) }
    }

    /// Returns whether this side sleeps, and does not from now on: the caller rings. The caller has published its cursor.
    fn must_ring(&self) -> bool {
        // Orders the store of the caller's cursor before the load; pairs with the fence in `Ring::announce`.
        A::fence(SeqCst);
        if self.waits.load(Relaxed) == 0 {
            return false;
        }
        self.waits.store(0, Relaxed);
        true
    }

    /// Says that this side is about to sleep. The caller reads the other's cursor next.
    fn announce(&self) {
        self.waits.store(1, Relaxed);
        // Orders the store before the load of the other's cursor; pairs with the fence in `must_ring`.
        A::fence(SeqCst);
    }
}

impl<A: Arch> Cursors<A> {
    /// Returns cursors of an empty ring.
    pub fn new() -> Self {
        Self { producer: Side::new(), consumer: Side::new() }
    }
}

impl<A: Arch> Default for Cursors<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Arch> Default for Slot<A> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| A::AtomicU32::new(0)))
    }
}

/// A ring: where its words are.
pub struct Ring<'m, A: Arch = Native> {
    cursors: &'m Cursors<A>,
    slots: &'m [Slot<A>],
}

impl<A: Arch> Clone for Ring<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A: Arch> Copy for Ring<'_, A> {}

impl<'m, A: Arch> Ring<'m, A> {
    /// Returns a ring of these slots, whose number is a power of two.
    pub fn new(cursors: &'m Cursors<A>, slots: &'m [Slot<A>]) -> Self {
        debug_assert!(slots.len().is_power_of_two());
        Self { cursors, slots }
    }

    fn size(&self) -> u32 {
        self.slots.len() as u32
    }

    fn slot(&self, at: u32) -> &'m Slot<A> {
        &self.slots[at as usize & (self.slots.len() - 1)]
    }

    /// Returns how many descriptors the consumer has rejected.
    pub fn rejected(&self) -> u32 {
        self.cursors.consumer.rejected.load(Relaxed)
    }
}

/// The side that fills slots: a client's.
#[derive(Debug, Default)]
pub struct Producer {
    /// The next slot to fill, published or not.
    head: u32,
    /// The consumer's cursor as last loaded and checked.
    tail: u32,
}

impl Producer {
    /// Returns the next slot to fill.
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Returns the number of free slots; reads the consumer's cursor if there seems to be none.
    ///
    /// # Errors
    /// [`Broken`]: the consumer has emptied slots that were not filled.
    pub fn room<A: Arch>(&mut self, ring: Ring<'_, A>) -> Result<u32, Broken> {
        if self.head.wrapping_sub(self.tail) == ring.size() {
            self.refresh(ring)?;
        }
        Ok(ring.size() - self.head.wrapping_sub(self.tail))
    }

    /// Returns how many filled slots the consumer has not emptied.
    ///
    /// # Errors
    /// As [`room`](Self::room).
    pub fn pending<A: Arch>(&mut self, ring: Ring<'_, A>) -> Result<u32, Broken> {
        self.refresh(ring)?;
        Ok(self.head.wrapping_sub(self.tail))
    }

    fn refresh<A: Arch>(&mut self, ring: Ring<'_, A>) -> Result<(), Broken> {
        // Acquire: orders the consumer's reads of slots and frames before the producer's next writes.
        let tail = ring.cursors.consumer.cursor.load(Acquire);
        if self.head.wrapping_sub(tail) > self.head.wrapping_sub(self.tail) {
            return Err(Broken);
        }
        self.tail = tail;
        Ok(())
    }

    /// Fills the next slot, which is free ([`room`](Self::room)).
    pub fn push<A: Arch>(&mut self, ring: Ring<'_, A>, frame: Descriptor) {
        let words = &ring.slot(self.head).0;
        let values = [frame.offset, frame.len, frame.priority, frame.flags];
        words.iter().zip(values).for_each(|(word, value)| word.store(value, Relaxed));
        self.head = self.head.wrapping_add(1);
    }

    /// Publishes all filled slots; returns whether the consumer sleeps, and the caller must ring.
    #[must_use]
    pub fn publish<A: Arch>(&mut self, ring: Ring<'_, A>) -> bool {
        // Release: the slots and the frames; pairs with the load in `Consumer::refresh`.
        ring.cursors.producer.cursor.store(self.head, Release);
        ring.cursors.consumer.must_ring()
    }

    /// Asks the consumer to ring when at least half of the ring is free; returns whether the ring is still full, so that the caller may
    /// sleep. The caller has published all slots.
    ///
    /// # Errors
    /// As [`room`](Self::room).
    pub fn wait<A: Arch>(&mut self, ring: Ring<'_, A>) -> Result<bool, Broken> {
        ring.cursors.producer.announce();
        self.refresh(ring)?;
        let full = self.head.wrapping_sub(self.tail) == ring.size();
        if !full {
            ring.cursors.producer.waits.store(0, Relaxed);
        }
        Ok(full)
    }
}

/// The side that empties slots: the server's.
#[derive(Debug, Default)]
pub struct Consumer {
    /// The producer's cursor as last loaded and checked.
    head: u32,
    /// The next slot to empty.
    tail: u32,
    /// Descriptors rejected; wraps.
    rejected: u32,
}

impl Consumer {
    /// Returns the number of filled slots; reads the producer's cursor if there seems to be none.
    ///
    /// # Errors
    /// [`Broken`]: the producer has filled more slots than the ring has, or fewer than it had.
    pub fn pending<A: Arch>(&mut self, ring: Ring<'_, A>) -> Result<u32, Broken> {
        if self.head == self.tail {
            self.refresh(ring)?;
        }
        Ok(self.head.wrapping_sub(self.tail))
    }

    /// Reads the producer's cursor; returns the number of filled slots.
    ///
    /// # Errors
    /// As [`pending`](Self::pending).
    pub fn refresh<A: Arch>(&mut self, ring: Ring<'_, A>) -> Result<u32, Broken> {
        // Acquire: the slots and the frames; pairs with the store in `Producer::publish`.
        let head = ring.cursors.producer.cursor.load(Acquire);
        let (pending, before) = (head.wrapping_sub(self.tail), self.head.wrapping_sub(self.tail));
        if pending > ring.size() || pending < before {
            return Err(Broken);
        }
        self.head = head;
        Ok(pending)
    }

    /// Loads the next descriptor, each of its words once, and empties its slot. The caller knows that one is
    /// [pending](Self::pending).
    pub fn pop<A: Arch>(&mut self, ring: Ring<'_, A>) -> Descriptor {
        let [offset, len, priority, flags] = &ring.slot(self.tail).0;
        let load = |word: &A::AtomicU32| word.load(Relaxed);
        self.tail = self.tail.wrapping_add(1);
        Descriptor { offset: load(offset), len: load(len), priority: load(priority), flags: load(flags) }
    }

    /// Counts a rejected descriptor.
    pub fn reject(&mut self) {
        self.rejected = self.rejected.wrapping_add(1);
    }

    /// Returns to the producer all slots emptied so far, except the last `held`; returns whether the producer sleeps and at least half
    /// of the ring is free: then the caller must ring.
    #[must_use]
    pub fn publish<A: Arch>(&mut self, ring: Ring<'_, A>, held: u32) -> bool {
        let (own, tail) = (&ring.cursors.consumer, self.tail.wrapping_sub(held));
        own.rejected.store(self.rejected, Relaxed);
        // Release: this side's reads of slots and frames; pairs with the load in `Producer::refresh`.
        own.cursor.store(tail, Release);
        // With fewer free slots a producer that waits sleeps on: this side will empty more, and come here again.
        self.head.wrapping_sub(tail) <= ring.size() / 2 && ring.cursors.producer.must_ring()
    }

    /// Asks the producer to ring when it has filled a slot, for good: the caller reads the cursor once more, and never sleeps again.
    pub fn ask<A: Arch>(&self, ring: Ring<'_, A>) {
        ring.cursors.consumer.announce();
    }

    /// Asks the producer to ring when it has filled a slot; returns whether the ring is still empty, so that the caller may sleep.
    ///
    /// # Errors
    /// As [`pending`](Self::pending).
    pub fn wait<A: Arch>(&mut self, ring: Ring<'_, A>) -> Result<bool, Broken> {
        ring.cursors.consumer.announce();
        let empty = self.refresh(ring)? == 0;
        if !empty {
            ring.cursors.consumer.waits.store(0, Relaxed);
        }
        Ok(empty)
    }
}

#[cfg(test)]
mod tests;
