//! A queue of packets in the order of the times at which they may leave, for netem and etf.
//!
//! Most packets come in the order of their times. These go to the end of a FIFO. A packet whose time is before that of the
//! FIFO's last packet goes to a heap. The next packet to leave is the earlier one of the two fronts. Neither allocates while
//! it holds no more packets than it has held before.
//!
//! The kernel's counterparts are netem's `tfifo` and etf's red-black tree.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use txq_core::arch::{Arch, Nanos};
use txq_core::packet::Packet;

/// A packet with its time. Of two entries with the same time, the one that was pushed first is the lesser.
struct Entry<A: Arch> {
    time: Nanos,
    number: u64,
    packet: Packet<A>,
}

impl<A: Arch> Entry<A> {
    fn key(&self) -> (Nanos, u64) {
        (self.time, self.number)
    }
}

impl<A: Arch> PartialEq for Entry<A> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<A: Arch> Eq for Entry<A> {}

impl<A: Arch> PartialOrd for Entry<A> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<A: Arch> Ord for Entry<A> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// Packets, each with the time at which it may leave.
pub(super) struct Timed<A: Arch> {
    in_order: VecDeque<Entry<A>>,
    out_of_order: BinaryHeap<Reverse<Entry<A>>>,
    bytes: u64,
    /// The number of the next packet to be pushed.
    number: u64,
}

impl<A: Arch> Timed<A> {
    pub(super) fn new() -> Self {
        Self { in_order: VecDeque::new(), out_of_order: BinaryHeap::new(), bytes: 0, number: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.in_order.len() + self.out_of_order.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn push(&mut self, time: Nanos, packet: Packet<A>) {
        self.bytes += packet.len() as u64;
        let entry = Entry { time, number: self.number, packet };
        self.number += 1;
        if self.in_order.back().is_some_and(|last| time < last.time) {
            self.out_of_order.push(Reverse(entry));
        } else {
            self.in_order.push_back(entry);
        }
    }

    /// Returns the time of the next packet.
    pub(super) fn next_time(&self) -> Option<Nanos> {
        let in_order = self.in_order.front().map(|entry| entry.time);
        let out_of_order = self.out_of_order.peek().map(|Reverse(entry)| entry.time);
        in_order.into_iter().chain(out_of_order).min()
    }

    /// Removes the next packet; returns its time and the packet.
    pub(super) fn pop(&mut self) -> Option<(Nanos, Packet<A>)> {
        let from_heap = match (self.in_order.front(), self.out_of_order.peek()) {
            (Some(a), Some(Reverse(b))) => b < a,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        let Entry { time, packet, .. } = match from_heap {
            true => self.out_of_order.pop()?.0,
            false => self.in_order.pop_front()?,
        };
        self.bytes -= packet.len() as u64;
        Some((time, packet))
    }
}

#[cfg(test)]
pub(super) mod tests;
