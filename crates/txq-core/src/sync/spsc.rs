//! A bounded ring from one thread to another, by which a driver's transmitting half hands values to its completing half.
//!
//! The ring has two cursors on two cache lines, each written by one side. Each side keeps a copy of the other's cursor, and
//! reads the shared one only when the copy says full or empty. It publishes its own cursor once per batch
//! ([`Producer::publish`], [`Consumer::publish`]), so a batch costs one transfer of each line.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic, CellApi};

/// Adjacent slots, on lines of their own.
#[repr(align(128))]
struct Block<A: Arch, T>([A::Cell<MaybeUninit<T>>; SLOTS_PER_BLOCK]);
/// Slots of a block, a power of two.
const SLOTS_PER_BLOCK: usize = 16;

struct Ring<A: Arch, T> {
    blocks: Box<[Block<A, T>]>,
    mask: u32,
    /// The next slot to fill, wrapping; the slots before it are filled. Written by the producer (Release: the slots'
    /// content), read by the consumer (Acquire).
    head: CachePadded<A::AtomicU32>,
    /// The next slot to empty, wrapping; the slots before it are empty. Written by the consumer (Release: its reads of the
    /// slots), read by the producer (Acquire).
    tail: CachePadded<A::AtomicU32>,
}

// SAFETY: the producer accesses a slot from the publication of `tail` until that of `head`, and the consumer from the
// publication of `head` until that of `tail`, so values only move from thread to thread.
unsafe impl<A: Arch, T: Send> Send for Ring<A, T> {}
// SAFETY: as above.
unsafe impl<A: Arch, T: Send> Sync for Ring<A, T> {}

impl<A: Arch, T> Block<A, T> {
    fn new() -> Self {
        Self(std::array::from_fn(|_| A::Cell::new(MaybeUninit::uninit())))
    }
}

impl<A: Arch, T> Ring<A, T> {
    /// Returns the slot at a cursor.
    #[inline]
    fn slot(&self, at: u32) -> &A::Cell<MaybeUninit<T>> {
        let i = (at & self.mask) as usize;
        // SAFETY: `i` is at most `mask`, and the blocks have `mask + 1` slots or more.
        let block = unsafe { self.blocks.get_unchecked(i / SLOTS_PER_BLOCK) };
        &block.0[i % SLOTS_PER_BLOCK]
    }
}

/// Creates a ring for `capacity` values, rounded up to a power of two; returns its two sides.
///
/// # Panics
/// When `capacity` is 0 or greater than 2^30.
pub fn ring<A: Arch, T: Send>(capacity: u32) -> (Producer<A, T>, Consumer<A, T>) {
    assert!((1..=1 << 30).contains(&capacity), "a ring of {capacity} slots: use 1 to 2^30");
    let size = capacity.next_power_of_two();
    let ring = Arc::new(Ring {
        blocks: (0..(size as usize).div_ceil(SLOTS_PER_BLOCK)).map(|_| Block::new()).collect(),
        mask: size - 1,
        head: CachePadded::new(A::AtomicU32::new(0)),
        tail: CachePadded::new(A::AtomicU32::new(0)),
    });
    A::array(&ring.blocks);
    (Producer { ring: ring.clone(), head: 0, tail: 0 }, Consumer { ring, head: 0, tail: 0 })
}

/// The side that fills the ring.
pub struct Producer<A: Arch, T: Send> {
    ring: Arc<Ring<A, T>>,
    head: u32,
    /// The consumer's cursor as last read: never ahead of the real one.
    tail: u32,
}

/// The side that empties the ring.
pub struct Consumer<A: Arch, T: Send> {
    ring: Arc<Ring<A, T>>,
    /// The producer's cursor as last read: never ahead of the real one.
    head: u32,
    tail: u32,
}

impl<A: Arch, T: Send> Producer<A, T> {
    /// Fills the next slot; the consumer sees the value after [`publish`](Producer::publish). Returns the value as the error
    /// if the ring is full.
    #[inline]
    pub fn push(&mut self, value: T) -> Result<(), T> {
        if self.head.wrapping_sub(self.tail) > self.ring.mask {
            // Acquire: orders the consumer's reads of the slot before this side's write.
            self.tail = self.ring.tail.load(Acquire);
            if self.head.wrapping_sub(self.tail) > self.ring.mask {
                return Err(value);
            }
        }
        let slot = self.ring.slot(self.head);
        // SAFETY: the slot is empty and the producer's until `publish`.
        slot.with_mut(|s| unsafe { (*s).write(value) });
        self.head = self.head.wrapping_add(1);
        Ok(())
    }

    /// Publishes all values pushed so far.
    #[inline]
    pub fn publish(&mut self) {
        self.ring.head.store(self.head, Release);
    }
}

