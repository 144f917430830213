//! A queue of packets in two words, for a qdisc with a million queues.

use std::ptr::{self, NonNull};

use crate::arch::{Arch, CellApi, fetch_to_write};
use crate::packet::{Packet, PacketList};
use crate::pool::slot::Slot;

/// A first-in first-out queue, linked through the packets: a [`PacketList`] without sums. Dropping it returns every buffer
/// to its home.
pub struct PacketQueue<A: Arch> {
    /// Null while the queue is empty.
    head: *mut Slot<A>,
    /// Valid while the queue is not empty. The last packet's `next` is not valid: the next append writes it.
    tail: *mut Slot<A>,
}

// SAFETY: a queue owns its packets, and a packet is `Send`.
unsafe impl<A: Arch> Send for PacketQueue<A> {}
// SAFETY: `&PacketQueue` only reads.
unsafe impl<A: Arch> Sync for PacketQueue<A> {}

impl<A: Arch> Default for PacketQueue<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Arch> PacketQueue<A> {
    /// Returns an empty queue.
    pub const fn new() -> Self {
        Self { head: ptr::null_mut(), tail: ptr::null_mut() }
    }

    /// Whether the queue has no packets.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    /// Appends a packet.
    #[inline]
    pub fn push_back(&mut self, packet: Packet<A>) {
        let slot = packet.into_slot().as_ptr();
        if self.head.is_null() {
            self.head = slot;
        } else {
            // SAFETY: the queue owns its packets, and while it is not empty `tail` is one of them.
            unsafe { (*self.tail).next.with_mut(|next| *next = slot) };
        }
        self.tail = slot;
    }

    /// Takes the first packet, or returns `None` if the queue is empty.
    #[inline]
    pub fn pop_front(&mut self) -> Option<Packet<A>> {
        let slot = NonNull::new(self.head)?;
        self.head = if self.head == self.tail {
            ptr::null_mut()
        } else {
            // SAFETY: the queue owns its packets, and one that is not the last has a valid `next`.
            unsafe { slot.as_ref().next.with(|next| *next) }
        };
        // SAFETY: the queue owned the packet and gives it away.
        Some(unsafe { Packet::from_slot(slot) })
    }

    /// Returns the first packet.
    #[inline]
    pub fn front(&self) -> Option<&Packet<A>> {
        // SAFETY: a packet is nothing but a pointer to its descriptor, and `head` is one that the queue owns; the borrow of
        // the queue keeps it there.
        (!self.is_empty()).then(|| unsafe { &*ptr::from_ref(&self.head).cast::<Packet<A>>() })
    }

    /// Prefetches the first packet's descriptor.
    #[inline]
    pub fn fetch_front(&self) {
        fetch_to_write(self.head);
    }

    /// Prefetches the second packet's descriptor. Reads the first one's `next`.
    #[inline]
    pub fn fetch_second(&self) {
        if !self.is_empty() && self.head != self.tail {
            // SAFETY: the queue owns its packets, and one that is not the last has a valid `next`.
            fetch_to_write(unsafe { (*self.head).next.with(|next| *next) });
        }
    }

    /// Prefetches the last packet's descriptor, which the next [`push_back`](PacketQueue::push_back) writes.
    #[inline]
    pub fn fetch_back(&self) {
        if !self.is_empty() {
            fetch_to_write(self.tail);
        }
    }

    /// Iterates over the packets, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Packet<A>> {
        let mut at = (!self.is_empty()).then_some(&self.head);
        std::iter::from_fn(move || {
            let slot = at?;
            at = if *slot == self.tail {
                None
            } else {
                // SAFETY: the packet is of the queue and not its last, so its `next` is valid; the borrow of the queue keeps
                // both where they are.
                Some(unsafe { (**slot).next.with(|next| &*next) })
            };
            // SAFETY: as in `front`.
            Some(unsafe { &*ptr::from_ref(slot).cast::<Packet<A>>() })
        })
    }
}

impl<A: Arch> Drop for PacketQueue<A> {
    #[inline]
    fn drop(&mut self) {
        if !self.is_empty() {
            // Dropping a list sends its packets home in runs.
            let mut list = PacketList::new();
            list.extend(std::iter::from_fn(|| self.pop_front()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::arch::Native;
    use crate::pool::{Backing, Pool, PoolConfig};

    proptest! {
        // Miri has no files to keep a failure in.
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 })
        })]

        #[test]
        fn it_does_as_a_deque(script in prop::collection::vec(prop::bool::weighted(0.6), 0..60)) {
            let config = PoolConfig { buffers: 64, room: 64, backing: Backing::Heap, ..PoolConfig::default() };
            let pool = Pool::new(&config).unwrap();
            let mut cache = pool.cache("test", 0);
            let (mut queue, mut model) = (PacketQueue::<Native>::new(), VecDeque::new());
            for (push, number) in script.into_iter().zip(1..) {
                if push {
                    let mut packet = cache.alloc(1).unwrap();
                    packet.set_cookie(number);
                    queue.push_back(packet);
                    model.push_back(number);
                } else {
                    let popped = queue.pop_front();
                    prop_assert_eq!(popped.as_ref().map(Packet::cookie), model.pop_front());
                    popped.into_iter().for_each(|packet| cache.free(&mut PacketList::from_iter([packet])));
                }
                queue.fetch_front();
                queue.fetch_second();
                queue.fetch_back();
                prop_assert_eq!(queue.is_empty(), model.is_empty());
                prop_assert_eq!(queue.front().map(Packet::cookie), model.front().copied());
                prop_assert!(queue.iter().map(Packet::cookie).eq(model.iter().copied()));
            }
            drop(queue);
            prop_assert_eq!(cache.alloc_batch(64, 1, &mut PacketList::new()), Ok(64), "all buffers are home");
        }
    }
}
