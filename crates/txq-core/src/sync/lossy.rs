//! A bounded ring from many threads to one, for values that may be lost: a producer never waits.
//!
//! Each slot has a turn, as in Vyukov's bounded queue. A producer takes the next position by a compare and exchange, and only
//! if the position's slot is free. A consumer that is preempted while it reads a slot keeps that slot occupied: the producers
//! that reach it lose their values, and do not wait. A producer that is preempted while it writes a slot holds up the
//! consumer, and nothing else.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic, CellApi};

/// The producers' side of a ring. Its slots are reused.
pub struct Ring<A: Arch, T> {
    slots: Box<[Slot<A, T>]>,
    /// The next position to write. Written by producers (compare and exchange, Relaxed: the slot's turn orders the values),
    /// read by producers.
    tail: CachePadded<A::AtomicU64>,
    /// Values that found no free slot. Added by producers, read by all. Relaxed: a thread that gets a packet from another
    /// one also sees that thread's losses, because the packet's way orders them.
    lost: CachePadded<A::AtomicU64>,
}

struct Slot<A: Arch, T> {
    /// `position` while the slot is free for the producer of that position; `position + 1` when the value is written
    /// (Release by the producer: the value; Acquire by the consumer); `position + capacity` when it is read (Release by the
    /// consumer: its reads; Acquire by the next producer).
    turn: A::AtomicU64,
    /// Accessed by the producer that has taken the position, and then by the consumer, as `turn` says.
    value: A::Cell<T>,
}

// SAFETY: `turn` gives each value to one thread at a time.
unsafe impl<A: Arch, T: Send> Send for Ring<A, T> {}
// SAFETY: as above.
unsafe impl<A: Arch, T: Send> Sync for Ring<A, T> {}

/// The reader's side of a ring.
pub struct Consumer<A: Arch, T> {
    ring: Arc<Ring<A, T>>,
    /// The next position to read.
    head: u64,
}

/// Creates a ring of at least `capacity` slots, which hold values made by `empty`.
pub fn ring<A: Arch, T>(capacity: usize, mut empty: impl FnMut() -> T) -> (Arc<Ring<A, T>>, Consumer<A, T>) {
    // With one slot, a written slot would equal one that is free for the next position.
    let capacity = capacity.max(2).next_power_of_two() as u64;
    let slot = |position| Slot { turn: A::AtomicU64::new(position), value: A::Cell::new(empty()) };
    let ring = Arc::new(Ring {
        slots: (0..capacity).map(slot).collect(),
        tail: CachePadded::new(A::AtomicU64::new(0)),
        lost: CachePadded::new(A::AtomicU64::new(0)),
    });
    (ring.clone(), Consumer { ring, head: 0 })
}

impl<A: Arch, T> Ring<A, T> {
    fn slot(&self, position: u64) -> &Slot<A, T> {
        &self.slots[position as usize & (self.slots.len() - 1)]
    }

    /// Calls `write` with a free slot's value; returns false, and counts a loss, if no slot is free.
    pub fn push(&self, write: impl FnOnce(&mut T)) -> bool {
        let mut position = self.tail.load(Relaxed);
        loop {
            let slot = self.slot(position);
            // Acquire: the consumer's reads of the slot's last value.
            let turn = slot.turn.load(Acquire);
            if turn == position {
                match self.tail.compare_exchange(position, position + 1, Relaxed, Relaxed) {
                    Ok(_) => {
                        // SAFETY: the exchange has given this position to the caller alone, and the consumer waits for
                        // `turn`.
                        slot.value.with_mut(|value| write(unsafe { &mut *value }));
                        // Release: the value, to the consumer.
                        slot.turn.store(position + 1, Release);
                        return true;
                    }
                    Err(now) => position = now,
                }
            } else if turn < position {
                // The slot's last value is not read.
                self.lost.fetch_add(1, Relaxed);
                return false;
            } else {
                // Another producer has taken the position.
                position = self.tail.load(Relaxed);
            }
        }
    }

    /// Returns how many values were lost.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
}

impl<A: Arch, T> Consumer<A, T> {
    /// Calls `read` with the oldest value and returns its result; `None` if there is none.
    pub fn pop<R>(&mut self, read: impl FnOnce(&T) -> R) -> Option<R> {
        let slot = self.ring.slot(self.head);
        // Acquire: the producer's write of the value.
        if slot.turn.load(Acquire) != self.head + 1 {
            return None;
        }
        // SAFETY: the producer has handed over the value, there is one consumer, and the next producer waits for `turn`.
        let result = slot.value.with(|value| read(unsafe { &*value }));
        // Release: the end of the reads, to the next producer.
        slot.turn.store(self.head + self.ring.slots.len() as u64, Release);
        self.head += 1;
        Some(result)
    }
}