impl<A: Arch, T: Send> Drop for Producer<A, T> {
    fn drop(&mut self) {
        self.publish();
    }
}

impl<A: Arch, T: Send> Consumer<A, T> {
    /// Returns the next value without taking it; `None` if the ring is empty.
    #[inline]
    pub fn peek(&mut self) -> Option<&T> {
        if !self.refresh() {
            return None;
        }
        let slot = self.ring.slot(self.tail);
        // SAFETY: the slot is filled and the consumer's until `publish`, which needs `&mut self`.
        Some(slot.with(|s| unsafe { (*s).assume_init_ref() }))
    }

    /// Returns the next value, to change or empty it without taking it; `None` if the ring is empty.
    #[inline]
    pub fn peek_mut(&mut self) -> Option<&mut T> {
        if !self.refresh() {
            return None;
        }
        let slot = self.ring.slot(self.tail);
        // SAFETY: as in `peek`.
        Some(slot.with_mut(|s| unsafe { (*s).assume_init_mut() }))
    }

    /// Takes the next value; `None` if the ring is empty. Its slot returns to the producer at
    /// [`publish`](Consumer::publish).
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if !self.refresh() {
            return None;
        }
        let slot = self.ring.slot(self.tail);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the slot is filled, and the cursor has moved on, so the value is read once.
        Some(slot.with(|s| unsafe { (*s).assume_init_read() }))
    }

    /// Skips the next value, if there is one, without dropping it: for a value that the caller has emptied in place
    /// ([`peek_mut`](Consumer::peek_mut)).
    #[inline]
    pub fn skip(&mut self) {
        if self.refresh() {
            self.tail = self.tail.wrapping_add(1);
        }
    }

    /// Returns to the producer all slots emptied so far.
    #[inline]
    pub fn publish(&mut self) {
        self.ring.tail.store(self.tail, Release);
    }

    /// Whether a value is there; reads the producer's cursor if the copy says that the ring is empty.
    fn refresh(&mut self) -> bool {
        if self.head == self.tail {
            // Acquire: the slots' content; pairs with the store in `Producer::publish`.
            self.head = self.ring.head.load(Acquire);
        }
        self.head != self.tail
    }
}

impl<A: Arch, T: Send> Drop for Consumer<A, T> {
    fn drop(&mut self) {
        self.publish();
    }
}

impl<A: Arch, T> Drop for Ring<A, T> {
    fn drop(&mut self) {
        let (head, mut tail) = (self.head.load(Relaxed), self.tail.load(Relaxed));
        while tail != head {
            // SAFETY: both sides are dropped and have published their cursors, so exactly these slots are filled.
            self.slot(tail).with_mut(|s| unsafe { (*s).assume_init_drop() });
            tail = tail.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::arch::Native;

    #[test]
    fn a_value_is_emptied_in_place_and_skipped() {
        let (mut producer, mut consumer) = ring::<Native, Vec<u32>>(2);
        producer.push(vec![1]).unwrap();
        producer.push(vec![2]).unwrap();
        producer.publish();
        assert_eq!(consumer.peek_mut().map(std::mem::take), Some(vec![1]));
        consumer.skip();
        assert_eq!(consumer.pop(), Some(vec![2]));
        consumer.skip();
        assert!(producer.push(vec![3]).is_err(), "nothing is published");
        consumer.publish();
        producer.push(vec![3]).unwrap();
        producer.publish();
        assert_eq!(consumer.pop(), Some(vec![3]), "an empty ring has nothing to skip");
    }

    #[test]
    fn values_cross_in_order() {
        // On a busy machine every few values cost each thread a wait for its next slice.
        let values = if cfg!(miri) { 60 } else { 4_000 };
        let (mut producer, mut consumer) = ring::<Native, Box<u32>>(5);
        thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..values {
                    let mut value = Box::new(number);
                    while let Err(back) = producer.push(value) {
                        value = back;
                        producer.publish();
                        thread::yield_now();
                    }
                    if number % 3 == 0 {
                        producer.publish();
                    }
                }
            });
            for number in 0..values {
                while consumer.peek().is_none() {
                    consumer.publish();
                    thread::yield_now();
                }
                assert_eq!(consumer.pop(), Some(Box::new(number)));
            }
        });
        assert!(consumer.pop().is_none());
    }

    #[test]
    fn a_full_ring_gives_the_value_back_and_frees_what_it_holds() {
        let value = Arc::new(());
        let (mut producer, consumer) = ring::<Native, _>(2);
        assert!(producer.push(value.clone()).is_ok());
        assert!(producer.push(value.clone()).is_ok());
        assert!(producer.push(value.clone()).is_err());
        drop((producer, consumer));
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
